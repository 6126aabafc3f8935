#include "exec/trace.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "base/ranges.h"
#include "exec/json_text.h"
#include "host/executor.h"

namespace meshfuse {

namespace {

constexpr int64_t kRows = 4;
constexpr int64_t kMostThreads = 10'000;  // of the first queue of collectives
constexpr int64_t kExactInJson = int64_t{1} << 53;
constexpr int64_t kNoSpan = std::numeric_limits<int64_t>::max();

int64_t nanoseconds(std::chrono::steady_clock::time_point t) {
  // The steady clock has an unspecified zero, common to the processes of one host only.
  static const int64_t calendar = [] {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return (std::chrono::nanoseconds(now) -
            std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()))
        .count();
  }();
  return calendar + std::chrono::nanoseconds(t.time_since_epoch()).count();
}

// As text: a double cannot hold nanoseconds since the epoch exactly.
std::string microseconds(int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

// The row of a span, as a thread of the trace viewer.
int64_t threadOf(const TraceSpan& s) {
  return s.lane * kRows + static_cast<int64_t>(s.row) + std::max<int64_t>(s.queue - 1, 0) * kMostThreads;
}

std::string metadata(int64_t rank, int64_t row, std::string_view what, std::string_view key, const std::string& value) {
  return fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{"{}":{}}}}})", rank, row, what, key, value);
}

}  // namespace

std::string_view name(TraceRow row) {
  constexpr std::string_view kNames[kRows] = {"calls", "kernels", "collectives", "waits"};
  return kNames[static_cast<int64_t>(row)];
}

void Trace::clear() {
  std::lock_guard lock(mutex_);
  spans_.clear();
  dropped_ = 0;
}

int64_t Trace::begin() const {
  std::lock_guard lock(mutex_);
  return spans_.empty() ? kNoSpan : std::ranges::min(spans_ | std::views::transform(&TraceSpan::begin));
}

std::string Trace::events(int64_t zero) const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> lines{metadata(rank_, 0, "process_name", "name", jsonText(fmt::format("rank {}", rank_))),
                                 metadata(rank_, 0, "process_sort_index", "sort_index", std::to_string(rank_))};
  for (int64_t lane = 0; lane < std::ssize(lanes_); lane++) {
    for (int64_t row = 0; row < kRows; row++) {
      const std::string_view what = name(static_cast<TraceRow>(row));
      const int64_t id = static_cast<int64_t>(lane) * kRows + row;
      lines.push_back(metadata(rank_, id, "thread_name", "name",
                               jsonText(lane == 0 ? std::string(what) : fmt::format("{} {}", what, lane + 1))));
      lines.push_back(metadata(rank_, id, "thread_sort_index", "sort_index", std::to_string(id)));
    }
  }
  std::set<int64_t> moreQueues;
  for (const TraceSpan& s : spans_) {
    if (s.queue > 1 && moreQueues.insert(threadOf(s)).second) {
      const std::string what = fmt::format("{} of queue {}", name(s.row), s.queue);
      lines.push_back(metadata(rank_, threadOf(s), "thread_name", "name", jsonText(what)));
      lines.push_back(metadata(rank_, threadOf(s), "thread_sort_index", "sort_index", std::to_string(threadOf(s))));
    }
    const std::string arguments =
        fmt::format("\"call\":{}{}{}", s.call, s.step < 0 ? "" : fmt::format(",\"step\":{}", s.step),
                    s.row != TraceRow::Collectives ? "" : fmt::format(",\"bytes_received\":{}", s.bytes));
    lines.push_back(fmt::format(R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"cat":"{}","name":{},"args":{{{}}}}})",
                                rank_, threadOf(s), microseconds(s.begin - zero), microseconds(s.end - s.begin),
                                name(s.row), jsonText(s.name), arguments));
  }
  if (dropped_ > 0) {
    lines.push_back(
        metadata(rank_, 0, "process_labels", "labels", jsonText(fmt::format("{} later spans dropped", dropped_))));
  }
  return joined(lines, ",\n");
}

TracedCall::TracedCall(Trace& trace, const HostProgram& program) : trace_(trace), program_(program), observe_(*this) {
  std::lock_guard lock(trace_.mutex_);
  lane_ = positionIn(trace_.lanes_, false);
  trace_.lanes_.resize(std::max(std::ssize(trace_.lanes_), lane_ + 1));
  trace_.lanes_[lane_] = true;
  begin_ = Clock::now();  // under the lock: after the end of the previous call in this lane
}

TracedCall::~TracedCall() {
  const auto end = Clock::now();
  std::lock_guard lock(trace_.mutex_);
  trace_.lanes_[lane_] = false;
  const int64_t call = ++trace_.calls_;
  const auto add = [&](TraceSpan span) {
    if (trace_.spans_.size() == Trace::kMostSpans) {
      trace_.dropped_++;
      return;
    }
    span.lane = lane_;
    span.call = call;
    trace_.spans_.push_back(std::move(span));
  };
  add({.row = TraceRow::Calls,
       .name = fmt::format("call {}", call),
       .begin = nanoseconds(begin_),
       .end = nanoseconds(end)});
  for (const TraceRow row : {TraceRow::Kernels, TraceRow::Collectives}) {
    for (const StepRecord& r : records_) {
      if ((r.step->kind == HostStepKind::Communicate) == (row == TraceRow::Collectives)) {
        add({.row = row,
             .name = r.step->name,
             .begin = nanoseconds(r.begin),
             .end = nanoseconds(r.end),
             .step = r.step - program_.steps.data(),
             .bytes = r.bytesReceived,
             .queue = r.step->order.queue});
      }
    }
  }
  for (const Wait& w : waits_) {
    const auto during = std::ranges::find_if(records_, [&](const StepRecord& r) {
      return r.step->kind == HostStepKind::Communicate && r.begin <= w.begin && w.end <= r.end;
    });
    const bool known = during != records_.end();
    add({.row = TraceRow::Waits,
         .name = known ? "wait in " + during->step->name : "wait",
         .begin = nanoseconds(w.begin),
         .end = nanoseconds(w.end),
         .step = known ? during->step - program_.steps.data() : -1});
  }
}

std::string chromeTrace(std::span<const std::string> eventsOfRanks) {
  return fmt::format("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{}\n]}}\n", fmt::join(eventsOfRanks, ",\n"));
}

namespace {

// A trace and the file it is written to at the end of the process.
struct TraceFile {
  TraceFile(int64_t rank, const std::string& path) : trace(rank), file(path) {
    check(file.good(),
          "[trace] cannot write the file {}, named by MESHFUSE_TRACE; name a file in a directory that exists", path);
  }
  Trace trace;
  std::ofstream file;
};

// Never destroyed: threads and executor caches that outlive main() may still record calls.
struct TraceFiles {
  static TraceFiles& ofProcess() {
    static TraceFiles* const files = [] {
      std::atexit([] { ofProcess().write(); });
      return new TraceFiles;
    }();
    return *files;
  }
  Trace* of(int64_t rank, const std::string& path) {
    std::lock_guard lock(mutex);
    return &byRank.try_emplace(rank, rank, path).first->second.trace;
  }
  void write() {
    std::lock_guard lock(mutex);
    for (auto& [rank, traced] : byRank) {
      const int64_t first = traced.trace.begin();
      const int64_t zero = first == kNoSpan ? 0 : first - first % kExactInJson;
      traced.file << chromeTrace(std::vector{traced.trace.events(zero)}) << std::flush;
    }
  }

  std::mutex mutex;
  std::map<int64_t, TraceFile> byRank;
};

}  // namespace

Trace* traceOfEnvironment(int64_t rank) {
  const char* file = std::getenv("MESHFUSE_TRACE");
  if (file == nullptr || *file == '\0') {
    return nullptr;
  }
  const std::filesystem::path path(file);
  const std::string name = fmt::format("{}.rank{}{}", path.stem().string(), rank, path.extension().string());
  return TraceFiles::ofProcess().of(rank, (path.parent_path() / name).string());
}

}  // namespace meshfuse
