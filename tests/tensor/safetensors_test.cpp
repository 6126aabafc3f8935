// Files of named tensors. Files to read are written by hand here, or by the package `safetensors` where Python has it.
#include "tensor/safetensors.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace meshfuse {
namespace {

class SafetensorsTest : public ::testing::Test {
 protected:
  SafetensorsTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "meshfuse_test_XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    path_ = root_ + "/w.safetensors";
  }
  ~SafetensorsTest() override { std::filesystem::remove_all(root_); }

  void writeBytes(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }
  // Eight bytes with the length of the header, the header, the data
  void write(const std::string& header, const std::string& data) const {
    std::string length(8, '\0');
    const uint64_t size = header.size();
    std::memcpy(length.data(), &size, 8);
    writeBytes(length + header + data);
  }
  std::string refusal() const {
    try {
      const SafetensorsFile file(path_);
      for (const std::string& name : file.names()) {
        (void)file.get(name);
      }
    } catch (const UserError& e) {
      return e.what();
    }
    return "none";
  }
  std::string refusal(const std::string& header, const std::string& data) const {
    write(header, data);
    return refusal();
  }

  std::string root_;
  std::string path_;
};

#define EXPECT_SAYS(text, phrase)                                     \
  {                                                                   \
    const std::string said = text;                                    \
    EXPECT_NE(said.find(phrase), std::string::npos) << said;          \
    EXPECT_NE(said.find("w.safetensors"), std::string::npos) << said; \
  }

TEST_F(SafetensorsTest, ReadsAFileWrittenByHand) {
  const float values[] = {1, 2, 3, 4, 5, 6};
  std::string data(24 + 2, '\1');
  std::memcpy(data.data(), values, 24);
  write(R"( {"__metadata__":{"format":"pt","a\n\u00e9":"\ud83d\ude00"} , "w.0":{"shape":[2,3],)"
        R"("data_offsets":[0,24],"dtype":"F32"}, "e":{"dtype":"F16","shape":[0,4],"data_offsets":[24,24]},)"
        R"("\"b\"":{"dtype":"BOOL","shape":[],"data_offsets":[24,25]},"u":{"dtype":"F8_E4M3","shape":[1],)"
        R"("data_offsets":[25,26]}}   )",
        data);
  const SafetensorsFile file(path_);
  EXPECT_EQ(file.names(), (std::vector<std::string>{"\"b\"", "e", "u", "w.0"}));
  EXPECT_EQ(file.metadata(),
            (std::map<std::string, std::string>{{"format", "pt"}, {"a\n\xc3\xa9", "\xf0\x9f\x98\x80"}}));
  EXPECT_EQ(file.get("w.0").toVector(), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(file.get("w.0").size(0), 2);
  EXPECT_EQ(file.get("e").dtype(), DataType::Half);
  EXPECT_EQ(file.get("e").numel(), 0);
  EXPECT_EQ(file.get("\"b\"").item(), 1);
  try {
    (void)file.get("u");
    ADD_FAILURE() << "no refusal";
  } catch (const UserError& e) {
    EXPECT_SAYS(e.what(), "the type of u is F8_E4M3, expected one of F64, F32, F16, BF16, I64");
  }
}

TEST_F(SafetensorsTest, ReadsWhatItWrites) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const DataTypeInfo& type : kDataTypes) {
    for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{{}, {0, 3}, {3, 5}}) {
      tensors.emplace_back("t" + std::to_string(tensors.size()) + "\"\\\n\xc3\xa9",
                           randomTensor(sizes, type.type, tensors.size(), 0, 2));
    }
  }
  tensors.emplace_back("transposed", randomTensor({4, 6}, DataType::Float, 1).transpose(0, 1));
  const std::map<std::string, std::string> metadata = {{"step", "100"}, {"note", "\t\"x\""}};
  writeSafetensors(path_, tensors, metadata);
  const SafetensorsFile file(path_);
  EXPECT_EQ(file.metadata(), metadata);
  EXPECT_EQ(file.names().size(), tensors.size());
  for (const auto& [name, t] : tensors) {
    const Tensor read = file.get(name);
    EXPECT_EQ(read.dtype(), t.dtype()) << name;
    EXPECT_TRUE(std::ranges::equal(read.sizes(), t.sizes())) << name;
    EXPECT_EQ(read.toVector(), t.toVector()) << name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(read.data()) % static_cast<uintptr_t>(dataTypeSize(t.dtype())), 0u) << name;
  }
  writeSafetensors(path_, {});  // an older file stays what it was for its readers
  EXPECT_EQ(file.get("transposed").toVector(), tensors.back().second.toVector());
  EXPECT_TRUE(SafetensorsFile(path_).names().empty());
}

TEST_F(SafetensorsTest, TensorsOutliveTheFileAndMayBeWritten) {
  writeSafetensors(path_, {{"x", Tensor::of({1, 2}, {2})}});
  Tensor x = SafetensorsFile(path_).get("x");
  x.set(std::vector<int64_t>{0}, 7);
  EXPECT_EQ(x.toVector(), (std::vector<double>{7, 2}));
  EXPECT_EQ(SafetensorsFile(path_).get("x").toVector(), (std::vector<double>{1, 2}));
}

TEST_F(SafetensorsTest, ATensorThatIsNotAlignedIsCopied) {
  const float values[] = {1, 2};
  std::string data(9, '\0');
  std::memcpy(data.data() + 1, values, 8);
  const std::string header =
      R"({"b":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})";
  for (int spaces = 0; spaces < 4; spaces++) {
    write(header + std::string(spaces, ' '), data);
    EXPECT_EQ(SafetensorsFile(path_).get("x").toVector(), (std::vector<double>{1, 2}));
  }
}

TEST_F(SafetensorsTest, RefusesBadFiles) {
  const std::string x = R"("x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const std::string eight(8, '\0');
  EXPECT_EQ(refusal("{" + x + "}", eight), "none");
  EXPECT_SAYS(refusal("{" + x + "," + x + "}", eight), "names the tensor x twice");
  EXPECT_SAYS(refusal("{" + x + "}", "1234567"), "x end at byte 8, the file has 7 bytes of data");
  EXPECT_SAYS(refusal("{" + x + "}", eight + "9"), "9 bytes of data, expected 8: where x ends");
  EXPECT_SAYS(refusal("{" + x + R"(,"y":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", eight + "1234"),
              "y begin at byte 4, inside x, which ends at 8");
  EXPECT_SAYS(refusal("{" + x + R"(,"y":{"dtype":"I8","shape":[2],"data_offsets":[10,12]}})", eight + "1234"),
              "no tensor has the bytes 8 to 10 of the data, before y");
  EXPECT_SAYS(refusal(R"({"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", eight),
              "x, F32[3], has 8 bytes of data, expected 12");
  EXPECT_SAYS(refusal(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", eight), "before they begin at 8");
  EXPECT_SAYS(refusal(R"({"x":{"dtype":"F32","shape":[4611686018427387904,2],"data_offsets":[0,8]}})", eight),
              "more than 2^63 bytes");
  EXPECT_SAYS(refusal(R"({"x":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]}})", eight),
              "expected an integer from 0 to 2^63 - 1");
  EXPECT_SAYS(refusal(R"({"x":{"dtype":"F32","shape":[02],"data_offsets":[0,8]}})", eight),
              "expected an integer from 0 to 2^63 - 1");
  EXPECT_SAYS(refusal(R"({"x":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", eight),
              "found '-', expected an integer");
  EXPECT_SAYS(refusal(R"({"x":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", eight), "found '.', expected ']'");
  EXPECT_SAYS(refusal(R"({"x":{"dtype":"F32","data_offsets":[0,8]}})", eight),
              "x has the fields [data_offsets, dtype]");
  EXPECT_SAYS(refusal(R"({"x":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}})", eight),
              "a second shape of x");
  EXPECT_SAYS(refusal(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"grad":"y"}})", eight),
              "the field grad of x");
  EXPECT_SAYS(refusal(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[8]}})", eight),
              "1 data_offsets of x, expected 2");
  EXPECT_SAYS(refusal(R"({"x":{"dtype":"BOOL","shape":[8],"data_offsets":[0,8]}})", "\1\1\1\2\1\1\1\1"),
              "element 3 of x, BOOL, is the byte 2");
  EXPECT_SAYS(refusal("[]", ""), "byte 0 of the header: found '[', expected '{'");
  EXPECT_SAYS(refusal("{" + x, eight), "the header ends, expected '}'");
  EXPECT_SAYS(refusal("{" + x + "} {", eight), "expected the end of the header");
  EXPECT_SAYS(refusal("{\"a\xff\":0}", ""), "expected UTF-8");
  EXPECT_SAYS(refusal(R"({"\ud800":0})", ""), "half of a character");
  EXPECT_SAYS(refusal(R"({"\q":0})", ""), "the escape '\\q'");
  EXPECT_SAYS(refusal(R"({"__metadata__":{"a":"1","a":"2"}})", ""), "a second text a");
  EXPECT_SAYS(refusal(R"({"__metadata__":{"a":1}})", ""), "found '1', expected '\"'");
}

TEST_F(SafetensorsTest, RefusesFilesThatEndEarly) {
  writeBytes("1234567");
  EXPECT_SAYS(refusal(), "has 7 bytes, expected 8 or more");
  writeBytes(std::string("\x10\0\0\0\0\0\0\0{}", 10));
  EXPECT_SAYS(refusal(), "has 10 bytes and ends inside the header of 16 bytes");
  writeBytes(std::string(8, '\xff') + "{}");
  EXPECT_SAYS(refusal(), "a header of 18446744073709551615 bytes");
  // every beginning of a good file
  writeSafetensors(path_, {{"x", Tensor::of({1, 2}, {2})}, {"y", Tensor::of({1}, {1}, DataType::Char)}}, {{"a", "b"}});
  std::ostringstream good;
  good << std::ifstream(path_, std::ios::binary).rdbuf();
  for (size_t k = 0; k < good.str().size(); k++) {
    writeBytes(good.str().substr(0, k));
    EXPECT_NE(refusal(), "none") << k;
  }
  EXPECT_THROW(SafetensorsFile(root_ + "/absent"), UserError);
  EXPECT_THROW(SafetensorsFile("/dev/zero"), UserError);
}

TEST_F(SafetensorsTest, UnknownNamesAndNamesGivenTwice) {
  writeSafetensors(path_, {{"layers.0.weight", Tensor::of({1}, {1})}, {"bias", Tensor::of({1}, {1})}});
  const SafetensorsFile file(path_);
  auto message = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const UserError& e) {
      return e.what();
    }
    return "none";
  };
  EXPECT_SAYS(message([&] { (void)file.get("layer.0.weight"); }),
              "no tensor named layer.0.weight; did you mean layers.0.weight?; it has 2 tensors: bias, layers.0.weight");
  const Tensor x = Tensor::of({1}, {1});
  EXPECT_SAYS(message([&] { writeSafetensors(path_, {{"x", x}, {"x", x}}); }), "two tensors named x");
  EXPECT_SAYS(message([&] { writeSafetensors(path_, {{"__metadata__", x}}); }), "the name of the metadata");
  EXPECT_SAYS(message([&] { writeSafetensors(path_, {{"\xc3", x}}); }), "no UTF-8");
  EXPECT_SAYS(message([&] { writeSafetensors(path_, {{"x", Tensor()}}); }), "the tensor x is undefined");
  EXPECT_EQ(file.names().size(), 2u);
  EXPECT_EQ(SafetensorsFile(path_).names().size(), 2u);  // a refused file is not written
}

// The package of PyPI reads a file of writeSafetensors, and writes its tensors to a file that SafetensorsFile reads.
TEST_F(SafetensorsTest, AgreesWithThePackage) {
  if (std::system("python3 -c 'import safetensors' 2>/dev/null") != 0) {
    GTEST_SKIP() << "Python has no package safetensors; pip install safetensors";
  }
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const DataTypeInfo& type : kDataTypes) {
    tensors.emplace_back("t\xc3\xa9\"" + std::string(type.name), randomTensor({2, 3}, type.type, 1, 0, 2));
  }
  writeSafetensors(path_, tensors, {{"a", "\"b\"\n"}});
  const std::string other = root_ + "/theirs.w.safetensors";
  std::ofstream(root_ + "/copy.py") << R"(import ctypes
import sys
import safetensors
names = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
         "I16": "int16", "I8": "int8", "U16": "uint16", "U8": "uint8", "BOOL": "bool"}
keep = []
def spec(t):
    data = bytes(t["data"])
    fields = {"dtype": names[t["dtype"]], "shape": t["shape"]}
    if not hasattr(safetensors, "TensorSpec"):  # before version 0.8
        return fields | {"data": data}
    keep.append(ctypes.create_string_buffer(data, len(data)))
    return safetensors.TensorSpec(data_ptr=ctypes.addressof(keep[-1]), data_len=len(data), **fields)
read = safetensors.deserialize(open(sys.argv[1], "rb").read())
with open(sys.argv[2], "wb") as out:
    out.write(safetensors.serialize({name: spec(t) for name, t in read}, {"c": "\u00e9"}))
)";
  ASSERT_EQ(std::system(("python3 " + root_ + "/copy.py " + path_ + " " + other).c_str()), 0);
  const SafetensorsFile file(other);
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"c", "\xc3\xa9"}}));
  EXPECT_EQ(file.names().size(), tensors.size());
  for (const auto& [name, t] : tensors) {
    EXPECT_EQ(file.get(name).dtype(), t.dtype()) << name;
    EXPECT_EQ(file.get(name).toVector(), t.toVector()) << name;
  }
}

}  // namespace
}  // namespace meshfuse
