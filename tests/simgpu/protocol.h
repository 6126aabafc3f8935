// What the stand-in for libcuda and the engine say to each other over a Unix socket: requests with one reply each.
#pragma once

#include <cstddef>
#include <cstdint>

namespace simgpu {

// Device memory and pinned memory have the same addresses in all processes of a job. Host access to device memory is a fault: clients map
// these addresses without rights.
inline constexpr uint64_t kDeviceBase = 0x7c0000000000;
inline constexpr uint64_t kDeviceStride = uint64_t{1} << 37;  // from the memory of a device to that of the next one
inline constexpr uint64_t kMostDevices = 16;
inline constexpr uint64_t kPinnedBase = 0x7a0000000000;
inline constexpr uint64_t kPinnedStride = uint64_t{1}
                                          << 33;  // from the pinned memory of a process to that of the next one

inline constexpr bool isDeviceAddress(uint64_t a) {
  return a >= kDeviceBase && a < kDeviceBase + kMostDevices * kDeviceStride;
}

enum class Call : uint32_t {
  Hello,        // a: process id; pinned memory as a descriptor with the request. Reply: value the number of the process
  DeviceCount,  // reply: value
  Allocate,     // bytes; in the order of `stream`, or at once if it is kNow. Reply: value the address
  Free,         // a: address; in the order of `stream`, or at once
  Copy,         // a: to, b: from, bytes
  Fill,         // a: to, b: value of each byte, bytes
  LoadFunction,  // payload: name, a zero, the image. Reply: value the function, more the bytes of its parameters
  Launch,        // payload: LaunchShape, parameters
  Product,       // payload: MatrixProduct
  StreamCreate,  // reply: value
  StreamDestroy,
  StreamWait,       // the reply comes when all work of `stream` has ended; a: the host learns nothing from it
  StreamQuery,      // reply: kNotReady if work is left
  StreamWaitEvent,  // a: event
  EventCreate,      // b: 1 if it measures no time
  EventDestroy,     // a
  EventRecord,      // a, b: 1 for an event that a captured record leaves outside of the capture
  EventWait,        // a
  EventQuery,       // a
  EventTime,        // a, b: a later event. Reply: value the nanoseconds between the two
  DeviceWait,       // the reply comes when all work of the process on the device has ended
  MemoryInfo,       // reply: value free, more total bytes
  IsAllocated,      // a: an address of the device. Reply: value 1 if it lies in memory that has not been freed
  HostAccess,       // the host reads pinned memory, a: address, bytes; b: 1 if it writes. Not a call of the program
  // of communicators (communicator_protocol.h); a: the handle of a rank. Reply: value a CommunicatorResult unless it says otherwise
  CommunicatorId,     // reply: value, which no other communicator has
  CommunicatorInit,   // payload: NewRank. Reply: value the handle
  CommunicatorSplit,  // payload: RankSplit. Reply: value, more the handle of the rank in its part; 0: none
  CommunicatorPost,   // payload: CollectiveCalls; b: the number of the call that fails while it runs, from 1; 0: none
  CommunicatorState,  // reply: value, more the rank and, 32 bits higher, the count of ranks
  CommunicatorWait,   // the same, but the reply comes when the state is not kInProgress
  CommunicatorFinalize,  // b: 1 if the rank is to be destroyed. Reply: more 1 if it has begun; if not, the rank was in progress
  CommunicatorRelease,     // the handle is gone
  CommunicatorAbort,       // ends what the rank has posted; the handle is gone
  CommunicatorFail,        // b: a CommunicatorResult that is the state from now on
  CommunicatorRegister,    // b: address, bytes. Reply: value a handle, more the result
  CommunicatorDeregister,  // b: handle
  // of captures and graphs
  CaptureBegin,  // stream, b: ThreadCapture
  CaptureEnd,    // stream. Reply: value the graph
  CaptureInfo,  // stream. Reply: value a CaptureStatus, more the capture; payload: the graph, and nodes that the next one depends on
  CaptureMode,       // b: ThreadCapture of the thread from now on. Reply: value that before
  UnsafeCall,        // a call without other requests that captures may forbid
  GraphNodes,        // a: graph. Payload of the reply: the nodes
  GraphNodeType,     // a: node. Reply: value
  GraphNodeKernel,   // a: node. Payload of the reply: as that of Launch; nothing if a library has launched the kernel
  GraphDestroy,      // a
  GraphInstantiate,  // a: graph. Reply: value the executable graph
  GraphExecDestroy,  // a
  GraphLaunch,       // a: executable graph; in the order of `stream`
  GraphSetKernel,    // a: executable graph, b: node; payload: as that of Launch
  GraphSetCopy,      // a, b; payload: NodeCopy
  GraphSetFill,      // a, b; payload: NodeFill
  GraphUpdate,  // a: executable graph, b: graph. Reply: value a GraphUpdateResult; payload: the node, and its dependency or 0
};

inline constexpr uint64_t kNow = ~uint64_t{0};  // in place of a stream

struct Request {
  Call call = Call::Hello;
  uint32_t device = 0;
  uint64_t stream = 0;
  uint64_t a = 0;
  uint64_t b = 0;
  uint64_t bytes = 0;
  uint64_t payload = 0;       // bytes that follow
  uint64_t stickyLaunch = 0;  // the launch of the process that fails while it runs, from 1; 0: none
  uint64_t findsItLost = 0;   // 1: the device is lost from now on
  char name[32] = {};         // of the function that the program called
};

struct Reply {
  int32_t status = 0;  // of CUDA; kReport: the payload says what the program did wrong, and the client ends it
  uint64_t value = 0;
  uint64_t more = 0;
  uint64_t payload = 0;
};

struct LaunchShape {
  uint64_t function = 0;
  uint32_t blocks = 1;
  uint32_t threads = 1;
  uint32_t cluster = 1;
  uint32_t shared = 0;
  uint64_t handle = 0;  // of the function in the program
};

enum class ThreadCapture : uint64_t { Global, ThreadLocal, Relaxed };           // CUstreamCaptureMode
enum class CaptureStatus : uint64_t { None, Active, Invalidated };              // CUstreamCaptureStatus
enum class NodeType : uint64_t { Kernel = 0, Copy = 1, Fill = 2, Record = 7 };  // CUgraphNodeType
enum class GraphUpdateResult : uint64_t {                                       // CUgraphExecUpdateResult
  Success = 0,
  Error = 1,
  TopologyChanged = 2,
  NodeTypeChanged = 3,
  ParametersChanged = 5,
  FunctionChanged = 7,
};

struct NodeCopy {
  uint64_t to = 0;
  uint64_t from = 0;
  uint64_t bytes = 0;
};

struct NodeFill {
  uint64_t to = 0;
  uint64_t value = 0;  // of each byte
  uint64_t bytes = 0;
};

enum class Element : uint32_t { Float = 0, Double = 1, Half = 2, BFloat16 = 14 };  // numbers of cudaDataType

inline constexpr uint64_t bytesOf(Element e) { return e == Element::Double ? 8 : e == Element::Float ? 4 : 2; }

// Column-major matrices, one a batch. Strides are in elements; a stride of 0 gives the same matrix or column again.
struct Matrices {
  uint64_t address = 0;
  Element type = Element::Float;
  int32_t batches = 1;
  uint64_t rows = 0;
  uint64_t columns = 0;
  int64_t columnStride = 0;
  int64_t batchStride = 0;
};

// A function of each element of a product, before it is rounded.
enum class Activation : uint32_t { None, Relu, Gelu };

// D = activation(alpha op(A) op(B) + beta C, more bias[i] in row i). C is not read if beta is 0.
struct MatrixProduct {
  Matrices a, b, c, d;
  uint32_t transposeA = 0;
  uint32_t transposeB = 0;
  Activation activation = Activation::None;
  uint32_t roundsParts = 0;  // the sum of the first half of the products is rounded to the type of D
  double alpha = 1;
  double beta = 0;
  uint64_t bias = 0;  // 0: none
  uint64_t workspace = 0;
  uint64_t workspaceBytes = 0;   // that the program says it has
  uint64_t workspaceNeeded = 0;  // that the algorithm uses
};

enum Status : int32_t {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeviceUnavailable = 46,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kLaunchFailed = 719,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kCaptureMerge = 902,
  kCaptureUnmatched = 903,
  kCaptureUnjoined = 904,
  kCaptureIsolation = 905,
  kCaptureImplicit = 906,
  kCapturedEvent = 907,
  kCaptureWrongThread = 908,
  kGraphUpdateFailed = 910,
  kReport = -1,
};

inline constexpr int kExitStatus = 86;  // of a program that did something wrong

// An image that the stand-in for NVRTC makes and libcuda loads: the header, then the text.
struct ImageHeader {
  char magic[16] = "simulated cubin";
  uint64_t bytes = 0;  // of the text
  char architecture[16] = {};
};

}  // namespace simgpu
