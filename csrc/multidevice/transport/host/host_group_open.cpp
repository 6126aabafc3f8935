// How the ranks of a host find each other's memory and processes.
#include <sched.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <exception>
#include <ranges>

#include "base/error.h"
#include "multidevice/transport/algorithms.h"
#include "multidevice/transport/host/host_group.h"
#include "multidevice/transport/lanes.h"

namespace meshfuse {

namespace {

constexpr std::string_view kVersion = "meshfuse-host-8";
constexpr int64_t kSpinsWithOwnCore = 1000;  // about 50 us: a sleep and its end cost 10
constexpr size_t kSmallestHeap = size_t{64} << 20;

// True if all ranks pass true.
bool holdsOnAll(Bootstrap& bootstrap, bool here) {
  const std::vector<std::string> all = bootstrap.allGather(here ? "yes" : "no");
  return std::ranges::all_of(all, [](const std::string& text) { return text == "yes"; });
}

// The target of /proc/self/ns/pid: equal for processes that share a namespace of process ids.
std::string processNamespace() {
  char target[128] = {};
  const ssize_t length = readlink("/proc/self/ns/pid", target, sizeof(target) - 1);
  return length > 0 ? std::string(target, length) : "unknown";
}

std::string allowedCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  std::string text(CPU_SETSIZE, '0');
  for (size_t i = 0; i < CPU_SETSIZE; ++i) {
    text[i] = CPU_ISSET(i, &set) ? '1' : '0';
  }
  return text;
}

int64_t coresOf(const std::vector<std::string>& sets) {
  const auto isAllowed = [&](int64_t i) {
    return std::ranges::any_of(sets, [&](const auto& s) { return s[i] == '1'; });
  };
  return static_cast<int64_t>(std::ranges::count_if(std::views::iota(int64_t{0}, CPU_SETSIZE), isAllowed));
}

// Address space may be limited (ulimit -v): reserves as much as possible.
SharedMemory createHeap(size_t bytes, SharedMemory::Name name) {
  for (;; bytes /= 4) {
    try {
      return SharedMemory::create(bytes, name);
    } catch (const DeviceError&) {
      if (bytes / 4 < kSmallestHeap) {
        throw;
      }
    }
  }
}

size_t number(const std::string& text) {
  size_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

HostGroup::HostGroup(Bootstrap& bootstrap, const TransportOptions& options, const std::string& world)
    : rank_(bootstrap.rank()),
      size_(bootstrap.size()),
      deadline_(options.deadline),
      busyLimit_(options.busyLimit),
      uncaught_(std::uncaught_exceptions()) {
  watch(bootstrap);
  deviceCheck(tryMap(bootstrap, options, SharedMemory::Name::Descriptor) ||
                  tryMap(bootstrap, options, SharedMemory::Name::File),
              "[host] the {} ranks cannot map each other's memory, neither through /proc nor through /dev/shm; give "
              "their containers a common one",
              size_);
  calls_ = blocks_;
  beginBlock(own(), options.flightDirectory, world);
  own().status().beat.store(millisecondsNow());
  tryToReadProcesses(bootstrap);  // no rank reads a block before its owner has filled it in
  for (SharedMemory& m : memory_) {
    m.unlink();
  }
  heap_->memory().unlink();
  beatThread_ = std::jthread([this](const std::stop_token& stop) { beat(stop); });
}

// The block of a lane lies in the heap, which all ranks have mapped, so peers need only its offset. A lane never spins: a rank may
// have many lanes.
HostGroup::HostGroup(const HostGroup& whole, const Team& team)
    : rank_(whole.rank_),
      size_(whole.size_),
      deadline_(whole.deadline_),
      busyLimit_(whole.busyLimit_),
      canReadProcesses_(whole.canReadProcesses_),
      uncaught_(whole.uncaught_),
      blocks_(whole.blocks_),
      heaps_(whole.heaps_),
      heap_(whole.heap_),
      peers_(whole.peers_),
      team_(teamHash(team)),
      laneBlock_(heap_->allocate(ControlBlock::bytes(size_))),
      calls_(blocks_.size()) {
  deviceCheck(laneBlock_ != nullptr, "[host] no shared memory left for the posted calls of a team, {} bytes on rank {}",
              ControlBlock::bytes(size_), rank_);
  const ControlBlock& block = calls_[rank_] = ControlBlock(static_cast<std::byte*>(laneBlock_.get()), size_);
  block.clear();
  beginBlock(block, whole.recorder_->place().directory, laneName(whole.world(), team));
  recorder_->isOfLaneOf(*whole.recorder_);
}

void HostGroup::beginBlock(const ControlBlock& block, const std::string& flightDirectory, const std::string& world) {
  recorder_ = std::make_unique<FlightRecorder>(
      block.flight(),
      FlightPlace{.directory = flightDirectory, .world = world, .transport = "host", .rank = rank_, .size = size_});
  block.status().step.store(-1);
  block.status().waitOwner.store(-1);
}

void HostGroup::showLane(const Team& team) {
  uint32_t lanes = 0;
  while (lanes < LaneEntry::kLanes && own().lane(lanes).team.load(std::memory_order_relaxed) != 0) {
    ++lanes;
  }
  deviceCheck(lanes < LaneEntry::kLanes, "[host] rank {} has posted calls for {} teams, the limit; use fewer teams",
              rank_, lanes);
  LaneEntry& entry = own().lane(lanes);
  entry.heapOffset = heap_->offsetOf(laneBlock_.get(), static_cast<int64_t>(ControlBlock::bytes(size_)));
  entry.team.store(team_, std::memory_order_seq_cst);
  for (int64_t p : team.ranks) {
    ring(p);
  }
}

bool HostGroup::findLane(int64_t peer) {
  for (uint32_t i = 0; i < LaneEntry::kLanes && !callsOf(peer).isThere(); ++i) {
    const LaneEntry& entry = of(peer).lane(i);
    const uint64_t team = entry.team.load(std::memory_order_acquire);
    if (team == 0) {
      return false;
    }
    if (team == team_) {
      calls_[peer] = ControlBlock(heapOf(peer) + entry.heapOffset, size_);
    }
  }
  return callsOf(peer).isThere();
}

// Containers and hardened kernels may forbid it in several ways, so each rank tries to read a word of each peer.
void HostGroup::tryToReadProcesses(Bootstrap& bootstrap) {
  constexpr uint64_t kWord = 0x6d65736866757365;
  const uint64_t mine = kWord + static_cast<uint64_t>(rank_);
  const std::vector<std::string> words = bootstrap.allGather(std::to_string(reinterpret_cast<uintptr_t>(&mine)));
  bool all = true;
  for (int64_t r = 0; r < size_; ++r) {
    uint64_t theirs = 0;
    const auto* at = reinterpret_cast<const std::byte*>(std::stoull(words[r]));
    all = all && (r == rank_ || ((*peers_)[r].descriptor >= 0 &&
                                 hasRead(r, at, reinterpret_cast<std::byte*>(&theirs), sizeof(theirs)) &&
                                 theirs == kWord + static_cast<uint64_t>(r)));
  }
  canReadProcesses_ = holdsOnAll(bootstrap, all);
}

bool HostGroup::hasRead(int64_t peer, const std::byte* from, std::byte* to, int64_t bytes) const {
  while (bytes > 0) {
    const iovec local{to, static_cast<size_t>(bytes)};
    const iovec remote{const_cast<std::byte*>(from), static_cast<size_t>(bytes)};
    const ssize_t n = process_vm_readv((*peers_)[peer].pid, &local, 1, &remote, 1, 0);
    if (n <= 0) {
      return false;
    }
    from += n;
    to += n;
    bytes -= n;
  }
  return true;
}

void HostGroup::readProcess(int64_t peer, const std::byte* from, std::byte* to, int64_t bytes) {
  if (!hasRead(peer, from, to, bytes)) {
    const std::string reason = std::strerror(errno);
    fail(fmt::format("[host] {} cannot read the buffer of {}: {}", place(rank_), place(peer), reason));
  }
}

void HostGroup::watch(Bootstrap& bootstrap) {
  const std::string mine =
      fmt::format("{}\n{}\n{}\n{}\n{}", kVersion, bootIdentity(), processNamespace(), getpid(), allowedCores());
  std::vector<std::string> cores;
  const std::vector<std::string> all = bootstrap.allGather(mine);
  const std::vector<std::string> own = linesOf(mine);
  for (int64_t r = 0; r < size_; ++r) {
    const std::vector<std::string> theirs = linesOf(all[r]);
    deviceCheck(theirs[0] == own[0] && theirs.size() == own.size(),
                "[host] rank {} runs '{}', rank {} runs '{}'; start the same build on all ranks", rank_, own[0], r,
                theirs[0]);
    deviceCheck(theirs[1] == own[1],
                "[host] ranks {} and {} are on different hosts; this transport connects the ranks of one host", rank_,
                r);
    Peer& peer = peers_->emplace_back(static_cast<int64_t>(number(theirs[3])));
    if (r != rank_ && theirs[2] == own[2]) {
      peer.descriptor = static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0));
    }
    cores.push_back(theirs[4]);
  }
  spins_ = size_ <= coresOf(cores) ? kSpinsWithOwnCore : 0;
}

bool HostGroup::tryMap(Bootstrap& bootstrap, const TransportOptions& options, SharedMemory::Name name) {
  const size_t blockBytes = ControlBlock::bytes(size_);
  memory_.clear();
  blocks_.clear();
  heaps_.clear();
  SharedMemory block = SharedMemory::create(blockBytes, name);
  heap_ = std::make_shared<SharedHeap>(createHeap(options.heapBytes, name));
  const std::string mine = fmt::format("{}\n{}\n{}", block.path(), heap_->memory().path(), heap_->memory().bytes());
  bool complete = true;
  const bool pushes = AlgorithmTable::parse(options.algorithms).pushes();
  const auto heapAccess = pushes ? SharedMemory::Access::ReadWrite : SharedMemory::Access::ReadOnly;
  const std::vector<std::string> all = bootstrap.allGather(mine);
  for (int64_t r = 0; r < size_; ++r) {
    const std::vector<std::string> theirs = linesOf(all[r]);
    if (r == rank_) {
      blocks_.emplace_back(block.data(), size_);
      heaps_.push_back(heap_->memory().data());
      memory_.push_back(std::move(block));
      continue;
    }
    SharedMemory theirBlock = SharedMemory::open(theirs[0], blockBytes, SharedMemory::Access::ReadWrite);
    SharedMemory theirHeap = SharedMemory::open(theirs[1], number(theirs[2]), heapAccess);
    complete = complete && theirBlock.valid() && theirHeap.valid();
    blocks_.emplace_back(theirBlock.data(), size_);
    heaps_.push_back(theirHeap.data());
    memory_.push_back(std::move(theirBlock));
    memory_.push_back(std::move(theirHeap));
  }
  return holdsOnAll(bootstrap, complete);
}

}  // namespace meshfuse
