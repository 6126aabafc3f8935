// The rows a benchmark writes, and the clock it uses.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace meshfuse {

struct Figure {
  std::string name;
  double figure = 0;
  std::string unit;
  std::optional<double> goal = {};  // of a time: on the reference machine, see calibration.h
  std::string better;               // "higher" or "lower"
};

// The middle value; of an even number the mean of the two.
[[nodiscard]] double median(std::vector<double> values);
// Seconds of one call.
[[nodiscard]] double secondsOf(const std::function<void()>& call);
// Memory of this process that is resident now.
[[nodiscard]] double residentMiB();
// Memory that the heap of this process has given out and not got back, of all threads.
[[nodiscard]] double heapMiB();
// What 50 new shapes may add to it, if the shapes that are kept are the same before and after: tables of the sizes that ranks have agreed on.
inline constexpr double kMostHeapMiB = 0.1;
struct Memory {
  double heap = heapMiB();
  double resident = residentMiB();
};
// Runs the registered Google Benchmarks, prints their table, and writes the figures they recorded to the file after --json.
int runBenchmarks(int argc, char** argv);
// To be written by runBenchmarks; the last one of a name counts.
void record(Figure figure);
// Writes what has been recorded, as JSON. slowness: of this machine, by which goals that are times are multiplied.
void writeFigures(const std::string& file, double slowness = 1);

}  // namespace meshfuse
