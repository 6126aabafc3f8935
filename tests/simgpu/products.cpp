#include "simgpu/products.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace meshfuse {

using cublaslt::ComputeType;
using cublaslt::ElementType;
using cublaslt::Epilogue;
using cublaslt::LayoutAttribute;
using cublaslt::MatrixLayout;
using cublaslt::PreferenceAttribute;
using cublaslt::ProductAttribute;
using cublaslt::Status;
using cublaslt::Transpose;
using cuda::DevicePointer;
using cuda::Stream;

namespace {

size_t sizeOfElement(ElementType type) { return type == ElementType::Double ? 8 : type == ElementType::Float ? 4 : 2; }

// Of few bits, so that each type holds it and sums of products
double valueAt(int seed, int batch, size_t row, size_t column) {
  return (static_cast<double>((seed * 5 + batch * 3 + row * 2 + column * column + row * column) % 7) - 3) / 2;
}

void* hostPointer(DevicePointer p) { return reinterpret_cast<void*>(p); }

}  // namespace

Epilogue ProductShape::epilogue() const {
  if (activation == Epilogue::None) {
    return hasBias ? Epilogue::Bias : Epilogue::None;
  }
  return static_cast<Epilogue>(static_cast<uint32_t>(activation) |
                               (hasBias ? static_cast<uint32_t>(Epilogue::Bias) : 0));
}

CublasLtSimulated::CublasLtSimulated() : VendorLibrary({"libcublasLt.so.13"}) {
  MESHFUSE_CUBLASLT_CALLS(MESHFUSE_VENDOR_FIND);
  require(usable(), reason().c_str());
}

void expectDone(Status status, const char* call) {
  require(status == Status::Success, (std::string(call) + " succeeds: " + std::to_string(int(status))).c_str());
}

std::string bytesOfValue(double value, ElementType type) {
  const auto single = static_cast<float>(value);
  const auto bits = std::bit_cast<uint32_t>(single);
  auto two = static_cast<uint16_t>(bits >> 16);
  if (type == ElementType::Half) {  // a sign, 5 bits of exponent and 10 of fraction
    const uint32_t size = single == 0 ? 0 : ((bits & 0x7fffffff) - (112U << 23)) >> 13;
    two = static_cast<uint16_t>((bits >> 16 & 0x8000) | size);
  }
  const void* const from = type == ElementType::Double  ? static_cast<const void*>(&value)
                           : type == ElementType::Float ? static_cast<const void*>(&single)
                                                        : &two;
  return {static_cast<const char*>(from), sizeOfElement(type)};
}

size_t DeviceMatrices::allocated() const {
  return (columnStride * columns + static_cast<size_t>(batches * batchStride)) * sizeOfElement(type);
}

DevicePointer DeviceMatrices::column(int32_t batch, size_t column) const {
  return at + (static_cast<size_t>(batch * batchStride) + column * columnStride) * sizeOfElement(type);
}

Multiplication::Multiplication(Simulated& simulated, const ProductShape& s) : gpu(simulated), shape(s) {
  a = matrices(s.in, s.transposeA ? s.k : s.m, s.transposeA ? s.m : s.k, s.isAShared);
  b = matrices(s.in, s.transposeB ? s.n : s.k, s.transposeB ? s.k : s.n, false);
  d = matrices(s.out, s.m, s.n, false);
  c = s.isInPlace ? d : matrices(s.out, s.m, s.n, false);
  write(a, 1);
  write(b, 2);
  if (s.beta != 0) {
    write(c, 3);
  }
  const bool isDouble = s.out == ElementType::Double;
  expectDone(lt.create(&handle), "cublasLtCreate");
  expectDone(lt.productCreate(&product, isDouble ? ComputeType::Double : ComputeType::Float,
                              isDouble ? ElementType::Double : ElementType::Float),
             "cublasLtMatmulDescCreate");
  set(ProductAttribute::TransposeA, s.transposeA ? Transpose::Yes : Transpose::No);
  set(ProductAttribute::TransposeB, s.transposeB ? Transpose::Yes : Transpose::No);
  if (s.hasBias) {
    bias = gpu.allocate(s.m * sizeOfElement(s.out));
    for (size_t row = 0; row < s.m; row++) {
      put(bias + row * sizeOfElement(s.out), bytesOfValue(valueAt(4, 0, row, 0), s.out));
    }
    set(ProductAttribute::BiasPointer, bias);
  }
  set(ProductAttribute::Epilogue, s.epilogue());
  aLayout = layoutOf(a);
  bLayout = layoutOf(b);
  cLayout = layoutOf(c);
  dLayout = layoutOf(d);
  expectDone(lt.preferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  prefer(PreferenceAttribute::MostWorkspaceBytes, uint64_t{1} << 20);
}

DeviceMatrices Multiplication::matrices(ElementType type, size_t rows, size_t columns, bool isShared) const {
  DeviceMatrices all{.type = type, .rows = rows, .columns = columns, .columnStride = rows + shape.gap};
  all.batches = shape.batches;
  all.batchStride = shape.batches == 1 || isShared ? 0 : static_cast<int64_t>(all.columnStride * columns + shape.gap);
  all.at = gpu.allocate(all.allocated());
  return all;
}

MatrixLayout Multiplication::layoutOf(const DeviceMatrices& all) const {
  MatrixLayout layout = nullptr;
  expectDone(lt.layoutCreate(&layout, all.type, all.rows, all.columns, static_cast<int64_t>(all.columnStride)),
             "cublasLtMatrixLayoutCreate");
  set(layout, LayoutAttribute::BatchCount, all.batches);
  set(layout, LayoutAttribute::BatchStride, all.batchStride);
  return layout;
}

void Multiplication::put(DevicePointer to, const std::string& bytes) const {
  gpu.expect(gpu.copyToDevice(to, bytes.data(), bytes.size()), "cuMemcpyHtoD");
}

void Multiplication::write(const DeviceMatrices& all, int seed) const {
  for (int32_t batch = 0; batch < (all.batchStride == 0 ? 1 : all.batches); batch++) {
    for (size_t column = 0; column < all.columns; column++) {
      std::string bytes;
      for (size_t row = 0; row < all.rows; row++) {
        bytes += bytesOfValue(valueAt(seed, batch, row, column), all.type);
      }
      put(all.column(batch, column), bytes);
    }
  }
}

Status Multiplication::choose() {
  int found = -1;
  const Status status =
      lt.chooseAlgorithm(handle, product, aLayout, bLayout, cLayout, dLayout, preference, 1, &chosen, &found);
  require(found == (status == Status::Success ? 1 : 0), "the count of algorithms fits the status");
  return status;
}

Status Multiplication::multiply(Stream stream) {
  if (workspace == 0 && chosen.workspaceBytes != 0) {
    workspaceBytes = chosen.workspaceBytes;
    workspace = gpu.allocate(workspaceBytes);
  }
  const bool isDouble = shape.out == ElementType::Double;
  const auto alpha = static_cast<float>(shape.alpha);
  const auto beta = static_cast<float>(shape.beta);
  return lt.multiply(handle, product, isDouble ? static_cast<const void*>(&shape.alpha) : &alpha, hostPointer(a.at),
                     aLayout, hostPointer(b.at), bLayout, isDouble ? static_cast<const void*>(&shape.beta) : &beta,
                     hostPointer(c.at), cLayout, hostPointer(d.at), dLayout, algorithm, hostPointer(workspace),
                     workspaceBytes, stream);
}

void Multiplication::expectMultiplied(Stream stream) {
  expectDone(choose(), "cublasLtMatmulAlgoGetHeuristic");
  expectDone(multiply(stream), "cublasLtMatmul");
}

double Multiplication::expected(int32_t batch, size_t row, size_t column) const {
  const ProductShape& s = shape;
  const int ofA = s.isAShared ? 0 : batch;
  double sum = 0;
  for (size_t i = 0; i < s.k; i++) {
    sum += (s.transposeA ? valueAt(1, ofA, i, row) : valueAt(1, ofA, row, i)) *
           (s.transposeB ? valueAt(2, batch, column, i) : valueAt(2, batch, i, column));
  }
  const double x = s.alpha * sum + (s.beta == 0 ? 0 : s.beta * valueAt(3, batch, row, column)) +
                   (s.hasBias ? valueAt(4, 0, row, 0) : 0);
  return s.activation == Epilogue::Relu   ? std::max(x, 0.0)
         : s.activation == Epilogue::Gelu ? 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)))
                                          : x;
}

void Multiplication::expectRight() const {
  for (int32_t batch = 0; batch < d.batches; batch++) {
    for (size_t column = 0; column < d.columns; column++) {
      std::string bytes(d.rows * sizeOfElement(d.type), '\0');
      gpu.expect(gpu.copyToHost(bytes.data(), d.column(batch, column), bytes.size()), "cuMemcpyDtoH");
      std::string right;
      for (size_t row = 0; row < d.rows; row++) {
        right += bytesOfValue(expected(batch, row, column) + 0.0, d.type);  // + 0.0: a sum of 0 has no sign
      }
      require(bytes == right, "the product is that of plain loops");
    }
  }
}

}  // namespace meshfuse
