// The simulated NCCL: communicators and collectives on the streams of the simulated driver, written from the comments of nccl.h (NCCL 2.28)
// and from NVIDIA's NCCL user guide. The engine matches the calls of the ranks and carries them out.
//
// Errors that these name are returned. What they forbid without naming an error, and what is not simulated, ends the program with a report.
#include <strings.h>

#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "../communicator_protocol.h"
#include "../cuda/client.h"
#include "../cuda/current.h"
#include "communicator.h"
#include "group.h"

namespace simgpu {

namespace {

constexpr uint32_t kTypesOfNccl = 12;      // with two of 8 bits that are not simulated
constexpr uint32_t kOperationsOfNccl = 5;  // with the average, which is not simulated

struct Id {  // ncclUniqueId
  char magic[16] = "simulated nccl";
  uint64_t number = 0;
  char unused[104] = {};
};
static_assert(sizeof(Id) == 128);

struct Config {  // the attributes of ncclConfig_t that every version since 2.18 has
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking, clusterSize, leastBlocks, mostBlocks;
  const char* network;
  int splitShare;
};

// Done, or why the configuration is refused.
int check(const char* name, const void* given, bool& isBlocking) {
  if (given == nullptr) {
    return kDone;
  }
  Config c{};
  std::memcpy(&c.size, given, sizeof c.size);
  if (c.size < sizeof c) {
    return failed(name, kWrongArgument, "the configuration is not initialized");
  }
  std::memcpy(&c, given, sizeof c);
  const auto isIn = [](int value, int least, int most) {
    return value == INT_MIN || (least <= value && value <= most);
  };
  if (c.magic != 0xcafebeef || !isIn(c.blocking, 0, 1) || !isIn(c.clusterSize, 0, 8) || !isIn(c.leastBlocks, 1, 32) ||
      !isIn(c.mostBlocks, 1, 32) || !isIn(c.splitShare, 0, 1) ||
      (c.leastBlocks != INT_MIN && c.mostBlocks != INT_MIN && c.leastBlocks > c.mostBlocks)) {
    return failed(name, kWrongArgument, "an attribute of the configuration has a wrong value");
  }
  if (c.network != nullptr && strcasecmp(c.network, "IB") != 0 && strcasecmp(c.network, "Socket") != 0) {
    endProgram(name, "the network " + std::string(c.network) + " is not simulated");
  }
  if (c.blocking != INT_MIN) {
    isBlocking = c.blocking != 0;
  }
  return kDone;
}

// -- checks of collectives --------------------------------------------------------------------------------------------

struct Buffer {
  const char* what;
  const void* at;
  uint64_t elements;  // 0: not used
};

uint64_t addressOf(const void* at) { return reinterpret_cast<uint64_t>(at); }

// Memory of the device, or pinned memory.
int check(const char* name, const Communicator& communicator, const Buffer& buffer, uint64_t size) {
  if (buffer.elements == 0) {
    return kDone;
  }
  const std::string what = buffer.what;
  if (buffer.at == nullptr) {
    return failed(name, kWrongArgument, what + " is null");
  }
  if (buffer.elements > kDeviceStride / size) {
    endProgram(name, what + " is larger than the memory of a device");
  }
  const uint64_t address = addressOf(buffer.at);
  if (isDeviceAddress(address)) {
    const uint64_t device = (address - kDeviceBase) / kDeviceStride;
    if (device != communicator.device) {
      const std::string why = what + " is in the memory of device " + std::to_string(device) +
                              ", but the communicator is of device " + std::to_string(communicator.device);
      const char* const checks = std::getenv("NCCL_CHECK_POINTERS");
      if (checks == nullptr || std::strcmp(checks, "1") != 0) {
        endProgram(name, why);
      }
      return failed(name, kWrongArgument, why);
    }
  } else if (!isPinned(buffer.at, buffer.elements * size)) {
    endProgram(name, what + " is a pointer of the host to memory that is not pinned; a device pointer is expected");
  }
  if (address % size != 0) {
    endProgram(name, what + " is not aligned to its elements of " + std::to_string(size) + " bytes");
  }
  return kDone;
}

struct Arguments {
  const char* name;
  Collective kind;
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  int type = 0;
  int operation = 0;
  int root = 0;  // or peer
  const void* communicator = nullptr;
  const void* stream = nullptr;
};

bool isReduction(Collective kind) {
  return kind == Collective::AllReduce || kind == Collective::Reduce || kind == Collective::ReduceScatter;
}

int checkEnumerators(const Arguments& a) {
  if (static_cast<uint32_t>(a.type) >= kTypesOfNccl) {
    return failed(a.name, kWrongArgument, "there is no type " + std::to_string(a.type));
  }
  if (static_cast<uint32_t>(a.type) >= kElementTypes) {
    endProgram(a.name, "type " + std::to_string(a.type) + " is not simulated");
  }
  if (isReduction(a.kind)) {
    if (static_cast<uint32_t>(a.operation) >= kOperationsOfNccl) {
      return failed(a.name, kWrongArgument, "there is no operation " + std::to_string(a.operation));
    }
    if (static_cast<uint32_t>(a.operation) >= kReductionOperations) {
      endProgram(a.name, "operation " + std::to_string(a.operation) + " is not simulated");
    }
  }
  return kDone;
}

// What the rank reads and writes: elements of each.
void countElements(const Arguments& a, const Communicator& c, uint64_t& read, uint64_t& written) {
  const auto ranks = static_cast<uint64_t>(c.ranks);
  const bool isRoot = a.root == c.rank;
  using enum Collective;
  read = written = a.count;
  switch (a.kind) {
    case Reduce:
      written = isRoot ? a.count : 0;
      break;
    case Broadcast:
      read = isRoot ? a.count : 0;
      break;
    case AllGather:
      written = a.count * ranks;
      break;
    case ReduceScatter:
      read = a.count * ranks;
      break;
    case Send:
      written = 0;
      break;
    case Receive:
      read = 0;
      break;
    case AllReduce:
    case Split:
      break;
  }
}

// The two buffers of a rank are apart, or lie as the documentation describes it for operations in place.
bool isApartOrInPlace(const Arguments& a, const Communicator& c, const CollectiveCall& call) {
  if (call.inBytes == 0 || call.outBytes == 0) {
    return true;
  }
  const uint64_t rank = static_cast<uint64_t>(c.rank);
  const uint64_t in = addressOf(a.in);
  const uint64_t out = addressOf(a.out);
  const uint64_t inPlace = a.kind == Collective::AllGather       ? in - rank * call.inBytes
                           : a.kind == Collective::ReduceScatter ? in + rank * call.outBytes
                                                                 : in;
  return out == inPlace || in + call.inBytes <= out || out + call.outBytes <= in;
}

int abortCommunicator(const void* communicator) {
  constexpr const char* kName = "ncclCommAbort";
  const CommunicatorPointer c = findCommunicator(kName, communicator);
  if (c == nullptr) {
    return failed(kName, kWrongArgument, "the communicator is null");
  }
  const Use use(kName, c);
  askOf(kName, Call::CommunicatorAbort, *c);
  removeCommunicator(*c);
  return kDone;
}

int collective(const Arguments& a) {
  if (isPlanted("communicator")) {
    abortCommunicator(a.communicator);
  }
  const CommunicatorPointer c = findCommunicator(a.name, a.communicator);
  if (c == nullptr) {
    return failed(a.name, kWrongArgument, "the communicator is null");
  }
  if (c->ranks == 0 && stateOf(a.name, *c, false) != kDone) {  // a part that is not made so far
    return failed(a.name, kWrongUsage, "the communicator is in progress");
  }
  if (const int result = checkEnumerators(a); result != kDone) {
    return result;
  }
  using enum Collective;
  const bool hasRoot = a.kind == Reduce || a.kind == Broadcast || a.kind == Send || a.kind == Receive;
  if (hasRoot && (a.root < 0 || a.root >= c->ranks)) {
    return failed(a.name, kWrongArgument, "there is no rank " + std::to_string(a.root));
  }
  GroupedCall g{.kind = GroupedCall::Kind::Collective, .name = a.name, .communicator = c};
  CollectiveCall& call = g.call;
  call.kind = a.kind;
  call.type = static_cast<uint32_t>(a.type);
  call.operation = static_cast<uint32_t>(a.operation);
  call.root = a.root;
  call.count = a.count;
  const uint64_t size = bytesOfElement(call.type);
  if (a.count > kDeviceStride / size) {
    endProgram(a.name, "the count " + std::to_string(a.count) + " is larger than the memory of a device");
  }
  uint64_t read = 0;
  uint64_t written = 0;
  countElements(a, *c, read, written);
  for (const Buffer& b : {Buffer{"the send buffer", a.in, read}, Buffer{"the receive buffer", a.out, written}}) {
    if (const int result = check(a.name, *c, b, size); result != kDone) {
      return result;
    }
  }
  call.inBytes = read * size;
  call.outBytes = written * size;
  call.in = read == 0 ? 0 : addressOf(a.in);
  call.out = written == 0 ? 0 : addressOf(a.out);
  if (!isApartOrInPlace(a, *c, call)) {
    endProgram(a.name, "the receive buffer overlaps the send buffer, and not as in an operation in place");
  }
  call.stream = streamOf(a.name, a.stream, c->device);
  g.error = isToFail("nccl") ? kSystemFailed : kDone;
  g.failsLater = isToFail("nccl-async");
  return addToGroup(std::move(g));
}

// A call on a communicator, without other arguments that the group knows.
int management(const char* name, GroupedCall::Kind kind, const void* communicator) {
  const CommunicatorPointer c = findCommunicator(name, communicator);
  if (c == nullptr) {
    return failed(name, kWrongArgument, "the communicator is null");
  }
  return addToGroup({.kind = kind, .name = name, .communicator = c});
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  if (version == nullptr) {
    return failed("ncclGetVersion", kWrongArgument);
  }
  const char* const wanted = std::getenv("SIMGPU_NCCL_VERSION");
  constexpr int kNoRealVersion = 29900;
  *version = wanted == nullptr ? kNoRealVersion : std::atoi(wanted);
  return kDone;
}

const char* ncclGetErrorString(int result) {
  switch (result) {
    case kDone:
      return "success";
    case kCudaFailed:
      return "a call of CUDA failed";
    case kSystemFailed:
      return "a call of the system failed";
    case 3:
      return "an error inside of NCCL";
    case kWrongArgument:
      return "an argument has a wrong value";
    case kWrongUsage:
      return "the call is not allowed here";
    case kRemoteFailed:
      return "a network or another process failed";
    case kInProgress:
      return "in progress";
    default:
      return "unknown result";
  }
}

const char* ncclGetLastError(void*) { return lastFailure(); }

// -- communicators ----------------------------------------------------------------------------------------------------

int ncclGetUniqueId(Id* id) {
  if (id == nullptr) {
    return failed("ncclGetUniqueId", kWrongArgument);
  }
  Request r{.call = Call::CommunicatorId, .name = "ncclGetUniqueId"};
  *id = Id{};
  id->number = ask(r).value;
  return kDone;
}

int ncclCommInitRankConfig(void** communicator, int ranks, Id id, int rank, const void* config) {
  constexpr const char* kName = "ncclCommInitRankConfig";
  if (communicator == nullptr || ranks < 1 || rank < 0 || rank >= ranks) {
    return failed(kName, kWrongArgument, "no place for the communicator, or no such rank");
  }
  if (std::memcmp(id.magic, Id{}.magic, sizeof id.magic) != 0) {
    return failed(kName, kWrongArgument, "the id is not one of ncclGetUniqueId");
  }
  GroupedCall g{.kind = GroupedCall::Kind::Init, .name = kName, .made = communicator};
  if (const int result = check(kName, config, g.isBlocking); result != kDone) {
    return result;
  }
  if (current(g.device) != kSuccess) {
    return failed(kName, kCudaFailed, "no context is current");
  }
  *communicator = nullptr;
  g.rank = {.id = id.number, .ranks = ranks, .rank = rank, .isBlocking = g.isBlocking ? 1U : 0U};
  return addToGroup(std::move(g));
}

int ncclCommSplit(void* communicator, int color, int key, void** part, const void* config) {
  constexpr const char* kName = "ncclCommSplit";
  const CommunicatorPointer c = findCommunicator(kName, communicator);
  if (c == nullptr || part == nullptr || color < kNoColor) {
    return failed(kName, kWrongArgument, "a communicator, a place for the part, or no such color");
  }
  GroupedCall g{.kind = GroupedCall::Kind::Split, .name = kName, .communicator = c, .made = part};
  g.isBlocking = c->isBlocking;
  if (const int result = check(kName, config, g.isBlocking); result != kDone) {
    return result;
  }
  *part = nullptr;
  g.split = {.color = color, .key = key, .isBlocking = g.isBlocking ? 1U : 0U};
  return addToGroup(std::move(g));
}

int ncclCommFinalize(void* communicator) {
  return management("ncclCommFinalize", GroupedCall::Kind::Finalize, communicator);
}

int ncclCommDestroy(void* communicator) {
  return management("ncclCommDestroy", GroupedCall::Kind::Destroy, communicator);
}

int ncclCommAbort(void* communicator) { return abortCommunicator(communicator); }

int ncclCommGetAsyncError(void* communicator, int* error) {
  constexpr const char* kName = "ncclCommGetAsyncError";
  const CommunicatorPointer c = findCommunicator(kName, communicator);
  if (c == nullptr || error == nullptr) {
    return failed(kName, kWrongArgument, "the communicator or the place for its state is null");
  }
  *error = stateOf(kName, *c, false);
  failed(kName, *error, "an operation of the communicator failed");
  return kDone;
}

// -- memory -----------------------------------------------------------------------------------------------------------

int ncclMemAlloc(void** memory, size_t bytes) {
  constexpr const char* kName = "ncclMemAlloc";
  if (memory == nullptr) {
    return failed(kName, kWrongArgument);
  }
  Request r{.call = Call::Allocate, .stream = kNow, .bytes = bytes};
  std::strncpy(r.name, kName, sizeof r.name - 1);
  if (current(r.device) != kSuccess || isToFail("allocate") || isToFail("nccl-memory")) {
    return failed(kName, kCudaFailed, "no context is current, or no memory is left");
  }
  const Reply reply = ask(r);
  *memory = reinterpret_cast<void*>(reply.value);
  return failed(kName, reply.status == kSuccess ? kDone : kCudaFailed, "the memory does not suffice");
}

int ncclMemFree(void* memory) {
  constexpr const char* kName = "ncclMemFree";
  Request r{.call = Call::Free, .stream = kNow, .a = addressOf(memory)};
  std::strncpy(r.name, kName, sizeof r.name - 1);
  if (current(r.device) != kSuccess) {
    return failed(kName, kCudaFailed, "no context is current");
  }
  return failed(kName, ask(r).status == kSuccess ? kDone : kWrongArgument, "no memory of ncclMemAlloc");
}

int ncclCommRegister(void* communicator, void* memory, size_t bytes, void** handle) {
  constexpr const char* kName = "ncclCommRegister";
  const CommunicatorPointer c = findCommunicator(kName, communicator);
  if (c == nullptr || memory == nullptr || handle == nullptr) {
    return failed(kName, kWrongArgument, "the communicator, the memory or the place for the handle is null");
  }
  const Use use(kName, c);
  if (isToFail("register")) {
    return failed(kName, kWrongUsage, "the memory cannot be registered");
  }
  Request r{.call = Call::CommunicatorRegister, .device = c->device, .a = c->handle, .b = addressOf(memory)};
  r.bytes = bytes;
  std::strncpy(r.name, kName, sizeof r.name - 1);
  const Reply reply = ask(r);
  *handle = reinterpret_cast<void*>(reply.value);
  return failed(kName, static_cast<int>(reply.more), "the communicator is in progress or has an error");
}

int ncclCommDeregister(void* communicator, void* handle) {
  constexpr const char* kName = "ncclCommDeregister";
  const CommunicatorPointer c = findCommunicator(kName, communicator);
  if (c == nullptr) {
    return failed(kName, kWrongArgument, "the communicator is null");
  }
  const Use use(kName, c);
  if (isPlanted("deregister")) {
    return kDone;
  }
  const Reply reply = askOf(kName, Call::CommunicatorDeregister, *c, addressOf(handle));
  return failed(kName, static_cast<int>(reply.value), "no handle of ncclCommRegister");
}

// -- groups and collectives -------------------------------------------------------------------------------------------

int ncclGroupStart() {
  startGroup();
  return kDone;
}

int ncclGroupEnd() { return endGroup(); }

int ncclAllReduce(const void* in, void* out, size_t count, int type, int operation, void* communicator, void* stream) {
  return collective({.name = "ncclAllReduce",
                     .kind = Collective::AllReduce,
                     .in = in,
                     .out = out,
                     .count = count,
                     .type = type,
                     .operation = operation,
                     .communicator = communicator,
                     .stream = stream});
}

int ncclReduce(const void* in, void* out, size_t count, int type, int operation, int root, void* communicator,
               void* stream) {
  return collective({.name = "ncclReduce",
                     .kind = Collective::Reduce,
                     .in = in,
                     .out = out,
                     .count = count,
                     .type = type,
                     .operation = operation,
                     .root = root,
                     .communicator = communicator,
                     .stream = stream});
}

int ncclBroadcast(const void* in, void* out, size_t count, int type, int root, void* communicator, void* stream) {
  return collective({.name = "ncclBroadcast",
                     .kind = Collective::Broadcast,
                     .in = in,
                     .out = out,
                     .count = count,
                     .type = type,
                     .root = root,
                     .communicator = communicator,
                     .stream = stream});
}

int ncclAllGather(const void* in, void* out, size_t count, int type, void* communicator, void* stream) {
  return collective({.name = "ncclAllGather",
                     .kind = Collective::AllGather,
                     .in = in,
                     .out = out,
                     .count = count,
                     .type = type,
                     .communicator = communicator,
                     .stream = stream});
}

int ncclReduceScatter(const void* in, void* out, size_t count, int type, int operation, void* communicator,
                      void* stream) {
  return collective({.name = "ncclReduceScatter",
                     .kind = Collective::ReduceScatter,
                     .in = in,
                     .out = out,
                     .count = count,
                     .type = type,
                     .operation = operation,
                     .communicator = communicator,
                     .stream = stream});
}

int ncclSend(const void* in, size_t count, int type, int peer, void* communicator, void* stream) {
  return collective({.name = "ncclSend",
                     .kind = Collective::Send,
                     .in = in,
                     .count = count,
                     .type = type,
                     .root = peer,
                     .communicator = communicator,
                     .stream = stream});
}

int ncclRecv(void* out, size_t count, int type, int peer, void* communicator, void* stream) {
  return collective({.name = "ncclRecv",
                     .kind = Collective::Receive,
                     .out = out,
                     .count = count,
                     .type = type,
                     .root = peer,
                     .communicator = communicator,
                     .stream = stream});
}

}  // extern "C"

}  // namespace simgpu
