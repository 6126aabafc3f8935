// Sizes, strides and files as no tensor has them: each is a UserError that names the number, before there is memory for it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "base/error.h"
#include "tensor/dlpack.h"
#include "tensor/npy.h"

namespace meshfuse {
namespace {

constexpr int64_t kHuge = int64_t{1} << 62;

std::string refusalOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

TEST(TensorLimits, BytesAndOffsetsFitIn64Bits) {
  const Tensor t = Tensor::zeros({2, 4}, DataType::Float);
  const Tensor one = Tensor::zeros({1, 1}, DataType::Float);
  float x = 0;
  struct Case {
    const char* what;
    std::function<Tensor()> make;
    const char* phrase;
  };
  const Case cases[] = {
      {"empty", [] { return Tensor::empty({kHuge}, DataType::Float); }, "4611686018427387904"},
      {"product",
       [] {
         return Tensor::empty({1 << 30, 1 << 30, 1 << 30}, DataType::Char);
       },
       "more than 2^63 bytes"},
      {"without elements",
       [] {
         return Tensor::empty({0, kHuge, kHuge}, DataType::Char);
       },
       "more than 2^63 bytes"},
      {"negative", [] { return Tensor::empty({-kHuge}, DataType::Char); }, "-4611686018427387904"},
      {"below all",
       [] {
         return Tensor::empty({INT64_MIN, 2}, DataType::Char);
       },
       "negative"},
      {"more than there is", [] { return Tensor::empty({int64_t{1} << 58}, DataType::Char); }, "288230376151711744"},
      {"zeros", [] { return Tensor::zeros({kHuge}, DataType::Float); }, "more than 2^63 bytes"},
      {"full", [] { return Tensor::full({kHuge}, DataType::Float, 1); }, "more than 2^63 bytes"},
      {"random", [] { return randomTensor({kHuge}, DataType::Float, 1); }, "more than 2^63 bytes"},
      {"expand",
       [&] {
         return one.expand({kHuge, 8});
       },
       "more than 2^63 bytes"},
      {"view",
       [&] {
         return t.view({kHuge, 4});
       },
       "more than 2^63 bytes"},
      {"view of -1",
       [&] {
         return t.view({-1, kHuge, 8});
       },
       "more than 2^63 bytes"},
      {"view of many -1",
       [&] {
         return t.view({-1, -1});
       },
       "negative"},
      {"sizes of a view",
       [&] {
         return t.asStrided({kHuge, 8}, {0, 0});
       },
       "more than 2^63 bytes"},
      {"stride", [&] { return t.asStrided({3}, {kHuge}); }, "offsets of more than 2^63 bytes"},
      {"sum of strides",
       [&] {
         return t.asStrided({2, 2}, {kHuge, kHuge});
       },
       "offsets of more than 2^63 bytes"},
      {"lowest stride", [&] { return t.asStrided({2}, {INT64_MIN}); }, "-9223372036854775808"},
      {"offset", [&] { return t.asStrided({2}, {1}, kHuge); }, "offset 4611686018427387904"},
      {"wrapped", [&] { return Tensor::wrap(&x, {kHuge}, {1}, DataType::Float); }, "more than 2^63 bytes"},
      {"wrapped stride", [&] { return Tensor::wrap(&x, {2}, {kHuge}, DataType::Float); }, "offsets of more"},
      {"part",
       [&] {
         return t.withGlobalShape({kHuge, 8});
       },
       "more than 2^63 bytes"},
      {"axis", [&] { return t.slice(int64_t{1} << 32, 0, 1); }, "axis 4294967296"},
      {"axes", [&] { return t.transpose(0, int64_t{1} << 32); }, "axis 4294967296"},
      {"order",
       [&] {
         return t.permute({0, int64_t{1} << 32});
       },
       "axis 4294967296"},
      {"stop", [&] { return t.slice(0, 0, INT64_MAX); }, "9223372036854775807"},
  };
  for (const Case& c : cases) {
    const std::string refusal = refusalOf([&] { (void)c.make(); });
    EXPECT_NE(refusal.find(c.phrase), std::string::npos) << c.what << ": " << refusal;
  }
  EXPECT_EQ(t.slice(1, 0, 4, INT64_MAX).sizes()[1], 1);
  EXPECT_EQ(t.slice(1, 1, 4, INT64_MAX).contiguous().sizes()[1], 1);
  EXPECT_EQ(one.expand({1 << 30, 1 << 30}).numel(), kHuge >> 2);
}

// A version 1 file with this header.
std::string npyFile(const std::string& header, const std::string& data = std::string(24, '\0')) {
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size() & 0xff) +
         static_cast<char>(header.size() >> 8) + header + data;
}

std::string npyOfShape(const std::string& shape, const std::string& order = "False",
                       const std::string& type = "'<f4'") {
  return npyFile("{'descr': " + type + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }\n");
}

TEST(NpyLimits, HeadersThatNoArrayHas) {
  std::string thousandsOfDims = "(";
  for (int k = 0; k < 10'000; k++) {
    thousandsOfDims += "1, ";
  }
  const std::string longHeader = std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12) + std::string(64, ' ');
  struct Case {
    std::string bytes;
    const char* phrase;
  };
  const Case cases[] = {
      {npyOfShape(thousandsOfDims + ")"), "more than 64 dims"},
      {longHeader, "a header of 4294967295 bytes, expected at most 65536"},
      {npyOfShape("(4611686018427387904,)"), "more than 2^63 bytes"},
      {npyOfShape("(4294967296, 4294967296)"), "more than 2^63 bytes"},
      {npyOfShape("(0, 4294967296, 4294967296)"), "more than 2^63 bytes"},
      {npyOfShape("(99999999999999999999,)"), "the size '99999999999999999999'"},
      {npyOfShape("(-1,)"), "the size '-1'"},
      {npyOfShape("(-2, -3)"), "the size '-2'"},
      {npyOfShape("(2, 3x)"), "the size '3x'"},
      {npyOfShape("(2 3)"), "the size '2 3'"},
      {npyOfShape("(2,, 3)"), "the size ''"},
      {npyOfShape("(2.0,)"), "the size '2.0'"},
      {npyOfShape("6"), "the shape is no tuple"},
      {npyOfShape("(2, 3"), "the shape is no tuple"},
      {npyOfShape("(2, 4)"), "24 bytes of data, the shape needs 32"},
      {npyOfShape("(1073741824, 1073741824)"), "the shape needs 4611686018427387904"},
      {npyOfShape("(2, 3)", "Maybe"), "'fortran_order' is 'Maybe"},
      {npyOfShape("(2, 3)", "False", "'<c16'"), "type '<c16' is none of"},
      {npyOfShape("(2, 3)", "False", "'>f4'"), "type '>f4' is none of"},
      {npyOfShape("(2, 3)", "False", "[('a', '<f4')]"), "a structured type"},
      {npyFile("{}"), "no 'descr'"},
      {npyFile(""), "no 'descr'"},
      {npyFile("{'descr': '<f4'"), "no 'shape'"},
      {npyFile("{'descr': '<f4', 'shape':"), "the shape is no tuple"},
  };
  for (const Case& c : cases) {
    const std::string refusal = refusalOf([&] { (void)parseNpy(c.bytes, "a.npy"); });
    EXPECT_NE(refusal.find(c.phrase), std::string::npos) << refusal;
    EXPECT_TRUE(refusal.starts_with("[npy] a.npy: ")) << refusal;
  }
  EXPECT_EQ(parseNpy(npyOfShape("(2,3)")).numel(), 6);
  EXPECT_EQ(parseNpy(npyOfShape("( 2 , 3 , )")).numel(), 6);
  EXPECT_EQ(parseNpy(npyOfShape("()")).numel(), 1);
}

TEST(NpyLimits, AFileIsReadAsItsBytesAre) {
  const std::string path = std::filesystem::temp_directory_path() / "meshfuse_npy_limits.npy";
  const Tensor large = randomTensor({300, 200}, DataType::Double, 3);  // more data than is read with the header
  writeNpy(path, large);
  EXPECT_EQ(readNpy(path).toVector(), large.toVector());
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_NE(refusalOf([&] { (void)readNpy(path); }).find("479999 bytes of data, the shape needs 480000"),
            std::string::npos);
  std::ofstream(path, std::ios::binary) << npyOfShape("(1073741824, 1073741824)");
  EXPECT_NE(refusalOf([&] { (void)readNpy(path); }).find("the shape needs 4611686018427387904"), std::string::npos);
  EXPECT_NE(refusalOf([] { (void)readNpy("/dev/zero"); }).find("is a device"), std::string::npos);
  EXPECT_NE(refusalOf([] { (void)readNpy("/tmp"); }).find("is a directory"), std::string::npos);
  std::filesystem::remove(path);
}

TEST(DlpackLimits, NumbersOfDimsAndSizes) {
  float x[2] = {1, 2};
  int64_t size = 2;
  int64_t stride = 1;
  const auto refusalOfHandle = [&](int32_t dims, int64_t* shape) {
    dlpack::ManagedTensor handle{};
    handle.tensor = {x, {1, 0}, dims, {2, 32, 1}, shape, &stride, 0};
    return refusalOf([&] { (void)fromDlpack(&handle); });
  };
  EXPECT_EQ(refusalOfHandle(1, &size), "no error");
  EXPECT_NE(refusalOfHandle(-1, &size).find("has -1 dims, expected a shape of 0 to 64"), std::string::npos);
  EXPECT_NE(refusalOfHandle(1 << 30, &size).find("has 1073741824 dims"), std::string::npos);
  EXPECT_NE(refusalOfHandle(1, nullptr).find("without a shape"), std::string::npos);
  size = kHuge;
  EXPECT_NE(refusalOfHandle(1, &size).find("more than 2^63 bytes"), std::string::npos);
}

}  // namespace
}  // namespace meshfuse
