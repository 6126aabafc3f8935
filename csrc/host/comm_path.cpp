#include "host/comm_path.h"

#include "base/error.h"
#include "base/ranges.h"
#include "multidevice/transport/staged.h"

namespace meshfuse {

namespace {

void* workspace(const CommPath::Call& call, int64_t k) { return call.arena + call.sizes.workspaces[k].offset; }

// The device's own; null if it has none. Ranks that make it meet: the program is compared with that of a rank that does something else.
std::shared_ptr<DeviceCommunicator> communicatorOf(const HostProgram& program, Communicator& over) {
  std::optional<Communicator::OnDevice>& known = over.onDevice();
  if (!known) {
    over.setStep(-1, "the begin of communication between devices");
    over.setProgram(programNumber(program.identity, 0));
    known = {program.deviceId, program.device->communicator(over)};
    over.setProgram(0);
    over.setStep(-1, "");
  }
  return known->device == program.deviceId ? known->communicator : nullptr;
}

}  // namespace

CommPath::CommPath(Communicator& communicator, const HostProgram& program, bool mayBeOfDevice)
    : communicator_(communicator), queue_(program.device->makeQueue()) {
  if (!program.device->isHostMemory() && program.communicates) {
    onDevice_ = mayBeOfDevice ? communicatorOf(program, communicator) : nullptr;
    isOfDevice_ = onDevice_ != nullptr;
    if (!isOfDevice_) {
      onDevice_ = std::make_shared<StagedCommunicator>(communicator, *program.device);
    }
    isAsynchronous_ = onDevice_->isAsynchronous();
    for (const Step& s : program.steps) {
      if (s.kind == HostStepKind::Communicate && s.comm.kind != Collective::Transfer) {
        onDevice_->prepare(s.comm.team, {s.comm.kind, s.comm.dtype, s.comm.reduce});
      }
    }
  }
}

Communicator& CommPath::comm() const { return onDevice_ != nullptr ? *onDevice_ : communicator_; }

void CommPath::begin() {
  if (isAsynchronous_) {
    onDevice_->use(queue_.get());
  }
}

void CommPath::end() {
  if (isAsynchronous_) {
    onDevice_->use(nullptr);
  }
}

void CommPath::finishCalls() {
  if (isAsynchronous_) {
    onDevice_->finish();
  }
}

void CommPath::finish() {
  finishCalls();
  queue_->wait();
}

std::unique_ptr<Recording> CommPath::capture(Queue& queue, const std::function<void()>& work) {
  return onDevice_->capture(queue, work);
}

void CommPath::replay(Queue& queue, Recording& recording) { onDevice_->replay(queue, recording); }

int64_t CommPath::countRecording() { return onDevice_->countRecording(); }

const Team& CommPath::teamOf(const CommCall& call) const {
  return call.kind == Collective::Transfer ? communicator_.world() : call.team;
}

std::shared_ptr<void> CommPath::allocateArena(int64_t bytes) { return onDevice_->allocateArena(bytes); }

bool CommPath::usesRegistered(const CommCall& call) const {
  return call.counts.empty() && onDevice_->usesRegistered({call.kind, call.dtype, call.reduce});
}

bool CommPath::enroll(void* arena, std::span<const Team> teams) { return onDevice_->enroll(arena, teams); }

void CommPath::withdraw(void* arena) { onDevice_->withdraw(arena); }

void CommPath::giveUp() noexcept {
  if (isAsynchronous_) {
    onDevice_->giveUp();
  }
}

int64_t CommPath::bytesReceived() const {
  return sumOf(communicator_.counters().of, &TransferCounters::Entry::bytesReceived);
}

void CommPath::takeCounters(const CommPath& lane) {
  if (&lane.communicator_ != &communicator_) {
    communicator_.addCounters(lane.communicator_.counters());
    lane.communicator_.resetCounters();
  }
}

void CommPath::run(const Call& call) {
  comm().setStep(call.number, call.step.name);
  comm().setProgram(call.sizes.comm.program);
  settle();
  if (call.step.comm.isCombined) {
    onDevice_->lend(workspace(call, std::ssize(call.sizes.workspaces) - 1));
  }
  if (!call.step.comm.counts.empty()) {
    uneven(call);
  } else if (call.step.comm.kind == Collective::Transfer) {
    transfer(call);
  } else {
    collective(call);
  }
  comm().setProgram(0);
}

void CommPath::collective(const Call& call) {
  const CommCall& c = call.step.comm;
  const int64_t count = call.sizes.comm.count;
  if (c.kind == Collective::Broadcast && c.team.ranks[call.root] == comm().rank()) {
    const BytePiece whole{.bytes = count * dataTypeSize(c.dtype)};
    queue_->copy(call.out, call.in, {&whole, 1});
    settle();
  }
  switch (c.kind) {
    case Collective::AllGather:
      return comm().allGather(c.team, call.in, call.out, count, c.dtype);
    case Collective::AllReduce:
      return comm().allReduce(c.team, call.in, call.out, count, c.dtype, c.reduce);
    case Collective::ReduceScatter:
      return comm().reduceScatter(c.team, call.in, call.out, count, c.dtype, c.reduce);
    case Collective::AllToAll:
      return comm().allToAll(c.team, call.in, call.out, count, c.dtype);
    case Collective::Broadcast:
      return comm().broadcast(c.team, call.out, count, c.dtype, call.root);
    default:
      throwInternalError(fmt::format("[run] {}: no host program has such a step", call.step.name));
  }
}

void CommPath::transfer(const Call& call) {
  using enum Communicator::Transfer::Direction;
  const CommCall& c = call.step.comm;
  const CommSizes& sizes = call.sizes.comm;
  const auto placeOf = [&](const CommSizes::Message& m, const void* tensor) -> void* {
    char* whole = static_cast<char*>(const_cast<void*>(tensor));
    return m.block.isOnePiece() ? whole + m.block.begin : static_cast<char*>(workspace(call, 0)) + m.offset;
  };
  transfers_.clear();
  for (const int64_t k : indices(c.sends)) {
    const CommSizes::Message& m = sizes.sends[k];
    if (!m.block.isOnePiece()) {
      queue_->copy(placeOf(m, call.in), call.in, m.block.pieces);
    }
    transfers_.push_back({Send, c.sends[k].peer, placeOf(m, call.in), m.block.bytes});
  }
  for (const int64_t k : indices(c.receives)) {
    const CommSizes::Message& m = sizes.receives[k];
    transfers_.push_back({Recv, c.receives[k].peer, placeOf(m, call.out), m.block.bytes});
  }
  queue_->copy(call.out, call.in, sizes.kept);
  settle();
  comm().transfer(transfers_);
  for (const CommSizes::Message& m : sizes.receives) {
    if (!m.block.isOnePiece()) {
      queue_->copy(call.out, placeOf(m, call.out), m.block.pieces);
    }
  }
  settle();
}

void CommPath::uneven(const Call& call) {
  const CommCall& c = call.step.comm;
  const CommSizes& sizes = call.sizes.comm;
  const void* sent = sizes.pack.isWhole() ? call.in : workspace(call, 0);
  void* received = sizes.unpack.isWhole() ? call.out : workspace(call, 1);
  if (sent != call.in) {
    queue_->copy(workspace(call, 0), call.in, sizes.pack.pieces);
    settle();
  }
  if (c.kind == Collective::AllGather) {
    comm().allGatherV(c.team, sent, received, sizes.counts, c.dtype);
  } else if (c.kind == Collective::ReduceScatter) {
    comm().reduceScatterV(c.team, sent, received, sizes.counts, c.dtype, c.reduce);
  } else {
    comm().allToAllV(c.team, sent, received, sizes.counts, sizes.received, c.dtype);
  }
  if (received != call.out) {
    queue_->copy(call.out, received, sizes.unpack.pieces);
    settle();
  }
}

}  // namespace meshfuse
