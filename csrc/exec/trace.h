// Trace: what one rank did in its calls, and when.
//
//   Trace trace(comm.rank());
//   FusionExecutorCache cache(std::move(fusion), {.communicator = &comm, .trace = &trace});
//   ...
//   std::string json = chromeTrace({{trace.events(zero)}});   // for https://ui.perfetto.dev and chrome://tracing
//
// A rank is a process of the picture. Calls that run side by side are in lanes of four rows: the call, its kernels (library calls,
// copies), its collectives, and the waits for peers inside these. Spans of a row do not overlap; those of the last three lie inside
// the call.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "multidevice/transport/wait_observer.h"

namespace meshfuse {

struct HostProgram;
struct StepRecord;

enum class TraceRow : uint8_t { Calls, Kernels, Collectives, Waits };
[[nodiscard]] std::string_view name(TraceRow row);

struct TraceSpan {
  TraceRow row = TraceRow::Calls;
  int lane = 0;
  std::string name;   // of a step as the plan has it: "pointwise T2[4, 8]", "all-reduce T4"
  int64_t begin = 0;  // nanoseconds of the calendar's clock
  int64_t end = 0;
  int64_t call = 0;   // of this rank, from 1
  int step = -1;      // of the plan
  int64_t bytes = 0;  // Collectives: received, as the transport counted
};

class Trace {
 public:
  explicit Trace(int rank) : rank_(rank) {}
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  int rank() const { return rank_; }
  // In the order in which calls ended; in a call by row, then by time. Not while a call runs.
  const std::vector<TraceSpan>& spans() const { return spans_; }
  // Spans beyond kMostSpans are not kept.
  int64_t left() const { return left_; }
  void clear();
  // When the first span began; the largest number if there is none.
  int64_t begin() const;
  // The events of this rank as JSON objects, one a line, with times from `zero` on.
  std::string events(int64_t zero) const;

  static constexpr size_t kMostSpans = 1'000'000;

 private:
  friend class TracedCall;
  const int rank_;
  std::mutex mutex_;
  std::vector<bool> lanes_;  // in use
  int64_t calls_ = 0;
  int64_t left_ = 0;
  std::vector<TraceSpan> spans_;
};

// One call of a rank, from the making of this to its end; what ran until then is traced also if it fails.
class TracedCall final : public WaitObserver {
 public:
  TracedCall(Trace& trace, const HostProgram& program);
  ~TracedCall();
  TracedCall(const TracedCall&) = delete;
  TracedCall& operator=(const TracedCall&) = delete;

  // Filled in by the run.
  std::vector<StepRecord>& records() { return records_; }
  void waited(Clock::time_point begin, Clock::time_point end) override { waits_.push_back({begin, end}); }

 private:
  struct Wait {
    Clock::time_point begin;
    Clock::time_point end;
  };
  Trace& trace_;
  const HostProgram& program_;
  std::vector<StepRecord> records_;
  std::vector<Wait> waits_;
  size_t lane_ = 0;
  Clock::time_point begin_;
  ObserveWaits observe_;
};

// The events of all ranks as one file.
[[nodiscard]] std::string chromeTrace(std::span<const std::string> eventsOfRanks);

// The trace of a rank that MESHFUSE_TRACE=FILE asks for, null if it does not: written to FILE, with `.rankN` before its ending, when
// the process ends. Times count from the last multiple of 2^53 ns, so that the files of all ranks fit together. UserError if the file
// cannot be written.
[[nodiscard]] Trace* traceOfEnvironment(int rank);

}  // namespace meshfuse
