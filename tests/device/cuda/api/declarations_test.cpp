// Our declarations of CUDA's libraries against the vendor's headers and libraries, where this machine has them.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "base/dynamic_library.h"
#include "device/cuda/api/cublaslt.h"
#include "device/cuda/api/driver.h"
#include "device/cuda/api/nccl.h"
#include "device/cuda/api/nvrtc.h"
#include "device/cuda/api/vendor_library.h"
#include "simgpu/further_calls.h"

namespace meshfuse {
namespace {

// Whether a call can pass one for the other: of one size, and both pointers, or both integers or enums.
template <class Ours, class Theirs>
constexpr bool passesAs =
    sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>&& std::is_class_v<Ours> ==
                                          std::is_class_v<Theirs>&& std::is_floating_point_v<Ours> ==
                                          std::is_floating_point_v<Theirs>;

template <class Ours, class Theirs>
constexpr bool callsAs = false;
template <class R, class... P, class S, class... Q>
requires(sizeof...(P) == sizeof...(Q)) constexpr bool callsAs<R (*)(P...), S (*)(Q...)> = passesAs<R, S> &&
                                                                                          (passesAs<P, Q> && ...);

#define EXPECT_CALLS_AS(member, symbol, result, parameters) \
  static_assert(callsAs<result(*) parameters, decltype(&::symbol)>, #symbol)
#define EXPECT_VALUE(ours, theirs) static_assert(static_cast<int>(ours) == static_cast<int>(theirs), #theirs)

}  // namespace
}  // namespace meshfuse

#if __has_include(<cuda.h>) && __has_include(<nvrtc.h>)
#include <cuda.h>
#include <nvrtc.h>

// The header of CUDA 13 declares a newer version alone.
extern "C" CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*,
                                                      const CUgraphNode**, size_t*);

namespace meshfuse {
namespace {

MESHFUSE_NVRTC_CALLS(EXPECT_CALLS_AS);
MESHFUSE_CUDA_DRIVER_CALLS(EXPECT_CALLS_AS);
MESHFUSE_FURTHER_DRIVER_CALLS(EXPECT_CALLS_AS);

EXPECT_VALUE(nvrtc::Result::Success, NVRTC_SUCCESS);
EXPECT_VALUE(nvrtc::Result::OutOfMemory, NVRTC_ERROR_OUT_OF_MEMORY);
EXPECT_VALUE(nvrtc::Result::InvalidInput, NVRTC_ERROR_INVALID_INPUT);
EXPECT_VALUE(nvrtc::Result::Compilation, NVRTC_ERROR_COMPILATION);
EXPECT_VALUE(cuda::Result::Success, CUDA_SUCCESS);
EXPECT_VALUE(cuda::Result::InvalidValue, CUDA_ERROR_INVALID_VALUE);
EXPECT_VALUE(cuda::Result::OutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
EXPECT_VALUE(cuda::Result::NotInitialized, CUDA_ERROR_NOT_INITIALIZED);
EXPECT_VALUE(cuda::Result::DeviceUnavailable, CUDA_ERROR_DEVICE_UNAVAILABLE);
EXPECT_VALUE(cuda::Result::NoDevice, CUDA_ERROR_NO_DEVICE);
EXPECT_VALUE(cuda::Result::InvalidDevice, CUDA_ERROR_INVALID_DEVICE);
EXPECT_VALUE(cuda::Result::InvalidContext, CUDA_ERROR_INVALID_CONTEXT);
EXPECT_VALUE(cuda::Result::InvalidHandle, CUDA_ERROR_INVALID_HANDLE);
EXPECT_VALUE(cuda::Result::NotFound, CUDA_ERROR_NOT_FOUND);
EXPECT_VALUE(cuda::Result::NotReady, CUDA_ERROR_NOT_READY);
EXPECT_VALUE(cuda::Result::LaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
EXPECT_VALUE(cuda::Result::CaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
EXPECT_VALUE(cuda::Result::CaptureInvalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
EXPECT_VALUE(cuda::Result::CaptureMerge, CUDA_ERROR_STREAM_CAPTURE_MERGE);
EXPECT_VALUE(cuda::Result::CaptureUnmatched, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
EXPECT_VALUE(cuda::Result::CaptureUnjoined, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
EXPECT_VALUE(cuda::Result::CaptureIsolation, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
EXPECT_VALUE(cuda::Result::CaptureImplicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
EXPECT_VALUE(cuda::Result::CapturedEvent, CUDA_ERROR_CAPTURED_EVENT);
EXPECT_VALUE(cuda::Result::CaptureWrongThread, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
EXPECT_VALUE(cuda::Result::GraphUpdateFailed, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
EXPECT_VALUE(cuda::CaptureMode::Global, CU_STREAM_CAPTURE_MODE_GLOBAL);
EXPECT_VALUE(cuda::CaptureMode::ThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
EXPECT_VALUE(cuda::CaptureMode::Relaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
EXPECT_VALUE(cuda::CaptureStatus::None, CU_STREAM_CAPTURE_STATUS_NONE);
EXPECT_VALUE(cuda::CaptureStatus::Active, CU_STREAM_CAPTURE_STATUS_ACTIVE);
EXPECT_VALUE(cuda::CaptureStatus::Invalidated, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
EXPECT_VALUE(cuda::NodeType::Kernel, CU_GRAPH_NODE_TYPE_KERNEL);
EXPECT_VALUE(cuda::NodeType::Copy, CU_GRAPH_NODE_TYPE_MEMCPY);
EXPECT_VALUE(cuda::NodeType::Fill, CU_GRAPH_NODE_TYPE_MEMSET);
EXPECT_VALUE(cuda::NodeType::EventRecord, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
EXPECT_VALUE(cuda::UpdateResult::Success, CU_GRAPH_EXEC_UPDATE_SUCCESS);
EXPECT_VALUE(cuda::UpdateResult::Error, CU_GRAPH_EXEC_UPDATE_ERROR);
EXPECT_VALUE(cuda::UpdateResult::TopologyChanged, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
EXPECT_VALUE(cuda::UpdateResult::NodeTypeChanged, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
EXPECT_VALUE(cuda::UpdateResult::ParametersChanged, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
EXPECT_VALUE(cuda::UpdateResult::NotSupported, CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED);
EXPECT_VALUE(cuda::UpdateResult::FunctionChanged, CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE);
EXPECT_VALUE(cuda::UpdateResult::AttributesChanged, CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED);
EXPECT_VALUE(cuda::PoolAttribute::ReleaseThreshold, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
EXPECT_VALUE(cuda::PoolAttribute::UsedNow, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
EXPECT_VALUE(cuda::PoolAttribute::UsedMost, CU_MEMPOOL_ATTR_USED_MEM_HIGH);
EXPECT_VALUE(cuda::AllocationType::Pinned, CU_MEM_ALLOCATION_TYPE_PINNED);
EXPECT_VALUE(cuda::LocationType::Device, CU_MEM_LOCATION_TYPE_DEVICE);
EXPECT_VALUE(cuda::kNonBlockingStream, CU_STREAM_NON_BLOCKING);
EXPECT_VALUE(cuda::kEventWithoutTiming, CU_EVENT_DISABLE_TIMING);
EXPECT_VALUE(cuda::kExternalRecord, CU_EVENT_RECORD_EXTERNAL);
EXPECT_VALUE(cuda::kPortableMemory, CU_MEMHOSTALLOC_PORTABLE);
EXPECT_VALUE(cuda::PointerAttribute::MemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
EXPECT_VALUE(cuda::PointerAttribute::DeviceOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
EXPECT_VALUE(cuda::MemoryType::Host, CU_MEMORYTYPE_HOST);
EXPECT_VALUE(cuda::MemoryType::Device, CU_MEMORYTYPE_DEVICE);
EXPECT_VALUE(cuda::DeviceAttribute::PciBus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
EXPECT_VALUE(cuda::DeviceAttribute::PciDevice, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
EXPECT_VALUE(cuda::DeviceAttribute::PciDomain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
EXPECT_VALUE(cuda::DeviceAttribute::L2CacheBytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
EXPECT_VALUE(cuda::DeviceAttribute::Processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
EXPECT_VALUE(cuda::DeviceAttribute::MemoryKilohertz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
EXPECT_VALUE(cuda::DeviceAttribute::MemoryBits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
EXPECT_VALUE(cuda::DeviceAttribute::ThreadsOfAProcessor, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
EXPECT_VALUE(cuda::DeviceAttribute::SharedBytesOfAProcessor, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
EXPECT_VALUE(cuda::DeviceAttribute::RegistersOfAProcessor, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
EXPECT_VALUE(cuda::DeviceAttribute::MostSharedBytesOfABlock, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
EXPECT_VALUE(cuda::DeviceAttribute::ComputeCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
EXPECT_VALUE(cuda::DeviceAttribute::ComputeCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
EXPECT_VALUE(cuda::FunctionAttribute::MaxDynamicSharedBytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
EXPECT_VALUE(cuda::LaunchAttributeId::ClusterDimension, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);

static_assert(sizeof(cuda::LaunchAttribute) == sizeof(CUlaunchAttribute));
static_assert(offsetof(cuda::LaunchAttribute, id) == offsetof(CUlaunchAttribute, id));
static_assert(offsetof(cuda::LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
static_assert(sizeof(cuda::LaunchAttribute{}.value.clusterDim) == sizeof(CUlaunchAttribute{}.value.clusterDim));

#define EXPECT_MEMBER(ours, theirs)                                                      \
  static_assert(offsetof(cuda::LaunchConfig, ours) == offsetof(CUlaunchConfig, theirs)); \
  static_assert(passesAs<decltype(cuda::LaunchConfig{}.ours), decltype(CUlaunchConfig{}.theirs)>)
EXPECT_MEMBER(gridX, gridDimX);
EXPECT_MEMBER(gridY, gridDimY);
EXPECT_MEMBER(gridZ, gridDimZ);
EXPECT_MEMBER(blockX, blockDimX);
EXPECT_MEMBER(blockY, blockDimY);
EXPECT_MEMBER(blockZ, blockDimZ);
EXPECT_MEMBER(sharedBytes, sharedMemBytes);
EXPECT_MEMBER(stream, hStream);
EXPECT_MEMBER(attributes, attrs);
EXPECT_MEMBER(attributeCount, numAttrs);
static_assert(sizeof(cuda::LaunchConfig) == sizeof(CUlaunchConfig));

EXPECT_VALUE(cuda::AccessFlags::ReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(sizeof(cuda::PoolAccess) == sizeof(CUmemAccessDesc));
static_assert(offsetof(cuda::PoolAccess, flags) == offsetof(CUmemAccessDesc, flags));
static_assert(sizeof(cuda::PoolProperties) == sizeof(CUmemPoolProps));
static_assert(offsetof(cuda::PoolProperties, handleTypes) == offsetof(CUmemPoolProps, handleTypes));
static_assert(offsetof(cuda::PoolProperties, location) == offsetof(CUmemPoolProps, location));
static_assert(offsetof(cuda::PoolProperties, windowsSecurity) == offsetof(CUmemPoolProps, win32SecurityAttributes));
static_assert(offsetof(cuda::PoolProperties, mostBytes) == offsetof(CUmemPoolProps, maxSize));
static_assert(offsetof(cuda::PoolProperties, usage) == offsetof(CUmemPoolProps, usage));

#define EXPECT_PLACE(ours, own, theirs, its)                          \
  static_assert(offsetof(cuda::ours, own) == offsetof(theirs, its) && \
                passesAs<decltype(cuda::ours{}.own), decltype(theirs{}.its)>)
static_assert(sizeof(cuda::KernelNodeParameters) == sizeof(CUDA_KERNEL_NODE_PARAMS_v2));
EXPECT_PLACE(KernelNodeParameters, function, CUDA_KERNEL_NODE_PARAMS_v2, func);
EXPECT_PLACE(KernelNodeParameters, gridX, CUDA_KERNEL_NODE_PARAMS_v2, gridDimX);
EXPECT_PLACE(KernelNodeParameters, gridZ, CUDA_KERNEL_NODE_PARAMS_v2, gridDimZ);
EXPECT_PLACE(KernelNodeParameters, blockX, CUDA_KERNEL_NODE_PARAMS_v2, blockDimX);
EXPECT_PLACE(KernelNodeParameters, blockZ, CUDA_KERNEL_NODE_PARAMS_v2, blockDimZ);
EXPECT_PLACE(KernelNodeParameters, sharedBytes, CUDA_KERNEL_NODE_PARAMS_v2, sharedMemBytes);
EXPECT_PLACE(KernelNodeParameters, parameters, CUDA_KERNEL_NODE_PARAMS_v2, kernelParams);
EXPECT_PLACE(KernelNodeParameters, extra, CUDA_KERNEL_NODE_PARAMS_v2, extra);
EXPECT_PLACE(KernelNodeParameters, kernel, CUDA_KERNEL_NODE_PARAMS_v2, kern);
EXPECT_PLACE(KernelNodeParameters, context, CUDA_KERNEL_NODE_PARAMS_v2, ctx);
static_assert(sizeof(cuda::CopyNodeParameters) == sizeof(CUDA_MEMCPY3D));
EXPECT_PLACE(CopyNodeParameters, fromX, CUDA_MEMCPY3D, srcXInBytes);
EXPECT_PLACE(CopyNodeParameters, fromY, CUDA_MEMCPY3D, srcY);
EXPECT_PLACE(CopyNodeParameters, fromZ, CUDA_MEMCPY3D, srcZ);
EXPECT_PLACE(CopyNodeParameters, fromLevel, CUDA_MEMCPY3D, srcLOD);
EXPECT_PLACE(CopyNodeParameters, fromType, CUDA_MEMCPY3D, srcMemoryType);
EXPECT_PLACE(CopyNodeParameters, fromHost, CUDA_MEMCPY3D, srcHost);
EXPECT_PLACE(CopyNodeParameters, fromDevice, CUDA_MEMCPY3D, srcDevice);
EXPECT_PLACE(CopyNodeParameters, fromArray, CUDA_MEMCPY3D, srcArray);
EXPECT_PLACE(CopyNodeParameters, fromPitch, CUDA_MEMCPY3D, srcPitch);
EXPECT_PLACE(CopyNodeParameters, fromHeight, CUDA_MEMCPY3D, srcHeight);
EXPECT_PLACE(CopyNodeParameters, toX, CUDA_MEMCPY3D, dstXInBytes);
EXPECT_PLACE(CopyNodeParameters, toY, CUDA_MEMCPY3D, dstY);
EXPECT_PLACE(CopyNodeParameters, toZ, CUDA_MEMCPY3D, dstZ);
EXPECT_PLACE(CopyNodeParameters, toLevel, CUDA_MEMCPY3D, dstLOD);
EXPECT_PLACE(CopyNodeParameters, toType, CUDA_MEMCPY3D, dstMemoryType);
EXPECT_PLACE(CopyNodeParameters, toHost, CUDA_MEMCPY3D, dstHost);
EXPECT_PLACE(CopyNodeParameters, toDevice, CUDA_MEMCPY3D, dstDevice);
EXPECT_PLACE(CopyNodeParameters, toArray, CUDA_MEMCPY3D, dstArray);
EXPECT_PLACE(CopyNodeParameters, toPitch, CUDA_MEMCPY3D, dstPitch);
EXPECT_PLACE(CopyNodeParameters, toHeight, CUDA_MEMCPY3D, dstHeight);
EXPECT_PLACE(CopyNodeParameters, width, CUDA_MEMCPY3D, WidthInBytes);
EXPECT_PLACE(CopyNodeParameters, height, CUDA_MEMCPY3D, Height);
EXPECT_PLACE(CopyNodeParameters, depth, CUDA_MEMCPY3D, Depth);
static_assert(sizeof(cuda::FillNodeParameters) == sizeof(CUDA_MEMSET_NODE_PARAMS));
EXPECT_PLACE(FillNodeParameters, to, CUDA_MEMSET_NODE_PARAMS, dst);
EXPECT_PLACE(FillNodeParameters, pitch, CUDA_MEMSET_NODE_PARAMS, pitch);
EXPECT_PLACE(FillNodeParameters, value, CUDA_MEMSET_NODE_PARAMS, value);
EXPECT_PLACE(FillNodeParameters, elementBytes, CUDA_MEMSET_NODE_PARAMS, elementSize);
EXPECT_PLACE(FillNodeParameters, width, CUDA_MEMSET_NODE_PARAMS, width);
EXPECT_PLACE(FillNodeParameters, height, CUDA_MEMSET_NODE_PARAMS, height);
static_assert(sizeof(cuda::UpdateInfo) == sizeof(CUgraphExecUpdateResultInfo));
EXPECT_PLACE(UpdateInfo, result, CUgraphExecUpdateResultInfo, result);
EXPECT_PLACE(UpdateInfo, node, CUgraphExecUpdateResultInfo, errorNode);
EXPECT_PLACE(UpdateInfo, from, CUgraphExecUpdateResultInfo, errorFromNode);

// The members of a union lie at its start, as clusterDim must.
TEST(CudaDeclarations, AgreeWithTheHeaders) {
  CUlaunchAttribute theirs = {};
  EXPECT_EQ(static_cast<void*>(&theirs.value), static_cast<void*>(&theirs.value.clusterDim));
}

}  // namespace
}  // namespace meshfuse
#endif

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

namespace meshfuse {
namespace {

MESHFUSE_CUBLASLT_CALLS(EXPECT_CALLS_AS);
EXPECT_VALUE(cublaslt::Status::Success, CUBLAS_STATUS_SUCCESS);
EXPECT_VALUE(cublaslt::Status::NotInitialized, CUBLAS_STATUS_NOT_INITIALIZED);
EXPECT_VALUE(cublaslt::Status::AllocationFailed, CUBLAS_STATUS_ALLOC_FAILED);
EXPECT_VALUE(cublaslt::Status::InvalidValue, CUBLAS_STATUS_INVALID_VALUE);
EXPECT_VALUE(cublaslt::Status::ArchitectureMismatch, CUBLAS_STATUS_ARCH_MISMATCH);
EXPECT_VALUE(cublaslt::Status::ExecutionFailed, CUBLAS_STATUS_EXECUTION_FAILED);
EXPECT_VALUE(cublaslt::Status::InternalError, CUBLAS_STATUS_INTERNAL_ERROR);
EXPECT_VALUE(cublaslt::Status::NotSupported, CUBLAS_STATUS_NOT_SUPPORTED);
EXPECT_VALUE(cublaslt::ComputeType::Float, CUBLAS_COMPUTE_32F);
EXPECT_VALUE(cublaslt::ComputeType::Double, CUBLAS_COMPUTE_64F);
EXPECT_VALUE(cublaslt::ElementType::Float, CUDA_R_32F);
EXPECT_VALUE(cublaslt::ElementType::Double, CUDA_R_64F);
EXPECT_VALUE(cublaslt::ElementType::Half, CUDA_R_16F);
EXPECT_VALUE(cublaslt::ElementType::BFloat16, CUDA_R_16BF);
EXPECT_VALUE(cublaslt::ProductAttribute::TransposeA, CUBLASLT_MATMUL_DESC_TRANSA);
EXPECT_VALUE(cublaslt::ProductAttribute::TransposeB, CUBLASLT_MATMUL_DESC_TRANSB);
EXPECT_VALUE(cublaslt::ProductAttribute::Epilogue, CUBLASLT_MATMUL_DESC_EPILOGUE);
EXPECT_VALUE(cublaslt::ProductAttribute::BiasPointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
EXPECT_VALUE(cublaslt::LayoutAttribute::BatchCount, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
EXPECT_VALUE(cublaslt::LayoutAttribute::BatchStride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
EXPECT_VALUE(cublaslt::PreferenceAttribute::MostWorkspaceBytes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
EXPECT_VALUE(cublaslt::PreferenceAttribute::ReductionSchemes, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
EXPECT_VALUE(cublaslt::PreferenceAttribute::AlignmentOfA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
EXPECT_VALUE(cublaslt::PreferenceAttribute::AlignmentOfB, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
EXPECT_VALUE(cublaslt::PreferenceAttribute::AlignmentOfC, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
EXPECT_VALUE(cublaslt::PreferenceAttribute::AlignmentOfD, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
EXPECT_VALUE(cublaslt::ReductionScheme::InComputeType, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
EXPECT_VALUE(cublaslt::Transpose::No, CUBLAS_OP_N);
EXPECT_VALUE(cublaslt::Transpose::Yes, CUBLAS_OP_T);
EXPECT_VALUE(cublaslt::Epilogue::None, CUBLASLT_EPILOGUE_DEFAULT);
EXPECT_VALUE(cublaslt::Epilogue::Bias, CUBLASLT_EPILOGUE_BIAS);
EXPECT_VALUE(cublaslt::Epilogue::Relu, CUBLASLT_EPILOGUE_RELU);
EXPECT_VALUE(cublaslt::Epilogue::ReluBias, CUBLASLT_EPILOGUE_RELU_BIAS);
EXPECT_VALUE(cublaslt::Epilogue::Gelu, CUBLASLT_EPILOGUE_GELU);
EXPECT_VALUE(cublaslt::Epilogue::GeluBias, CUBLASLT_EPILOGUE_GELU_BIAS);

static_assert(sizeof(cublaslt::Algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(cublaslt::HeuristicResult) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(cublaslt::HeuristicResult, workspaceBytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(cublaslt::HeuristicResult, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(offsetof(cublaslt::HeuristicResult, waves) == offsetof(cublasLtMatmulHeuristicResult_t, wavesCount));

}  // namespace
}  // namespace meshfuse
#endif

#if __has_include(<nccl.h>)
#include <nccl.h>

namespace meshfuse {
namespace {

MESHFUSE_NCCL_CALLS(EXPECT_CALLS_AS);
MESHFUSE_FURTHER_NCCL_CALLS(EXPECT_CALLS_AS);
EXPECT_VALUE(nccl::Result::Success, ncclSuccess);
EXPECT_VALUE(nccl::Result::CudaError, ncclUnhandledCudaError);
EXPECT_VALUE(nccl::Result::SystemError, ncclSystemError);
EXPECT_VALUE(nccl::Result::InternalError, ncclInternalError);
EXPECT_VALUE(nccl::Result::InvalidArgument, ncclInvalidArgument);
EXPECT_VALUE(nccl::Result::InvalidUsage, ncclInvalidUsage);
EXPECT_VALUE(nccl::Result::RemoteError, ncclRemoteError);
EXPECT_VALUE(nccl::Result::InProgress, ncclInProgress);
EXPECT_VALUE(nccl::ElementType::Int8, ncclInt8);
EXPECT_VALUE(nccl::ElementType::Uint8, ncclUint8);
EXPECT_VALUE(nccl::ElementType::Int32, ncclInt32);
EXPECT_VALUE(nccl::ElementType::Int64, ncclInt64);
EXPECT_VALUE(nccl::ElementType::Half, ncclFloat16);
EXPECT_VALUE(nccl::ElementType::Float, ncclFloat32);
EXPECT_VALUE(nccl::ElementType::Double, ncclFloat64);
EXPECT_VALUE(nccl::ElementType::BFloat16, ncclBfloat16);
EXPECT_VALUE(nccl::ReduceOperation::Sum, ncclSum);
EXPECT_VALUE(nccl::ReduceOperation::Product, ncclProd);
EXPECT_VALUE(nccl::ReduceOperation::Max, ncclMax);
EXPECT_VALUE(nccl::ReduceOperation::Min, ncclMin);
EXPECT_VALUE(nccl::kNoColor, NCCL_SPLIT_NOCOLOR);

// The attributes of an older version are a prefix of those of a newer one.
static_assert(sizeof(nccl::Config) <= sizeof(ncclConfig_t));
static_assert(offsetof(nccl::Config, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(nccl::Config, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(nccl::Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(nccl::Config, clusterSize) == offsetof(ncclConfig_t, cgaClusterSize));
static_assert(offsetof(nccl::Config, leastBlocks) == offsetof(ncclConfig_t, minCTAs));
static_assert(offsetof(nccl::Config, mostBlocks) == offsetof(ncclConfig_t, maxCTAs));
static_assert(offsetof(nccl::Config, network) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(nccl::Config, splitShare) == offsetof(ncclConfig_t, splitShare));

TEST(NcclDeclarations, TheMagicNumberIsThatOfTheHeader) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const nccl::Config ours;
  EXPECT_EQ(ours.magic, theirs.magic);
  EXPECT_EQ(ours.blocking, theirs.blocking);
  EXPECT_LE(ours.version, theirs.version);
}

}  // namespace
}  // namespace meshfuse
#endif

namespace meshfuse {
namespace {

#define LIST_SYMBOL(member, symbol, result, parameters) symbols.emplace_back(#symbol)

void expectAll(const std::vector<std::string>& names, const std::vector<std::string>& symbols) {
  DynamicLibrary library(names);
  if (!library.loaded()) {
    GTEST_SKIP() << "no library: " << library.reason();
  }
  for (const std::string& symbol : symbols) {
    EXPECT_NE(library.find<void()>(symbol.c_str()), nullptr) << library.reason();
  }
}

TEST(CudaDeclarations, NameFunctionsOfNvrtc) {
  std::vector<std::string> symbols;
  MESHFUSE_NVRTC_CALLS(LIST_SYMBOL);
  expectAll({"libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so"}, symbols);
}

// The toolkit's stub of libcuda has all functions that a driver has.
TEST(CudaDeclarations, NameFunctionsOfTheDriver) {
  std::vector<std::string> symbols;
  MESHFUSE_CUDA_DRIVER_CALLS(LIST_SYMBOL);
  MESHFUSE_FURTHER_DRIVER_CALLS(LIST_SYMBOL);
  expectAll({"libcuda.so.1", "/usr/local/cuda/lib64/stubs/libcuda.so"}, symbols);
}

TEST(CudaDeclarations, NameFunctionsOfCublasLt) {
  std::vector<std::string> symbols;
  MESHFUSE_CUBLASLT_CALLS(LIST_SYMBOL);
  expectAll({"libcublasLt.so.13", "libcublasLt.so.12", "/usr/local/cuda/lib64/libcublasLt.so"}, symbols);
}

TEST(CudaDeclarations, NameFunctionsOfNccl) {
  std::vector<std::string> symbols;
  MESHFUSE_NCCL_CALLS(LIST_SYMBOL);
  MESHFUSE_FURTHER_NCCL_CALLS(LIST_SYMBOL);
  expectAll({"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2"}, symbols);
}

}  // namespace
}  // namespace meshfuse
