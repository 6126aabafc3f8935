#include "multidevice/transport/flight_recorder.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/limits.h"
#include "base/regular_file.h"
#include "tensor/dtype.h"
#include "tensor/reduce_op.h"

namespace meshfuse {

namespace {

constexpr size_t kShown = 200;  // characters of a wrong line

bool isIn(int64_t number, int64_t count) { return number >= 0 && number < count; }

constexpr std::string_view kFormat = "meshfuse flight record 2";

int64_t calendarTime() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string fileOf(const FlightPlace& place, int64_t rank) {
  return fmt::format("{}/{}.rank{}.flight", place.directory, place.world, rank);
}

std::string eventLine(const FlightEvent& e, int64_t begin, int64_t end) {
  const CallRecord& c = e.call;
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}\n", e.sequence, e.teamSequence, begin, end,
                     e.step, static_cast<int64_t>(c.kind), static_cast<int64_t>(c.type), static_cast<int64_t>(c.op),
                     c.root, c.count, c.teamHash, c.teamMask, static_cast<int64_t>(c.ragged), c.countHash, c.program,
                     static_cast<int64_t>(e.way), std::string_view(e.what, strnlen(e.what, sizeof(e.what))));
}

// Replaces the file atomically, so a reader never sees half a record.
void writeFile(const FlightPlace& place, int64_t rank, const FlightRing& ring, std::string_view failure) {
  std::string text = fmt::format("{}\nworld {}\ntransport {}\nrank {} {}\nwriter {}\nopened {}\n", kFormat, place.world,
                                 place.transport, rank, place.size, place.rank, ring.openedTime);
  std::string oneLine(failure);
  std::ranges::replace(oneLine, '\n', ' ');
  const uint64_t calls = ring.calls.load(std::memory_order_acquire);
  const uint64_t first = calls > FlightRing::kEvents ? calls - FlightRing::kEvents + 1 : 1;
  text += fmt::format("failure {}\ncalls {}\n", oneLine, calls);
  const auto ticks = static_cast<double>(__rdtsc() - ring.openedTicks);
  const double nanosecondsPerTick = ticks > 0 ? static_cast<double>(calendarTime() - ring.openedTime) / ticks : 0;
  const auto timeOf = [&](uint64_t at) {
    const double sinceOpened = static_cast<double>(at - ring.openedTicks) * nanosecondsPerTick;
    return at <= FlightEvent::kEnded ? static_cast<int64_t>(at) : ring.openedTime + static_cast<int64_t>(sinceOpened);
  };
  for (uint64_t s = first; s <= calls; ++s) {
    const FlightEvent& event = ring.events[s % FlightRing::kEvents];
    text += event.sequence == s ? eventLine(event, timeOf(event.begin), timeOf(event.end)) : "";
  }
  std::filesystem::create_directories(place.directory);
  const std::string file = fileOf(place, rank);
  const std::string unfinished = fmt::format("{}.{}.{}", file, getpid(), place.rank);
  std::ofstream(unfinished) << text;
  std::filesystem::rename(unfinished, file);
}

// The time at which the ring recorded in `file` was opened; 0: no such record. The time of the file would be inexact: the clock of a
// file system may lag behind by some milliseconds.
int64_t openedOf(const std::string& file) {
  std::error_code none;
  if (!std::filesystem::exists(file, none)) {
    return 0;
  }
  std::istringstream in(readRegularFile("flight record", file, kMostTextBytes));
  int64_t opened = 0;
  for (std::string key; opened == 0 && in >> key; std::getline(in, key)) {
    if (key == "opened") {
      in >> opened;
    }
  }
  return opened;
}

}  // namespace

FlightRecorder::FlightRecorder(FlightRing& ring, FlightPlace place) : ring_(ring), place_(std::move(place)) {
  ring_.openedTime = calendarTime();
  ring_.openedTicks = __rdtsc();
}

void FlightRecorder::write(std::string_view failure) noexcept {
  if (!std::exchange(written_, true)) {
    writeFor(place_.rank, ring_, failure);
  }
}

void FlightRecorder::writeFor(int64_t rank, const FlightRing& ring, std::string_view failure) const noexcept {
  if (place_.directory.empty()) {
    return;
  }
  try {
    // A peer's own record has priority; a file of an earlier run is replaced.
    if (rank == place_.rank || openedOf(fileOf(place_, rank)) != ring.openedTime) {
      writeFile(place_, rank, ring, failure);
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "meshfuse: no flight record of rank {}: {}\n", rank, e.what());
  }
}

std::string flightDirectory(const std::string& chosen) {
  const char* directory = std::getenv("MESHFUSE_FLIGHT_DIR");
  return chosen.empty() && directory != nullptr ? directory : chosen;
}

FlightRecord readFlightRecord(const std::string& file) {
  std::istringstream in(readRegularFile("blame", file, kMostTextBytes));
  std::string line;
  std::getline(in, line);
  check(line == kFormat, "[blame] {} is no flight record: its first line is '{}', expected '{}'", file,
        line.substr(0, 40), kFormat);
  FlightRecord record;
  int64_t writer = 0;
  int64_t lastTime = 0;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::string key;
    words >> key;
    const std::string rest = line.size() > key.size() ? line.substr(key.size() + 1) : "";
    if (key == "world") {
      record.world = rest;
    } else if (key == "transport") {
      record.transport = rest;
    } else if (key == "rank") {
      words >> record.rank >> record.size;
      check(!words.fail() && record.size <= kMostDevices && record.rank >= 0 && record.rank < record.size,
            "[blame] {}: '{}' names no rank of a world of at most {}; give the file as a rank wrote it", file,
            line.substr(0, kShown), kMostDevices);
    } else if (key == "writer") {
      words >> writer;
    } else if (key == "opened") {
      words >> lastTime;
      check(!words.fail() && lastTime >= 0, "[blame] {}: '{}' is no time; give the file as a rank wrote it", file,
            line.substr(0, kShown));
    } else if (key == "failure") {
      record.failure = rest;
    } else if (key != "calls") {
      FlightRecord::Entry e;
      CallRecord& c = e.event.call;
      int64_t kind = 0;
      int64_t type = 0;
      int64_t op = 0;
      int64_t way = 0;
      std::istringstream event(line);
      event >> e.event.sequence >> e.event.teamSequence >> e.begin >> e.end >> e.event.step >> kind >> type >> op >>
          c.root >> c.count >> c.teamHash >> c.teamMask >> c.ragged >> c.countHash >> c.program >> way;
      const bool isNamed = isIn(kind, static_cast<int64_t>(Collective::Close) + 1) &&
                           isIn(type, std::ssize(kDataTypes)) && isIn(op, std::ssize(kReduceOpNames)) &&
                           isIn(way, static_cast<int64_t>(Algorithm::Scatter) + 1);
      check(!event.fail() && isNamed && e.begin >= 0 && e.end >= 0,
            "[blame] {}: '{}' is no call; give the file as a rank wrote it", file, line.substr(0, kShown));
      c.kind = static_cast<Collective>(kind);
      c.type = static_cast<DataType>(type);
      c.op = static_cast<ReduceOp>(op);
      e.event.way = static_cast<Algorithm>(way);
      std::string what;
      std::getline(event >> std::ws, what);
      std::memcpy(e.event.what, what.data(), std::min(what.size(), sizeof(e.event.what) - 1));
      e.timed = e.begin != 0;
      e.begin = e.timed ? e.begin : lastTime;
      lastTime = std::max(e.begin, e.end);
      record.calls.push_back(e);
    }
  }
  record.writer = writer == record.rank ? "" : fmt::format("rank {}", writer);
  return record;
}

}  // namespace meshfuse
