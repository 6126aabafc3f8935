#include "simt/program_cases.h"

#include <utility>

namespace meshfuse::simt {

using namespace tile;
using enum DataType;

namespace {

constexpr Target kGpu = Target::Gpu;

}  // namespace

std::vector<Comparison> pointwisePrograms() {
  std::vector<Comparison> cases;
  for (DataType t : {Float, BFloat16, Half, Double}) {
    for (int64_t n : {1, 15, 1003, 4096}) {
      cases.push_back({addProgram(kGpu, t, n), 1});
    }
    cases.push_back({biasGeluProgram(kGpu, t, 5, 96), 16});
    cases.push_back({biasGeluProgram(kGpu, t, 3, 1027), 16});
    cases.push_back({gatherProgram(kGpu, t, 11, 21, 48), 0});
    cases.push_back({gatherProgram(kGpu, t, 10, 7, 33), 0});
    cases.push_back({dropoutProgram(kGpu, t, 1000), 4});
  }
  cases.push_back({padCatProgram(kGpu, Float, 5, 37, 64), 0});
  cases.push_back({padCatProgram(kGpu, Double, 3, 1, 8), 0});
  return cases;
}

// Sums of n terms below 2 in magnitude: n roundings of partial sums, relative to values of the order of one.
std::vector<Comparison> rowPrograms() {
  std::vector<Comparison> cases;
  for (DataType t : {Float, BFloat16, Half, Double}) {
    for (auto [m, n] : std::vector<std::pair<int64_t, int64_t>>{{3, 7}, {6, 129}, {3, 1333}, {2, 4096}}) {
      auto steps = static_cast<double>(4 * n);
      cases.push_back({innerSumProgram(kGpu, t, m, n), steps});
      cases.push_back({softmaxProgram(kGpu, t, m, n), steps});
      cases.push_back({layerNormProgram(kGpu, t, m, n), steps});
    }
  }
  return cases;
}

std::vector<Comparison> columnPrograms() {
  std::vector<Comparison> cases;
  for (DataType t : {Float, BFloat16, Half, Double}) {
    for (auto [m, n] : std::vector<std::pair<int64_t, int64_t>>{{3, 7}, {200, 136}, {65, 33}}) {
      cases.push_back({outerSumProgram(kGpu, t, m, n), static_cast<double>(4 * m)});
      cases.push_back({transposeProgram(kGpu, t, m, n), 0});
    }
  }
  return cases;
}

}  // namespace meshfuse::simt
