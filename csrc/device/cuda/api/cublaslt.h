// The part of cuBLASLt that meshfuse calls, declared as versions 12 and 13 export it. tests/device/cuda/api compares the declarations with
// cublasLt.h and with libcublasLt.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda/api/driver.h"

namespace meshfuse::cublaslt {

enum class Status : int {
  Success = 0,
  NotInitialized = 1,
  AllocationFailed = 3,
  InvalidValue = 7,
  ArchitectureMismatch = 8,
  ExecutionFailed = 13,
  InternalError = 14,
  NotSupported = 15
};
enum class ComputeType : int { Float = 68, Double = 70 };  // the type of products and sums
enum class ElementType : int { Float = 0, Double = 1, Half = 2, BFloat16 = 14 };
enum class ProductAttribute : int { TransposeA = 3, TransposeB = 4, Epilogue = 7, BiasPointer = 8 };
enum class LayoutAttribute : int { BatchCount = 5, BatchStride = 6 };  // int32_t; int64_t, in elements
enum class PreferenceAttribute : int {
  MostWorkspaceBytes = 1,  // uint64_t
  ReductionSchemes = 3,    // uint32_t, a set of ReductionScheme
  AlignmentOfA = 5,
  AlignmentOfB = 6,
  AlignmentOfC = 7,
  AlignmentOfD = 8  // uint32_t, in bytes
};
enum class ReductionScheme : uint32_t { InComputeType = 2 };  // how parts of a sum are added up
enum class Transpose : int32_t { No = 0, Yes = 1 };
enum class Epilogue : uint32_t { None = 1, Relu = 2, Bias = 4, ReluBias = 6, Gelu = 32, GeluBias = 36 };

using Handle = struct HandleObject*;
using Product = struct ProductObject*;
using MatrixLayout = struct MatrixLayoutObject*;
using Preference = struct PreferenceObject*;

struct Algorithm {
  uint64_t data[8];
};

struct HeuristicResult {
  Algorithm algorithm;
  size_t workspaceBytes;
  Status state;
  float waves;
  int reserved[4];
};

// call(member, exported function, result, parameters). Matrices are in column-major order.
#define MESHFUSE_CUBLASLT_CALLS(call)                                                                                \
  call(version, cublasLtGetVersion, size_t, ());                                                                     \
  call(statusString, cublasLtGetStatusString, const char*, (cublaslt::Status status));                               \
  call(create, cublasLtCreate, cublaslt::Status, (cublaslt::Handle * handle));                                       \
  call(destroy, cublasLtDestroy, cublaslt::Status, (cublaslt::Handle handle));                                       \
  call(productCreate, cublasLtMatmulDescCreate, cublaslt::Status,                                                    \
       (cublaslt::Product * product, cublaslt::ComputeType compute, cublaslt::ElementType scale));                   \
  call(productDestroy, cublasLtMatmulDescDestroy, cublaslt::Status, (cublaslt::Product product));                    \
  call(productSet, cublasLtMatmulDescSetAttribute, cublaslt::Status,                                                 \
       (cublaslt::Product product, cublaslt::ProductAttribute attribute, const void* value, size_t bytes));          \
  call(layoutCreate, cublasLtMatrixLayoutCreate, cublaslt::Status,                                                   \
       (cublaslt::MatrixLayout * layout, cublaslt::ElementType type, uint64_t rows, uint64_t columns,                \
        int64_t columnStride));                                                                                      \
  call(layoutDestroy, cublasLtMatrixLayoutDestroy, cublaslt::Status, (cublaslt::MatrixLayout layout));               \
  call(layoutSet, cublasLtMatrixLayoutSetAttribute, cublaslt::Status,                                                \
       (cublaslt::MatrixLayout layout, cublaslt::LayoutAttribute attribute, const void* value, size_t bytes));       \
  call(preferenceCreate, cublasLtMatmulPreferenceCreate, cublaslt::Status, (cublaslt::Preference * preference));     \
  call(preferenceDestroy, cublasLtMatmulPreferenceDestroy, cublaslt::Status, (cublaslt::Preference preference));     \
  call(preferenceSet, cublasLtMatmulPreferenceSetAttribute, cublaslt::Status,                                        \
       (cublaslt::Preference preference, cublaslt::PreferenceAttribute attribute, const void* value, size_t bytes)); \
  call(chooseAlgorithm, cublasLtMatmulAlgoGetHeuristic, cublaslt::Status,                                            \
       (cublaslt::Handle handle, cublaslt::Product product, cublaslt::MatrixLayout a, cublaslt::MatrixLayout b,      \
        cublaslt::MatrixLayout c, cublaslt::MatrixLayout d, cublaslt::Preference preference, int asked,              \
        cublaslt::HeuristicResult* results, int* found));                                                            \
  call(checkAlgorithm, cublasLtMatmulAlgoCheck, cublaslt::Status,                                                    \
       (cublaslt::Handle handle, cublaslt::Product product, cublaslt::MatrixLayout a, cublaslt::MatrixLayout b,      \
        cublaslt::MatrixLayout c, cublaslt::MatrixLayout d, const cublaslt::Algorithm* algorithm,                    \
        cublaslt::HeuristicResult* result));                                                                         \
  call(multiply, cublasLtMatmul, cublaslt::Status,                                                                   \
       (cublaslt::Handle handle, cublaslt::Product product, const void* alpha, const void* a,                        \
        cublaslt::MatrixLayout aLayout, const void* b, cublaslt::MatrixLayout bLayout, const void* beta,             \
        const void* c, cublaslt::MatrixLayout cLayout, void* d, cublaslt::MatrixLayout dLayout,                      \
        const cublaslt::Algorithm* algorithm, void* workspace, size_t workspaceBytes, cuda::Stream stream))

}  // namespace meshfuse::cublaslt
