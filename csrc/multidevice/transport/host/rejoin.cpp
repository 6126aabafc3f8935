#include "multidevice/transport/host/rejoin.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/ranges.h"

namespace meshfuse {

namespace {

using namespace std::chrono_literals;

constexpr auto kSlotPoll = 1ms;
constexpr auto kSurelySilent = 2000ms;  // on a loaded machine a heartbeat may be late

}  // namespace

Rejoin::Rejoin(const HostGroup& old, const TransportOptions& options) : old_(old), options_(options) {
  try {
    do {
      const uint32_t now = verdict().load(std::memory_order_acquire);
      attempt_ = now / 2;
      std::atomic<uint32_t>& came = slot(old_.rank()).came;
      uint32_t before = came.load(std::memory_order_relaxed);  // attempts may have ended before this rank came
      const bool mayCome = now % 2 == 0 && before != RejoinSlot::kOut;
      if (!mayCome || !came.compare_exchange_strong(before, attempt_ + 1)) {
        throwTooLate("made a new world without it");
      }
    } while (!settleMembers());
  } catch (const DeviceError&) {
    throw;
  } catch (...) {
    leave();  // it may have come already, and the others wait for it
    throw;
  }
}

void Rejoin::throwTooLate(std::string_view why) const {
  throwDeviceError(fmt::format("[host] {} rejoined too late: the others have {}", old_.place(old_.rank()), why));
}

bool Rejoin::settleMembers() {
  const auto begin = Clock::now();
  members_.clear();
  for (int64_t r = 0; r < old_.size(); ++r) {
    std::atomic<uint32_t>& came = slot(r).came;
    uint32_t word = came.load(std::memory_order_acquire);
    for (; word != attempt_ + 1 && word != RejoinSlot::kOut; word = came.load(std::memory_order_acquire)) {
      if (!isUnderWay()) {
        return false;
      }
      if (isGone(r, begin)) {
        came.compare_exchange_strong(word, RejoinSlot::kOut);
      } else {
        std::this_thread::sleep_for(kSlotPoll);
      }
    }
    if (word == attempt_ + 1) {
      members_.push_back(r);
    }
  }
  if (!contains(members_, old_.rank())) {
    throwTooLate("excluded it");
  }
  return isUnderWay();
}

bool Rejoin::isGone(int64_t rank, Clock::time_point begin) const {
  if (old_.hasEnded(rank) || old_.hasLeft(rank)) {
    return true;
  }
  const auto waited = Clock::now() - begin;
  return waited > (old_.isBusy(rank) ? options_.busyLimit : options_.deadline) ||
         old_.sinceLastBeat(rank) > std::max(options_.deadline, kSurelySilent);
}

int64_t Rejoin::rank() const { return positionIn(members_, old_.rank()); }

bool Rejoin::isUnderWay() const { return verdict().load(std::memory_order_acquire) == 2 * attempt_; }

void Rejoin::giveUp() {
  uint32_t before = 2 * attempt_;
  verdict().compare_exchange_strong(before, 2 * attempt_ + 2);
}

void Rejoin::leave() {
  giveUp();
  slot(old_.rank()).came.store(RejoinSlot::kOut, std::memory_order_release);
}

bool Rejoin::awaitMembers() {
  const auto begin = Clock::now();
  const uint32_t target = attempt_ * RejoinSlot::kRounds + rounds_;
  for (int64_t r : members_) {
    while (static_cast<int32_t>(slot(r).published.load(std::memory_order_acquire) - target) < 0) {
      if (isGone(r, begin)) {
        giveUp();
      }
      if (!isUnderWay()) {
        return false;
      }
      std::this_thread::sleep_for(kSlotPoll);
    }
  }
  return true;
}

std::vector<std::string> Rejoin::allGather(std::string_view mine) {
  invariant(rounds_ + 1 < RejoinSlot::kRounds && mine.size() <= RejoinSlot::kMessageBytes,
            "[host] a message of {} bytes in round {} of a rejoin, expected at most {} bytes in {} rounds", mine.size(),
            rounds_, RejoinSlot::kMessageBytes, RejoinSlot::kRounds - 1);
  RejoinSlot& own = slot(old_.rank());
  // A rank that reads these bytes in place of those of an earlier attempt also sees the verdict that ended it.
  std::atomic_thread_fence(std::memory_order_release);
  own.messageBytes[rounds_] = static_cast<uint32_t>(mine.size());
  std::memcpy(own.messages[rounds_], mine.data(), mine.size());
  ++rounds_;
  own.published.store(attempt_ * RejoinSlot::kRounds + rounds_, std::memory_order_release);
  bool complete = awaitMembers();
  std::vector<std::string> all;
  for (int64_t r : members_) {
    const RejoinSlot& theirs = slot(r);
    const auto bytes = std::min<size_t>(theirs.messageBytes[rounds_ - 1], RejoinSlot::kMessageBytes);
    all.emplace_back(theirs.messages[rounds_ - 1], bytes);
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  complete = complete && isUnderWay();  // else a member may have begun to write for the next attempt
  deviceCheck(complete, "[host] an attempt of the surviving ranks to make a new world failed");
  return all;
}

bool Rejoin::succeeds() {
  rounds_ = RejoinSlot::kRounds;
  slot(old_.rank()).published.store((attempt_ + 1) * RejoinSlot::kRounds, std::memory_order_release);
  if (awaitMembers()) {
    uint32_t before = 2 * attempt_;
    verdict().compare_exchange_strong(before, 2 * attempt_ + 1);
  }
  return verdict().load(std::memory_order_acquire) == 2 * attempt_ + 1;
}

}  // namespace meshfuse
