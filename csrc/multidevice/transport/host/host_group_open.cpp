// How the ranks of a host find each other's memory and processes.
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <ranges>

#include "base/error.h"
#include "base/ranges.h"
#include "multidevice/transport/algorithms.h"
#include "multidevice/transport/host/core_share.h"
#include "multidevice/transport/host/descriptor_exchange.h"
#include "multidevice/transport/host/host_group.h"
#include "multidevice/transport/lanes.h"

namespace meshfuse {

namespace {

constexpr std::string_view kVersion = "meshfuse-host-9";
constexpr int64_t kSpinsWithOwnCore = 1000;  // about 50 us: a sleep and its end cost 10
constexpr size_t kSmallestHeap = size_t{64} << 20;

// Address space may be limited (ulimit -v): reserves as much as possible.
SharedMemory createHeap(size_t bytes) {
  for (;; bytes /= 4) {
    try {
      return SharedMemory::create(bytes);
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
    : rank_(bootstrap.rank()), size_(bootstrap.size()), deadline_(options.deadline), busyLimit_(options.busyLimit) {
  meet(bootstrap);
  mapPeers(bootstrap, options);
  calls_ = blocks_;
  beginBlock(own(), options.flightDirectory, world);
  own().status().beat.store(millisecondsNow());
  tryToReadProcesses(bootstrap);  // no rank reads a block before its owner has filled it in
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
  entry.heapOffset = heap_->offsetOf(laneBlock_.get(), ControlBlock::bytes(size_));
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
    const auto offset = static_cast<uint64_t>(entry.heapOffset);
    const size_t bytes = ControlBlock::bytes(size_);
    if (team == team_ && offset % alignof(Status) == 0 && offset < heaps_[peer].size() &&
        bytes <= heaps_[peer].size() - offset) {
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
    const auto* at = reinterpret_cast<const std::byte*>(number(words[r]));
    all = all && (r == rank_ || ((*peers_)[r].descriptor >= 0 &&
                                 hasRead(r, at, reinterpret_cast<std::byte*>(&theirs), sizeof(theirs)) &&
                                 theirs == kWord + static_cast<uint64_t>(r)));
  }
  canReadProcesses_ = !contains(bootstrap.allGather(all ? "yes" : "no"), "no");
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

void HostGroup::meet(Bootstrap& bootstrap) {
  const std::string mine = fmt::format("{}\n{}", kVersion, allowedCores());
  std::vector<std::string> cores;
  const std::vector<std::string> all = bootstrap.allGather(mine);
  for (int64_t r = 0; r < size_; ++r) {
    const std::vector<std::string> theirs = linesOf(all[r]);
    deviceCheck(theirs[0] == kVersion && theirs.size() == 2 && std::ssize(theirs[1]) == kCoreSetSize,
                "[host] rank {} runs '{}', rank {} runs '{}'; start the same build on all ranks", rank_, kVersion, r,
                theirs[0]);
    cores.push_back(theirs[1]);
  }
  spins_ = size_ <= jointCores(cores) ? kSpinsWithOwnCore : 0;
}

// Peers' blocks are written to, so nothing is mapped before the system has told whose memory it is.
void HostGroup::mapPeers(Bootstrap& bootstrap, const TransportOptions& options) {
  SharedMemory block = SharedMemory::create(ControlBlock::bytes(size_));
  heap_ = std::make_shared<SharedHeap>(createHeap(options.heapBytes));
  const int mine[] = {block.descriptor().get(), heap_->memory().descriptor().get()};
  ExchangedDescriptors exchanged = exchangeDescriptors(bootstrap, mine, Clock::now() + deadline_);
  std::string problem = exchanged.problem;
  const bool pushes = AlgorithmTable::parse(options.algorithms).pushes();
  for (int64_t r = 0; r < size_ && problem.empty(); ++r) {
    const auto& [process, descriptors] = exchanged.byRank[r];
    Peer& peer = peers_->emplace_back(process);
    if (r == rank_) {
      blocks_.emplace_back(block.data(), size_);
      heaps_.emplace_back(heap_->memory().data(), heap_->memory().bytes());
      memory_.push_back(std::move(block));
      continue;
    }
    using enum SharedMemory::Access;
    SharedMemory theirBlock = SharedMemory::open(descriptors[0], ReadWrite);
    SharedMemory theirHeap = SharedMemory::open(descriptors[1], pushes ? ReadWrite : ReadOnly);
    if (theirBlock.bytes() != ControlBlock::bytes(size_) || !theirHeap.valid()) {
      problem = fmt::format("rank {} cannot map the memory of [rank {}/{}]", rank_, r, size_);
    }
    peer.descriptor = process == 0 ? -1 : syscall(SYS_pidfd_open, process, 0);
    blocks_.emplace_back(theirBlock.data(), size_);
    heaps_.emplace_back(theirHeap.data(), theirHeap.bytes());
    memory_.push_back(std::move(theirBlock));
    memory_.push_back(std::move(theirHeap));
  }
  for (const std::string& found : bootstrap.allGather(problem)) {
    deviceCheck(found.empty(), "[host] {}", found);
  }
}

}  // namespace meshfuse
