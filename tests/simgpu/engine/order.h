// Which operations are ordered before which, and which bytes they touch: two that touch the same byte, one of them writing, must be ordered.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace simgpu {

// By stream: how many of its operations are known to have ended.
class Clock {
 public:
  void join(const Clock& other);
  void know(uint64_t stream, uint64_t number);
  void forget(uint64_t stream) {
    std::erase_if(numbers_, [&](const auto& entry) { return entry.first == stream; });
  }
  bool knows(uint64_t stream, uint64_t number) const;
  void forget(const std::set<uint64_t>& streams);

 private:
  std::vector<std::pair<uint64_t, uint64_t>> numbers_;  // by stream
};

// An operation on a stream, numbered from 1 in the order of the stream. Its clocks are known when it runs.
// A node of a graph has a stream of its own, on which the launches of the graph are numbered, and lies within the operation that launches it.
struct Operation {
  bool isBefore(const Operation& other) const;
  // The stream by which others know of it.
  uint64_t outerStream() const { return launchStream != 0 ? launchStream : stream; }

  uint64_t stream = 0;
  uint64_t number = 0;
  uint64_t launchStream = 0;  // of a node: the operation that launches the graph
  uint64_t launchNumber = 0;
  Clock before;           // what is ordered before it
  Clock after;            // and before all that waits for its end
  bool hasEnded = false;  // a node
  std::chrono::steady_clock::time_point endTime;
  std::string name;  // for reports: "cuMemcpyHtoDAsync #12 on stream 3"
};

class Accesses {
 public:
  // Returns the operation that is not ordered before `by` but touched one of these bytes, where one of the two writes; else nothing.
  std::shared_ptr<const Operation> touch(uint64_t begin, uint64_t end, bool writes,
                                         const std::shared_ptr<const Operation>& by);

  // Nobody has touched these bytes: they are a new allocation. The driver orders it after the free of the one before.
  void forget(uint64_t begin, uint64_t end);
  // All that comes is ordered after the operations of these streams, and after the graphs that were launched there.
  void forget(const std::set<uint64_t>& streams);

 private:
  struct Bytes {
    uint64_t end = 0;
    std::shared_ptr<const Operation> writer;
    std::vector<std::shared_ptr<const Operation>> readers;  // since the write
  };
  // Makes `at` a border of ranges.
  void cut(uint64_t at);

  std::map<uint64_t, Bytes> bytes_;  // by their begin; do not overlap
};

}  // namespace simgpu
