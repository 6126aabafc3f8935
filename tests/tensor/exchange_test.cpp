// Tensors through DLPack and .npy files.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "tensor/dlpack.h"
#include "tensor/npy.h"

namespace meshfuse {
namespace {

TEST(Dlpack, SharesMemoryBothWays) {
  Tensor t = Tensor::of({1, 2, 3, 4, 5, 6}, {2, 3}, DataType::Int32).transpose(0, 1);
  long before = t.storage().use_count();
  dlpack::ManagedTensor* handle = toDlpack(t);
  EXPECT_EQ(handle->tensor.ndim, 2);
  EXPECT_EQ(handle->tensor.shape[0], 3);
  EXPECT_EQ(handle->tensor.strides[0], 1);
  EXPECT_EQ(handle->tensor.dtype.bits, 32);
  Tensor back = fromDlpack(handle);
  EXPECT_EQ(back.data(), t.data());
  EXPECT_EQ(back.dtype(), DataType::Int32);
  EXPECT_EQ(back.toVector(), t.toVector());
  EXPECT_GT(t.storage().use_count(), before);
  back = Tensor();
  EXPECT_EQ(t.storage().use_count(), before);
}

// The codes of DLPack, by hand: 0 integer, 1 unsigned integer, 2 floating, 4 bfloat, 6 bool.
TEST(Dlpack, KnowsAllTypes) {
  using enum DataType;
  const std::map<DataType, std::pair<int, int>> expected = {
      {Double, {2, 64}}, {Float, {2, 32}}, {Half, {2, 16}},   {BFloat16, {4, 16}}, {Int, {0, 64}}, {Int32, {0, 32}},
      {Short, {0, 16}},  {Char, {0, 8}},   {UInt16, {1, 16}}, {Byte, {1, 8}},      {Bool, {6, 8}}};
  ASSERT_EQ(expected.size(), kDataTypes.size());
  for (const auto& [type, code] : expected) {
    Tensor t = randomTensor({3}, type, 1, -5, 5);
    dlpack::ManagedTensor* handle = toDlpack(t);
    EXPECT_EQ(handle->tensor.dtype.code, code.first) << name(type);
    EXPECT_EQ(handle->tensor.dtype.bits, code.second) << name(type);
    Tensor back = fromDlpack(handle);
    EXPECT_EQ(back.dtype(), type);
    EXPECT_EQ(back.toVector(), t.toVector());
  }
}

struct Foreign {
  float data[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  int64_t shape[2] = {2, 3};
  int deleted = 0;
  dlpack::ManagedTensor handle{};
  Foreign() {
    handle.tensor = {data, {1, 0}, 2, {2, 32, 1}, shape, nullptr, 8};
    handle.context = this;
    handle.deleter = [](dlpack::ManagedTensor* h) { static_cast<Foreign*>(h->context)->deleted++; };
  }
};

TEST(Dlpack, TakesForeignHandlesOver) {
  Foreign f;
  {
    Tensor t = fromDlpack(&f.handle);
    EXPECT_EQ(t.toVector(), (std::vector<double>{2, 3, 4, 5, 6, 7}));  // the byte offset counts
    Tensor view = t.slice(0, 1, 2);
    t = Tensor();
    EXPECT_EQ(f.deleted, 0);
    EXPECT_EQ(view.at({0, 0}), 5);
  }
  EXPECT_EQ(f.deleted, 1);
}

TEST(Dlpack, RefusesAndReleases) {
  Foreign other;
  other.handle.tensor.device.type = 4;  // OpenCL
  EXPECT_THROW((void)fromDlpack(&other.handle), UserError);
  EXPECT_EQ(other.deleted, 1);
  Foreign wide;
  wide.handle.tensor.dtype.lanes = 4;
  EXPECT_THROW((void)fromDlpack(&wide.handle), UserError);
  EXPECT_EQ(wide.deleted, 1);
  EXPECT_THROW((void)fromDlpack(nullptr), UserError);
  EXPECT_THROW((void)toDlpack(Tensor()), UserError);
}

// numpy.save of np.array([[1.5, -2.0]], '<f4'), byte for byte.
TEST(Npy, ReadsAndWritesWhatNumpyWrites) {
  std::string expected("\x93NUMPY\x01\x00\x76\x00", 10);
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }";
  expected +=
      header + std::string(0x76 - header.size() - 1, ' ') + "\n" + std::string("\x00\x00\xc0\x3f\x00\x00\x00\xc0", 8);
  Tensor t = Tensor::of({1.5, -2}, {1, 2});
  EXPECT_EQ(npyBytes(t), expected);
  EXPECT_EQ(parseNpy(expected).toVector(), t.toVector());
}

TEST(Npy, RoundTripsAllTypesAndShapes) {
  std::string path = std::filesystem::temp_directory_path() / "meshfuse_npy_test.npy";
  for (const DataTypeInfo& type : kDataTypes) {
    for (std::vector<int64_t> sizes : {std::vector<int64_t>{}, {3}, {0}, {2, 3}, {2, 1, 4}}) {
      Tensor t = randomTensor(sizes, type.type, 3, -5, 5);
      writeNpy(path, t);
      Tensor back = readNpy(path);
      EXPECT_EQ(back.dtype(), type.type);
      EXPECT_TRUE(std::ranges::equal(back.sizes(), t.sizes()));
      EXPECT_EQ(back.toVector(), t.toVector());
    }
  }
  std::filesystem::remove(path);
}

TEST(Npy, NamesTypesAsNumpyDoes) {
  using enum DataType;
  for (const auto& [type, text] : {std::pair(Short, "'<i2'"), std::pair(Char, "'|i1'"), std::pair(Bool, "'|b1'")}) {
    EXPECT_NE(npyBytes(Tensor::zeros({1}, type)).find(text), std::string::npos) << text;
  }
}

TEST(Npy, FortranOrder) {
  std::string bytes = npyBytes(Tensor::of({1, 2, 3, 4, 5, 6}, {2, 3}, DataType::Int));
  size_t at = bytes.find("False");
  bytes.replace(at, 5, "True ");
  EXPECT_EQ(parseNpy(bytes).toVector(), (std::vector<double>{1, 3, 5, 2, 4, 6}));
}

TEST(Npy, RefusesDamage) {
  std::string bytes = npyBytes(Tensor::of({1, 2, 3}, {3}));
  for (size_t k = 0; k < bytes.size(); k++) {
    EXPECT_THROW((void)parseNpy(std::string_view(bytes).substr(0, k)), UserError) << k;
  }
  std::string huge = bytes;
  huge.replace(huge.find("(3,), }"), 16, "(3000000000,), }");
  EXPECT_THROW((void)parseNpy(huge), UserError);
  std::string type = bytes;
  type.replace(type.find("<f4"), 3, "<c8");
  EXPECT_THROW((void)parseNpy(type), UserError);
  EXPECT_THROW((void)readNpy("/nonexistent/x.npy"), UserError);
}

}  // namespace
}  // namespace meshfuse
