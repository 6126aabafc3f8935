// Trace: the steps of one rank's calls with their times.
//
//   Trace trace(comm.rank());
//   FusionExecutorCache cache(std::move(fusion), {.communicator = &comm, .trace = &trace});
//   ...
//   std::string json = chromeTrace({{trace.events(zero)}});   // for https://ui.perfetto.dev and chrome://tracing
//
// A rank is a process in the trace viewer. Concurrent calls are in lanes of four rows: the call, its kernels (with library calls and
// copies), its collectives, and the waits for peers, each with the name of the collective during which it was, if any. Collectives of several
// queues have a row for each queue. Spans of a row do not overlap; spans of the last three rows lie inside the call. On a GPU, kernels and
// collectives have the times of their streams, and the host waits for them and for its peers at other times.
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
  int64_t lane = 0;
  std::string name;   // the step's name in the plan: "pointwise T2[4, 8]", "all-reduce T4"
  int64_t begin = 0;  // nanoseconds since the epoch
  int64_t end = 0;
  int64_t call = 0;   // of this rank, from 1
  int64_t step = -1;  // position in the plan
  int64_t bytes = 0;  // Collectives: received, as counted by the transport
  int64_t queue = 0;  // of the step
};

class Trace {
 public:
  explicit Trace(int64_t rank) : rank_(rank) {}
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // By end of the call, then row, then time. Must not be read while a call runs.
  const std::vector<TraceSpan>& spans() const { return spans_; }
  void clear();
  // The begin of the first span; the largest number if there is none.
  int64_t begin() const;
  // The events of this rank as JSON objects, one on each line, with times relative to `zero`.
  std::string events(int64_t zero) const;

  // Spans beyond this number are dropped.
  static constexpr size_t kMostSpans = 1'000'000;

 private:
  friend class TracedCall;
  const int64_t rank_;
  mutable std::mutex mutex_;
  std::vector<bool> lanes_;  // in use
  int64_t calls_ = 0;
  int64_t dropped_ = 0;
  std::vector<TraceSpan> spans_;
};

// Records one call of a rank, from construction to destruction; a call that fails is recorded up to the failure.
class TracedCall final : public WaitObserver {
 public:
  TracedCall(Trace& trace, const HostProgram& program);
  ~TracedCall();
  TracedCall(const TracedCall&) = delete;
  TracedCall& operator=(const TracedCall&) = delete;

  // The run fills these in.
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
  int64_t lane_ = 0;
  Clock::time_point begin_;
  ObserveWaits observe_;
};

// The events of all ranks as one file.
[[nodiscard]] std::string chromeTrace(std::span<const std::string> eventsOfRanks);

// The trace of a rank if MESHFUSE_TRACE=FILE is set, else null. It is written when the process ends, to FILE with `.rankN` before its
// extension; calls that end later are not in the file. Times are relative to the last multiple of 2^53 ns, the same for all ranks.
// UserError if the file cannot be written.
[[nodiscard]] Trace* traceOfEnvironment(int64_t rank);

}  // namespace meshfuse
