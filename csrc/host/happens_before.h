// The partial order of the steps of a host program, and whether collectives run beside other steps.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace meshfuse {

// How collectives run beside other steps.
struct Overlap {
  bool allowed = false;                // the same on all ranks
  std::optional<int64_t> memory = {};  // bytes that arguments, results and arena of a rank may have for it
  // Some kernel may refuse an index. If collectives run beside other steps, or are work of the device, the ranks therefore meet at the end of a
  // call; if one has refused an index, the call fails on all.
  bool endsTogether = false;
};

// The order that a step records: it begins after the step before it on its queue has ended, and after the steps that it waits for.
struct StepOrder {
  int64_t queue = 0;
  std::vector<int64_t> waits;  // earlier steps
  friend bool operator==(const StepOrder&, const StepOrder&) = default;
};

// Which steps have ended before another step begins: the transitive closure of their orders. Steps are numbered as they are appended.
class HappensBefore {
 public:
  void append(const StepOrder& order);
  // Appends a step of a queue that must begin after these steps have ended. Returns its order: it waits for as few steps as that takes.
  StepOrder appendAfter(int64_t queue, std::vector<int64_t> steps);
  // True if `first` has ended before `then` begins. A step does not happen before itself.
  bool operator()(int64_t first, int64_t then) const { return holds(before_[then], first); }
  int64_t steps() const { return std::ssize(before_); }

 private:
  using Row = std::vector<uint64_t>;  // the steps that have ended, as bits; only earlier ones
  static bool holds(const Row& row, int64_t step) {
    return step / 64 < std::ssize(row) && (row[step / 64] >> (step % 64) & 1) != 0;
  }
  Row rowOf(int64_t queue) const;
  void follow(Row& row, int64_t step) const;
  void keep(int64_t queue, Row row);

  std::vector<Row> before_;
  std::map<int64_t, int64_t> last_;  // step of each queue
};

}  // namespace meshfuse
