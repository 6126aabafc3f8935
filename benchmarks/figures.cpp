#include "figures.h"

#include <benchmark/benchmark.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "calibration.h"

namespace meshfuse {

namespace {

std::map<std::string, Figure>& figures() {
  static std::map<std::string, Figure> rows;
  return rows;
}

bool isTime(const Figure& f) { return f.unit == "ns" || f.unit == "us" || f.unit == "ms"; }

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double secondsOf(const std::function<void()>& call) {
  auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void record(Figure figure) { figures()[figure.name] = std::move(figure); }

void writeFigures(const std::string& file, double slowness) {
  nlohmann::json rows = nlohmann::json::array();
  for (const auto& [name, f] : figures()) {
    const nlohmann::json goal = f.goal ? nlohmann::json(*f.goal * (isTime(f) ? slowness : 1)) : nlohmann::json();
    rows.push_back({{"name", f.name}, {"figure", f.figure}, {"unit", f.unit}, {"goal", goal}, {"better", f.better}});
  }
  std::ofstream(file) << rows.dump(1) << "\n";
}

double residentMiB() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  int64_t resident = 0;
  statm >> pages >> resident;
  return static_cast<double>(resident * sysconf(_SC_PAGESIZE)) / (1 << 20);
}

double heapMiB() {
  const struct mallinfo2 info = mallinfo2();  // the sums over the arenas of all threads
  return static_cast<double>(info.uordblks + info.hblkhd) / (1 << 20);
}

int runBenchmarks(int argc, char** argv) {
  std::string file;
  std::vector<char*> rest;
  for (int i = 0; i < argc; i++) {
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      file = argv[++i];
    } else {
      rest.push_back(argv[i]);
    }
  }
  int count = static_cast<int>(rest.size());
  benchmark::Initialize(&count, rest.data());
  if (benchmark::ReportUnrecognizedArguments(count, rest.data())) {
    return 2;
  }
  const double slowness = calibrationMilliseconds() / kReferenceMilliseconds;
  benchmark::RunSpecifiedBenchmarks();
  record({"calibration loop, time over that of the reference machine", slowness, "x", {}, "lower"});
  if (!file.empty()) {
    writeFigures(file, slowness);
  }
  return 0;
}

}  // namespace meshfuse
