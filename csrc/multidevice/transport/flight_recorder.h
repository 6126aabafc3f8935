// The last calls of a rank, for the analysis of a failure: kind, team, step and time of each call.
//
// The ring is plain data at a fixed address, so it may lie in memory that peers read: they write the records of a dead rank to its file.
// Reading the clock costs more than a call that does not wait. So all calls that wait are timed, but only one in sixteen of the others.
#pragma once

#include <x86intrin.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "multidevice/transport/algorithms.h"
#include "multidevice/transport/call.h"

namespace meshfuse {

struct FlightEvent {
  static constexpr uint64_t kEnded = 1;

  uint64_t sequence;      // calls of this rank, from 1
  uint64_t teamSequence;  // calls of this rank for this team, from 1; 0 for sends and receives
  CallRecord call;
  int64_t step;
  uint64_t begin;  // ticks of the processor's clock; 0: not timed
  uint64_t end;    // 0: the call is running, or ended by an error; kEnded: not timed
  Algorithm way;   // the algorithm of an ended call
  char what[47];   // the text of setStep(), cut off
};

struct FlightRing {
  static constexpr uint64_t kEvents = 1000;

  uint64_t openedTicks;
  int64_t openedTime;  // nanoseconds since the epoch
  std::atomic<uint64_t> calls;
  FlightEvent events[kEvents];  // call s is at s % kEvents
};

// The rank that writes a record, its world, and the directory of the file.
struct FlightPlace {
  std::string directory;  // empty: nothing is written
  std::string world;      // the same on all ranks; different for each world of a process
  std::string transport;
  int64_t rank = 0;
  int64_t size = 1;
};

class FlightRecorder {
 public:
  // `ring` is all zero and outlives the recorder.
  FlightRecorder(FlightRing& ring, FlightPlace place);

  // This rank, the one that is recorded, aborts. A call of its own that is refused afterwards is not to be recorded. Thread-safe.
  void abort() { aborted_->store(true, std::memory_order_relaxed); }
  bool hasAborted() const { return aborted_->load(std::memory_order_relaxed); }
  // This recorder is of a lane of `whole`'s communicator: an abort of either counts for both.
  void isOfLaneOf(const FlightRecorder& whole) { aborted_ = whole.aborted_; }

  // The current step of the program, for the following calls.
  void setStep(int64_t step, std::string_view what) {
    step_ = step;
    const size_t length = what.size() < what_.size() ? what.size() : what_.size() - 1;
    std::memcpy(what_.data(), what.data(), length);
    what_[length] = '\0';
  }
  FlightEvent& begin(const CallRecord& call) {
    const uint64_t sequence = ring_.calls.load(std::memory_order_relaxed) + 1;
    FlightEvent& event = ring_.events[sequence % FlightRing::kEvents];
    event.sequence = sequence;
    event.teamSequence = call.teamHash == 0 ? 0 : nextOfTeam(call.teamHash);
    event.call = call;
    event.step = step_;
    event.way = Algorithm::Default;
    std::memcpy(event.what, what_.data(), sizeof(event.what));
    event.begin = sequence % kTimedOneIn == 0 ? __rdtsc() : 0;
    event.end = 0;
    ring_.calls.store(sequence, std::memory_order_release);
    current_ = &event;
    return event;
  }
  // Records that the running call has to wait.
  void waits() {
    if (current_ != nullptr && current_->begin == 0 && current_->end == 0) {
      current_->begin = __rdtsc();
    }
  }
  static void end(FlightEvent& event) { event.end = event.begin == 0 ? FlightEvent::kEnded : __rdtsc(); }

  // Writes the record, at the first failure only; not while another thread makes a call. Never throws: the failure itself matters more.
  void write(std::string_view failure) noexcept;
  // Writes the record of a dead peer, unless it has been written.
  void writeFor(int64_t rank, const FlightRing& ring, std::string_view failure) const noexcept;

  const FlightPlace& place() const { return place_; }

 private:
  static constexpr uint64_t kTimedOneIn = 16;

  uint64_t nextOfTeam(uint64_t hash) {
    if (hash != lastTeam_) {
      lastTeam_ = hash;
      lastCount_ = &teams_[hash];
    }
    return ++*lastCount_;
  }

  FlightRing& ring_;
  FlightPlace place_;
  FlightEvent* current_ = nullptr;
  std::shared_ptr<std::atomic<bool>> aborted_ = std::make_shared<std::atomic<bool>>(false);
  int64_t step_ = -1;
  std::array<char, sizeof(FlightEvent::what)> what_{};
  std::unordered_map<uint64_t, uint64_t> teams_;  // calls by team; addresses of nodes are stable
  uint64_t lastTeam_ = 0;
  uint64_t* lastCount_ = nullptr;
  bool written_ = false;
};

// The chosen directory; if it is empty, the one in MESHFUSE_FLIGHT_DIR, if there is one.
[[nodiscard]] std::string flightDirectory(const std::string& chosen);

// The calls in a file that a recorder has written.
struct FlightRecord {
  std::string world;
  std::string transport;
  int64_t rank = 0;
  int64_t size = 0;
  std::string failure;
  std::string writer;  // empty: the rank itself; else the peer
  struct Entry {
    FlightEvent event{};
    int64_t begin = 0;  // nanoseconds since the epoch; the begin of an earlier call if this call was not timed
    int64_t end = 0;    // 0: not ended; kEnded: ended, not timed
    bool timed = false;
  };
  std::vector<Entry> calls;  // oldest first
};
// UserError if the file is not a flight record.
[[nodiscard]] FlightRecord readFlightRecord(const std::string& file);

// Compares the records of all ranks in a directory: for each world and team the first call that differs between its ranks, the earliest
// first, and the step of each rank at that time. UserError if there are no records.
[[nodiscard]] std::string blame(const std::string& directory);

}  // namespace meshfuse
