#include "device/cuda/nccl/nccl_communicator.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/exact.h"
#include "base/hash.h"
#include "base/ranges.h"
#include "base/rounding.h"
#include "device/cuda/driver/library.h"
#include "device/cuda/driver/stream_queue.h"
#include "device/cuda/nccl/library.h"
#include "device/device_failure.h"
#include "multidevice/transport/call.h"
#include "multidevice/transport/host/bootstrap.h"

namespace meshfuse {

namespace {

using namespace std::chrono_literals;

// How long a rank looks for the end itself, and how often. Then the other communicator does, which also looks for failures.
constexpr auto kSoon = 20ms;
constexpr auto kPause = 20us;
// How long a rank waits for its peers to end; a peer that has failed does not come.
constexpr auto kLastWait = 2s;
// The most calls under way on a stream whose end the host has not looked for.
constexpr int64_t kMostUnderWay = 4096;
// The operands of an all-reduce that each rank combines whole; of larger ones it combines a part, and gathers the others.
constexpr int64_t kMostCombinedWhole = 64 << 10;

// The types whose reductions are those of meshfuse: NCCL may round parts of 16-bit sums.
std::optional<nccl::ElementType> reducedType(DataType type) {
  switch (type) {
    case DataType::Char:
      return nccl::ElementType::Int8;
    case DataType::Byte:
      return nccl::ElementType::Uint8;
    case DataType::Int32:
      return nccl::ElementType::Int32;
    case DataType::Int:
      return nccl::ElementType::Int64;
    case DataType::Float:
      return nccl::ElementType::Float;
    case DataType::Double:
      return nccl::ElementType::Double;
    default:
      return std::nullopt;
  }
}

// Maxima and minima of floating numbers are left out: NCCL does not say what it does with NaN.
std::optional<nccl::ReduceOperation> operationOf(ReduceOp op, DataType type) {
  switch (op) {
    case ReduceOp::Sum:
      return nccl::ReduceOperation::Sum;
    case ReduceOp::Prod:
      return nccl::ReduceOperation::Product;
    case ReduceOp::Max:
      return isFloatingPoint(type) ? std::nullopt : std::optional(nccl::ReduceOperation::Max);
    case ReduceOp::Min:
      return isFloatingPoint(type) ? std::nullopt : std::optional(nccl::ReduceOperation::Min);
    default:
      return std::nullopt;
  }
}

// Who carries out a collective; the same on all ranks.
enum class Carrier : uint8_t { Nccl, Kernel, Host };

Carrier carrierOf(const CollectiveOfElements& call) {
  switch (call.kind) {
    case Collective::AllGather:
    case Collective::AllToAll:
    case Collective::Broadcast:
    case Collective::Transfer:
      return Carrier::Nccl;
    case Collective::AllReduce:
    case Collective::ReduceScatter:
      return reducedType(call.type) && operationOf(call.op, call.type) ? Carrier::Nccl : Carrier::Kernel;
    default:
      return Carrier::Host;
  }
}

// The elements of a reduction's operand that each rank combines: those of its own result, or of an all-reduce all, or parts of whole vectors.
struct Part {
  int64_t begin = 0;
  int64_t count = 0;
};

// The most elements of an all-reduce that a rank combines.
int64_t combinedOf(int64_t total, int64_t elementBytes, int64_t ranks) {
  const int64_t part = roundUp(divideUp(total, ranks), kOperandAlignment / elementBytes);
  return total * elementBytes <= kMostCombinedWhole ? total : std::min(total, part);
}

std::vector<Part> partsOf(const CollectiveCall& call) {
  const int64_t total = call.operand.total();
  const int64_t most = combinedOf(total, call.elementBytes(), call.ranks());
  return mapped(indices(call.team.ranks), [&](int64_t i) -> Part {
    if (call.record.kind == Collective::ReduceScatter) {
      return {call.operand.begin(i), call.operand.of(i)};
    }
    const int64_t begin = most == total ? 0 : std::min(total, i * most);
    return {begin, std::min(most, total - begin)};
  });
}

// Of two ranks' operands, in elements.
int64_t distanceOf(DataType type, int64_t elements) {
  return roundUp(elements, kOperandAlignment / dataTypeSize(type));
}

// Bytes that arrive from other ranks; of an all-reduce as if each rank combined one part.
int64_t receivedBytes(const CollectiveCall& call) {
  const int64_t all = call.result.total();
  switch (call.record.kind) {
    case Collective::AllReduce: {
      const int64_t part = all / call.ranks() + (call.position < all % call.ranks() ? 1 : 0);
      return receivedInAllReduce(all, part, call.ranks()) * call.elementBytes();
    }
    case Collective::ReduceScatter:
      return amountReceived(call.record.kind, all, all, call.ranks()) * call.elementBytes();
    case Collective::Broadcast:
      return call.record.root == call.position ? 0 : all * call.elementBytes();
    default:
      return (all - call.result.of(call.position)) * call.elementBytes();
  }
}

std::string describe(const CollectiveCall& call) { return describe(stamped(call.record, call.team, 0)); }

void succeed(nccl::Result status, std::string_view function, const CollectiveCall& call) {
  if (hasFailed(status)) [[unlikely]] {
    throwNcclError(status, function, describe(call));
  }
}

// What the ranks compare before they use NCCL.
struct RankFacts {
  int64_t gpu = 0;      // a hash that is the same for ranks with the same GPU
  int64_t version = 0;  // of NCCL; 0: none
};

int64_t gpuHash(const CudaContext& context) {
  return static_cast<int64_t>(hash64(bootIdentity() + ' ' + context.place()));
}

}  // namespace

std::optional<std::string> NcclCommunicator::refuse(const CollectiveOfElements& call) {
  switch (carrierOf(call)) {
    case Carrier::Nccl:
    case Carrier::Kernel:
      return std::nullopt;
    case Carrier::Host:
      return fmt::format("NCCL has no {}: it goes through host memory", name(call.kind));
  }
  return std::nullopt;
}

// -- recordings -------------------------------------------------------------------------------------------------------

class NcclCommunicator::Recorded final : public Recording {
 public:
  explicit Recorded(NcclCommunicator& of) : of_(of) { of_.recorded_.push_back(this); }
  ~Recorded() override {
    std::erase(of_.recorded_, this);
    std::erase_if(of_.underWay_, [&](const Call* call) {
      return std::ranges::find(calls, call, &std::unique_ptr<Call>::get) != calls.end();
    });
  }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

  void relaunch(int64_t number, const Launch& launch) override { work->relaunch(number, launch); }
  void end() noexcept override {
    if (work != nullptr) {
      work->end();
    }
  }

  std::unique_ptr<Recording> work;  // of the queue; null while it is recorded
  std::vector<std::unique_ptr<Call>> calls;
  TransferCounters counters;  // of one replay

 private:
  NcclCommunicator& of_;
};

std::unique_ptr<Recording> NcclCommunicator::capture(Queue& queue, const std::function<void()>& work) {
  auto made = std::make_unique<Recorded>(*this);
  recording_ = made.get();
  try {
    made->work = queue.capture(work, queue_);
  } catch (...) {
    recording_ = nullptr;
    throw;
  }
  recording_ = nullptr;
  return made->work != nullptr ? std::move(made) : nullptr;
}

void NcclCommunicator::replay(Queue& queue, Recording& recording) {
  auto& own = static_cast<Recorded&>(recording);
  queue.replay(*own.work);
  for (const std::unique_ptr<Call>& call : own.calls) {
    underWay_.push_back(call.get());
  }
  over_.addCounters(own.counters);
}

// -- communicators ----------------------------------------------------------------------------------------------------

std::shared_ptr<DeviceCommunicator> NcclCommunicator::make(Communicator& over, Device& device,
                                                           const CudaContext& context, CudaMemory& memory,
                                                           LaunchOnStream launch) {
  const Team& team = over.world();
  if (team.ranks.size() < 2) {
    return nullptr;
  }
  const RankFacts own{gpuHash(context), ncclLibrary().number};
  std::vector<RankFacts> all(team.ranks.size());
  over.uncounted([&] { over.allGather(team, &own, all.data(), sizeof own / sizeof(int64_t), DataType::Int); });
  std::vector<int64_t> gpus = mapped(all, &RankFacts::gpu);
  std::ranges::sort(gpus);
  if (std::ranges::adjacent_find(gpus) != gpus.end() ||
      std::ranges::all_of(
          all, [](int64_t version) { return version == 0; }, &RankFacts::version)) {
    return nullptr;
  }
  deviceCheck(std::ranges::all_of(
                  all, [&](int64_t version) { return version == all[0].version; }, &RankFacts::version),
              "[nccl] the ranks {} have the versions {} of NCCL, 0 for none; install one version for all of them: the "
              "library of this rank is {}",
              fmt::join(team.ranks, ", "),
              joined(all, ", ", [](const RankFacts& f) { return std::to_string(f.version); }),
              ncclLibrary().usable() ? ncclLibrary().name() : ncclLibrary().reason());
  const CurrentContext current(context);
  std::shared_ptr<NcclCommunicator> made(new NcclCommunicator(over, device, context, memory, launch));
  (void)made->of(team);
  return made;
}

NcclCommunicator::NcclCommunicator(Communicator& over, Device& device, const CudaContext& context, CudaMemory& memory,
                                   LaunchOnStream launch)
    : DeviceCommunicator(over, device),
      context_(context),
      staged_(over, device),
      combiner_(device, launch),
      registered_(std::make_shared<RegisteredMemory>(context, memory)),
      own_(context),
      stream_(own_.get()),
      uncaught_(std::uncaught_exceptions()),
      reclaims_(memory.reclaimWith([this] { reclaim(); })) {}

NcclCommunicator::~NcclCommunicator() {
  if (std::uncaught_exceptions() == uncaught_) {  // else this rank has failed, and its peers do not end in order
    close();
  }
  end();
}

void NcclCommunicator::close() noexcept {
  const NcclLibrary& n = ncclLibrary();
  const auto limit = std::chrono::steady_clock::now() + kLastWait;
  try {
    const CurrentContext current(context_);
    registered_->close();
    for (auto& [ranks, communicator] : teams_) {
      nccl::Result state = nccl::Result::InProgress;
      if (communicator == nullptr || n.finalize(communicator) > nccl::Result::InProgress) {
        continue;
      }
      while (n.communicatorError(communicator, &state) == nccl::Result::Success && state == nccl::Result::InProgress &&
             std::chrono::steady_clock::now() < limit) {
        std::this_thread::sleep_for(kPause);
      }
      if (state == nccl::Result::Success && n.destroy(communicator) == nccl::Result::Success) {
        communicator = nullptr;
      }
    }
  } catch (const DeviceError&) {  // the device is gone, and the communicators with it
  }
}

void NcclCommunicator::end() noexcept {
  for (Recorded* const recording : recorded_) {
    recording->end();  // a communicator may wait for the end of graphs with its calls
  }
  try {
    const CurrentContext current(context_);
    for (auto& [ranks, communicator] : teams_) {
      if (communicator != nullptr) {
        ncclLibrary().abort(communicator);
      }
      communicator = nullptr;
    }
  } catch (const DeviceError&) {  // the device is gone, and the communicators with it
  }
  registered_->forget();
}

void NcclCommunicator::giveUp() noexcept {
  end();
  forgetCalls();
}

void NcclCommunicator::forgetCalls() {
  underWay_.clear();
  freeCalls_ = std::ssize(calls_);
}

void NcclCommunicator::use(Queue* queue) {
  caller_ = std::this_thread::get_id();
  if (queue != nullptr && !underWay_.empty()) {
    const CurrentContext current(context_);
    if (queue != lastQueue_ || std::ssize(underWay_) >= kMostUnderWay ||
        underWay_.back()->ended.query() != cuda::Result::NotReady) {
      finish();
    }
  }
  lastQueue_ = queue != nullptr ? queue : lastQueue_;
  queue_ = queue;
  stream_ = queue != nullptr ? static_cast<StreamQueue&>(*queue).stream() : own_.get();
}

int64_t NcclCommunicator::combinedBytes(const CollectiveOfElements& call, int64_t elements, int64_t ranks) {
  if (carrierOf(call) != Carrier::Kernel) {
    return 0;
  }
  const int64_t bytes = dataTypeSize(call.type);
  const int64_t own = call.kind == Collective::AllReduce ? combinedOf(elements, bytes, ranks) : elements;
  return mulExact(ranks, distanceOf(call.type, own) * bytes);
}

void NcclCommunicator::prepare(const Team& team, const CollectiveOfElements& call) {
  finish();
  const CurrentContext current(context_);
  (void)of(team);
  if (carrierOf(call) == Carrier::Kernel) {
    prepare({std::ssize(team.ranks), call.type, call.op, kOperandAlignment});
  }
}

std::shared_ptr<void> NcclCommunicator::allocateArena(int64_t bytes) {
  finish();
  std::shared_ptr<void> arena = ncclRegistersMemory() ? registered_->allocate(bytes) : nullptr;
  return arena != nullptr ? arena : device_.allocate(bytes);
}

void NcclCommunicator::reclaim() noexcept {
  const auto areCallsOver = [this] {
    return underWay_.empty() || underWay_.back()->ended.query() == cuda::Result::Success;
  };
  if (caller_.load() == std::this_thread::get_id() && recording_ == nullptr && areCallsOver()) {
    registered_->freeGivenBack();
  }
}

// Not messages, whose sender and receiver may have memory of different kinds: an all-to-all is made of them.
bool NcclCommunicator::usesRegistered(const CollectiveOfElements& call) const {
  return ncclRegistersMemory() && carrierOf(call) == Carrier::Nccl && call.kind != Collective::AllToAll &&
         call.kind != Collective::Transfer;
}

bool NcclCommunicator::enroll(void* arena, std::span<const Team> teams) {
  finish();
  const CurrentContext current(context_);
  return std::ranges::all_of(teams, [&](const Team& team) { return registered_->enroll(arena, of(team)); });
}

void NcclCommunicator::withdraw(void* arena) {
  finish();
  const CurrentContext current(context_);
  registered_->withdraw(arena);
}

void NcclCommunicator::prepare(const Combination& combination) {
  if (!combiner_.isReady(combination)) {
    invariant(recording_ == nullptr, "[nccl] a {} of {} is recorded that was not prepared", name(combination.op),
              name(combination.type));
    finish();  // what follows may wait for the device
    orEnd([&] { combiner_.prepare(combination); });
  }
}

void NcclCommunicator::setStep(int64_t step, std::string_view what) {
  step_ = step;
  what_ = what;
  over_.setStep(step, what);
}

template <class Body>
void NcclCommunicator::orEnd(const Body& body) {
  try {
    body();
  } catch (const std::exception& why) {
    const bool hasIssuedSteps = step_ >= 0;
    over_.abort(hasIssuedSteps ? explained(why) : why.what());
    end();  // else the stream would wait for its peers for ever
    throw;
  }
}

void NcclCommunicator::takeCounters() {
  if (recording_ == nullptr) {
    over_.addCounters(counters_);
  } else {
    recording_->counters += counters_;
  }
  counters_ = {};
}

NcclCommunicator::Call& NcclCommunicator::nextCall() {
  if (recording_ != nullptr) {
    return *recording_->calls.emplace_back(std::make_unique<Call>(context_));
  }
  if (freeCalls_ == 0) {
    calls_.push_back(std::make_unique<Call>(context_));
    freeCalls_++;
  }
  return *underWay_.emplace_back(calls_[std::ssize(calls_) - freeCalls_--].get());
}

nccl::Communicator NcclCommunicator::of(const Team& team) {
  nccl::Communicator& communicator = teams_[team.ranks];
  if (communicator == nullptr) {
    nccl::UniqueId id = {};
    const int64_t position = positionInTeam(team, rank(), size(), Collective::Broadcast);
    if (position == 0) {
      succeed(ncclLibrary().uniqueId(&id), "ncclGetUniqueId", "the ranks {}", fmt::join(team.ranks, ", "));
    }
    over_.uncounted([&] { over_.broadcast(team, &id, sizeof id, DataType::Char, 0); });
    nccl::Config config{.blocking = 0};
    succeed(ncclLibrary().create(&communicator, static_cast<int>(team.ranks.size()), id, static_cast<int>(position),
                                 &config),
            "ncclCommInitRankConfig", "the ranks {}", fmt::join(team.ranks, ", "));
    wait(team, communicator, "the start of NCCL", [] { return true; });
  }
  return communicator;
}

void NcclCommunicator::run(const CollectiveCall& call) {
  const bool isWorkOfQueue = stream_ != own_.get();
  const Carrier carrier = carrierOf({call.record.kind, call.record.type, call.record.op});
  if (carrier == Carrier::Host) {
    finish();
    staged_.setProgram(program());
    staged_.run(call);  // reads the operand after the work of all queues
    return staged_.setProgram(0);
  }
  if (!isWorkOfQueue) {
    finish();
    over_.setProgram(program());
    over_.uncounted([&] { over_.barrier(call.team); });
    over_.setProgram(0);
  }
  const CurrentContext current(context_);
  const nccl::Communicator communicator = of(call.team);
  if (carrier == Carrier::Kernel) {
    combine(call, communicator);
  } else {
    post(call.team, communicator, name(call.record.kind), [&] { enqueue(call, communicator); });
  }
  count(call.record.kind, receivedBytes(call));
  takeCounters();
}

void NcclCommunicator::combine(const CollectiveCall& call, nccl::Communicator communicator) {
  const NcclLibrary& n = ncclLibrary();
  const std::vector<Part> parts = partsOf(call);
  const Part own = parts[call.position];
  const int64_t bytes = call.elementBytes();
  const bool isAllReduce = call.record.kind == Collective::AllReduce;
  std::byte* const result = isAllReduce ? call.out + own.begin * bytes : call.out;
  const bool isAligned = std::bit_cast<uint64_t>(result) % kOperandAlignment == 0;
  const Combination combination{call.ranks(), call.record.type, call.record.op, isAligned ? kOperandAlignment : 1};
  const int64_t distance = distanceOf(combination.type, own.count);
  std::byte* const operands = std::exchange(lent_, nullptr);
  invariant(own.count == 0 || operands != nullptr, "[nccl] {} has no memory for its operands", describe(call));
  if (own.count > 0) {
    prepare(combination);
  }
  const auto done = [&](nccl::Result status, std::string_view function) { succeed(status, function, call); };
  constexpr auto kByte = nccl::ElementType::Int8;
  post(call.team, communicator, name(call.record.kind), [&] {
    for (const int64_t i : indices(call.team.ranks)) {
      const auto peer = static_cast<int>(i);
      if (const Part theirs = parts[i]; theirs.count > 0) {
        done(n.send(call.in + theirs.begin * bytes, theirs.count * bytes, kByte, peer, communicator, stream_),
             "ncclSend");
      }
      if (own.count > 0) {
        done(n.receive(operands + i * distance * bytes, own.count * bytes, kByte, peer, communicator, stream_),
             "ncclRecv");
      }
    }
  });
  post(call.team, communicator, name(call.record.kind), [&] {
    if (own.count > 0) {
      combiner_.combine(combination, operands, own.count, distance, result, stream_);
    }
    for (const int64_t i : indices(call.team.ranks)) {
      const Part part = parts[i];
      if (isAllReduce && part.count > 0 && part.count < call.result.total()) {
        std::byte* const block = call.out + part.begin * bytes;
        done(n.broadcast(block, block, part.count * bytes, kByte, static_cast<int>(i), communicator, stream_),
             "ncclBroadcast");
      }
    }
  });
}

void NcclCommunicator::enqueue(const CollectiveCall& call, nccl::Communicator communicator) {
  const NcclLibrary& n = ncclLibrary();
  const cuda::Stream stream = stream_;
  const int64_t bytes = call.elementBytes();
  const auto done = [&](nccl::Result status, std::string_view function) { succeed(status, function, call); };
  constexpr auto kByte = nccl::ElementType::Int8;
  switch (call.record.kind) {
    case Collective::AllGather:
      if (!call.record.ragged) {
        return done(n.allGather(call.in, call.out, call.operand.total() * bytes, kByte, communicator, stream),
                    "ncclAllGather");
      }
      for (const int64_t i : indices(call.team.ranks)) {
        std::byte* const block = call.out + call.result.begin(i) * bytes;
        const void* const in = i == call.position ? call.in : block;
        if (call.result.of(i) > 0) {
          done(n.broadcast(in, block, call.result.of(i) * bytes, kByte, static_cast<int>(i), communicator, stream),
               "ncclBroadcast");
        }
      }
      return;
    case Collective::Broadcast:
      return done(
          n.broadcast(call.out, call.out, call.result.total() * bytes, kByte, call.record.root, communicator, stream),
          "ncclBroadcast");
    case Collective::AllReduce:
      return done(n.allReduce(call.in, call.out, call.result.total(), *reducedType(call.record.type),
                              *operationOf(call.record.op, call.record.type), communicator, stream),
                  "ncclAllReduce");
    case Collective::ReduceScatter:
      if (!call.record.ragged) {
        return done(n.reduceScatter(call.in, call.out, call.result.total(), *reducedType(call.record.type),
                                    *operationOf(call.record.op, call.record.type), communicator, stream),
                    "ncclReduceScatter");
      }
      for (const int64_t i : indices(call.team.ranks)) {
        if (call.operand.of(i) > 0) {
          done(n.reduce(call.in + call.operand.begin(i) * bytes, call.out, call.operand.of(i),
                        *reducedType(call.record.type), *operationOf(call.record.op, call.record.type),
                        static_cast<int>(i), communicator, stream),
               "ncclReduce");
        }
      }
      return;
    case Collective::AllToAll:
      for (const int64_t i : indices(call.team.ranks)) {
        if (call.operand.of(i) > 0) {
          done(n.send(call.in + call.operand.begin(i) * bytes, call.operand.of(i) * bytes, kByte, static_cast<int>(i),
                      communicator, stream),
               "ncclSend");
        }
        if (call.result.of(i) > 0) {
          done(n.receive(call.out + call.result.begin(i) * bytes, call.result.of(i) * bytes, kByte, static_cast<int>(i),
                         communicator, stream),
               "ncclRecv");
        }
      }
      return;
    default:
      throwInternalError(fmt::format("[nccl] {} is staged", describe(call)));
  }
}

void NcclCommunicator::meet(std::span<const Transfer> transfers) {
  using enum Transfer::Direction;
  struct Bytes {  // between a rank and a peer
    int64_t sent = 0;
    int64_t received = 0;
  };
  std::map<int64_t, std::pair<Bytes, Bytes>> ofPeer;  // as this rank and as the peer sees them
  for (const Transfer& t : transfers) {
    Bytes& own = ofPeer[t.peer].first;
    (t.direction == Send ? own.sent : own.received) += t.bytes;
  }
  std::vector<Transfer> messages;
  for (auto& [peer, bytes] : ofPeer) {
    messages.push_back({Send, peer, &bytes.first, sizeof(Bytes)});
    messages.push_back({Recv, peer, &bytes.second, sizeof(Bytes)});
  }
  over_.setProgram(program());
  over_.uncounted([&] { over_.transfer(messages); });
  over_.setProgram(0);
  orEnd([&] {
    for (const auto& [peer, bytes] : ofPeer) {
      const auto& [own, theirs] = bytes;
      deviceCheck(
          own.sent == theirs.received && own.received == theirs.sent,
          "[nccl] ranks {} and {} disagree: rank {} sends {} bytes and receives {}, rank {} receives {} and sends {}",
          rank(), peer, rank(), own.sent, own.received, peer, theirs.received, theirs.sent);
    }
  });
}

void NcclCommunicator::transfer(std::span<const Transfer> transfers) {
  using enum Transfer::Direction;
  constexpr auto kByte = nccl::ElementType::Int8;
  checkTransfers(transfers, size());
  if (stream_ == own_.get()) {
    finish();
    meet(transfers);
  }
  Team peers{{rank()}};
  for (const Transfer& t : transfers) {
    invariant(t.peer != rank(), "[nccl] rank {} sends a message to itself; a copy does that", t.peer);
    if (!contains(peers.ranks, t.peer)) {
      peers.ranks.push_back(t.peer);
    }
  }
  const NcclLibrary& n = ncclLibrary();
  const CurrentContext current(context_);
  const nccl::Communicator communicator = of(world_);
  post(peers, communicator, "transfer", [&] {
    for (const Transfer& t : transfers) {
      const auto peer = static_cast<int>(positionIn(world_.ranks, t.peer));
      const auto bytes = static_cast<size_t>(t.bytes);
      if (bytes > 0) {
        succeed(t.direction == Send ? n.send(t.data, bytes, kByte, peer, communicator, stream_)
                                    : n.receive(t.data, bytes, kByte, peer, communicator, stream_),
                t.direction == Send ? "ncclSend" : "ncclRecv", "{} bytes, with rank {}", t.bytes, t.peer);
      }
    }
  });
  count(transfers);
  takeCounters();
}

void NcclCommunicator::post(const Team& team, nccl::Communicator communicator, std::string_view what,
                            const std::function<void()>& calls) {
  const NcclLibrary& n = ncclLibrary();
  orEnd([&] {
    expect(n.groupStart(), team, "ncclGroupStart", what);
    try {
      calls();
    } catch (const std::exception&) {
      n.groupEnd();
      throw;
    }
    expect(n.groupEnd(), team, "ncclGroupEnd", what);
  });
  wait(team, communicator, what, [] { return true; });
  Call& call = nextCall();
  recording_ == nullptr ? call.ended.record(stream_) : call.ended.recordInGraph(stream_);
  call.communicator = communicator;
  call.team = team;
  call.step = step_;
  call.what = what_;
  if (stream_ == own_.get()) {
    finish();
  }
}

void NcclCommunicator::finish() {
  caller_ = std::this_thread::get_id();
  if (underWay_.empty()) {
    return;
  }
  const CurrentContext current(context_);
  try {
    for (const Call* const call : underWay_) {
      cuda::Result ended = cuda::Result::Success;
      over_.setStep(call->step, call->what);
      wait(call->team, call->communicator, call->what, [&] {
        ended = call->ended.query();
        return ended != cuda::Result::NotReady;
      });
      orEnd([&] { succeed(ended, "cuEventQuery", "{}", call->what); });
    }
  } catch (...) {
    forgetCalls();
    throw;
  }
  forgetCalls();
  over_.setStep(-1, "");
}

void NcclCommunicator::expect(nccl::Result status, const Team& team, std::string_view call, std::string_view what) {
  if (status == nccl::Result::CudaError) {
    size_t free = 0;
    size_t total = 0;  // after a kernel has failed, every call of the driver returns its error
    succeed(loadedDriver().memoryInfo(&free, &total), "cuMemGetInfo", "{}, whose work before {} has failed,",
            context_.name(), what);
  }
  if (status == nccl::Result::RemoteError || status == nccl::Result::SystemError) {
    const auto limit = std::chrono::steady_clock::now() + kLastWait;
    over_.await(team, [&] { return std::chrono::steady_clock::now() >= limit; });  // throws when it finds who has gone
  }
  succeed(status, call, "{}", what);
}

void NcclCommunicator::wait(const Team& team, nccl::Communicator communicator, std::string_view what,
                            const std::function<bool()>& ready) {
  nccl::Result ofNccl = nccl::Result::Success;
  const std::function<bool()> ended = [&] {
    const nccl::Result asked = ncclLibrary().communicatorError(communicator, &ofNccl);
    ofNccl = asked == nccl::Result::Success ? ofNccl : asked;
    return ofNccl == nccl::Result::Success ? ready() : ofNccl != nccl::Result::InProgress;
  };
  orEnd([&] {
    bool hasEnded = ended();
    const auto limit = std::chrono::steady_clock::now() + kSoon;
    for (; !hasEnded && std::chrono::steady_clock::now() < limit; hasEnded = ended()) {
      std::this_thread::sleep_for(kPause);
    }
    if (!hasEnded) {
      over_.await(team, ended);
    }
    expect(ofNccl, team, "ncclCommGetAsyncError", what);
  });
}

}  // namespace meshfuse
