// Products of the simulated cuBLASLt for tests.
//
//   Multiplication x(gpu, {.m = 3, .n = 4, .k = 5});  // operands are allocated and written
//   x.expectMultiplied(stream);
//   gpu.expect(gpu.streamSynchronize(stream), "synchronize");
//   x.expectRight();
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "device/cuda/api/cublaslt.h"
#include "simgpu/simulated.h"

namespace meshfuse {

struct CublasLtSimulated : VendorLibrary {
  CublasLtSimulated();
  MESHFUSE_CUBLASLT_CALLS(MESHFUSE_VENDOR_MEMBER);
};

// Ends the process with status 1 unless the call succeeded.
void expectDone(cublaslt::Status status, const char* call);

struct ProductShape {
  size_t m = 3, n = 4, k = 5;
  cublaslt::ElementType in = cublaslt::ElementType::Float;
  cublaslt::ElementType out = cublaslt::ElementType::Float;
  bool transposeA = false;
  bool transposeB = false;
  bool hasBias = false;
  cublaslt::Epilogue activation = cublaslt::Epilogue::None;  // Relu, Gelu
  double alpha = 1;
  double beta = 0;
  int32_t batches = 1;
  bool isAShared = false;  // by all batches
  bool isInPlace = false;  // C is D
  size_t gap = 0;          // elements between columns, and between batches

  cublaslt::Epilogue epilogue() const;  // bias and activation
};

inline constexpr ProductShape kLargeProduct{.m = 12, .n = 11, .k = 10};  // wants workspace

// Column-major on the device. The elements of gaps are never written.
struct DeviceMatrices {
  cublaslt::ElementType type = cublaslt::ElementType::Float;
  size_t rows = 0;
  size_t columns = 0;
  size_t columnStride = 0;
  int32_t batches = 1;
  int64_t batchStride = 0;
  cuda::DevicePointer at = 0;

  size_t allocated() const;  // bytes
  cuda::DevicePointer column(int32_t batch, size_t column) const;
};

// The bytes of a value that the type has without rounding.
std::string bytesOfValue(double value, cublaslt::ElementType type);

// A product; what a test does wrong it changes in the members.
struct Multiplication {
  Multiplication(Simulated& simulated, const ProductShape& s);

  // Of bytes, and of all elements of matrices: multiples of 1/2 that follow from the seed.
  void put(cuda::DevicePointer to, const std::string& bytes) const;
  void write(const DeviceMatrices& all, int seed) const;

  template <class Value>
  void set(cublaslt::ProductAttribute attribute, Value value) const {
    expectDone(lt.productSet(product, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }
  template <class Value>
  void set(cublaslt::MatrixLayout layout, cublaslt::LayoutAttribute attribute, Value value) const {
    expectDone(lt.layoutSet(layout, attribute, &value, sizeof value), "cublasLtMatrixLayoutSetAttribute");
  }
  template <class Value>
  void prefer(cublaslt::PreferenceAttribute attribute, Value value) const {
    expectDone(lt.preferenceSet(preference, attribute, &value, sizeof value), "cublasLtMatmulPreferenceSetAttribute");
  }

  cublaslt::Status choose();
  // With the workspace that the algorithm wants, unless there is one.
  cublaslt::Status multiply(cuda::Stream stream);
  void expectMultiplied(cuda::Stream stream);
  // D is what plain loops give.
  void expectRight() const;

  Simulated& gpu;
  ProductShape shape;
  CublasLtSimulated lt;
  DeviceMatrices a, b, c, d;
  cuda::DevicePointer bias = 0;
  cuda::DevicePointer workspace = 0;
  size_t workspaceBytes = 0;
  cublaslt::Handle handle = nullptr;
  cublaslt::Product product = nullptr;
  cublaslt::MatrixLayout aLayout = nullptr, bLayout = nullptr, cLayout = nullptr, dLayout = nullptr;
  cublaslt::Preference preference = nullptr;
  cublaslt::HeuristicResult chosen{};
  const cublaslt::Algorithm* algorithm = &chosen.algorithm;

 private:
  DeviceMatrices matrices(cublaslt::ElementType type, size_t rows, size_t columns, bool isShared) const;
  cublaslt::MatrixLayout layoutOf(const DeviceMatrices& all) const;
  double expected(int32_t batch, size_t row, size_t column) const;
};

}  // namespace meshfuse
