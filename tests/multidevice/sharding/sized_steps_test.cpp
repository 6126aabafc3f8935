// The steps of a plan for one size, for other sizes.
#include "multidevice/sharding/sized_steps.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "base/ranges.h"
#include "multidevice/sharding/plan_check.h"
#include "multidevice/sharding/planner.h"

namespace meshfuse {

namespace {

// By dim: the axes that own its digits, the outermost first, and kLocal for the local one.
using Owners = std::vector<std::vector<int64_t>>;

ShardState stateOf(const DeviceMesh& mesh, const std::vector<int64_t>& extents, const Owners& owners,
                   const std::vector<int64_t>& partial) {
  ShardState state{mesh, {}, partial};
  for (const int64_t k : indices(extents)) {
    const auto sizeOf = [&](int64_t axis) { return axis == kLocal ? 1 : mesh.axisSize(axis).constValue(); };
    const int64_t local = extents[k] / productOf(owners[k], sizeOf);
    std::vector<Digit> owned;
    int64_t stride = 1;
    for (const int64_t axis : owners[k] | std::views::reverse) {
      if (axis != kLocal) {
        owned.push_back({k, stride, sizeOf(axis), Owner::device(axis)});
      }
      stride *= axis == kLocal ? local : sizeOf(axis);
    }
    state.dims.push_back(fillLocal(k, extents[k], owned));
  }
  return state;
}

// Each axis owns a digit of a dim, none, or is one of a sum.
Owners randomOwners(std::mt19937& rng, const DeviceMesh& mesh, int64_t dims, std::vector<int64_t>* partial) {
  Owners owners(dims, {kLocal});
  for (int64_t axis = 0; axis < mesh.numAxes(); axis++) {
    const int64_t k = static_cast<int64_t>(rng() % (dims + 2));
    if (k < dims) {
      owners[k].insert(owners[k].begin() + static_cast<ptrdiff_t>(rng() % 3 == 0 ? rng() % (owners[k].size() + 1) : 0),
                       axis);
    } else if (k > dims && partial != nullptr) {
      partial->push_back(axis);
    }
  }
  return owners;
}

// Plans that cost the same may cut other dims.
std::vector<std::vector<int64_t>> ownersOf(const std::vector<CommStep>& steps) {
  std::vector<std::vector<int64_t>> owners;
  for (const CommStep& step : steps) {
    append(owners, mapped(step.before.dims, [](const PlanDim& dim) { return ownersOf(dim); }));
  }
  return owners;
}

std::vector<std::string> textOf(const std::vector<CommStep>& steps) { return mapped(steps, &CommStep::toString); }

TEST(SizedSteps, LeadFromTheSameStateToTheSameForOtherSizes) {
  std::mt19937 rng(5);
  int64_t held = 0;
  int64_t same = 0;
  int64_t others = 0;
  for (const DeviceMesh& mesh :
       {DeviceMesh::create({{"x", 4}}), DeviceMesh::create({{"y", 2}, {"x", 2}}),
        DeviceMesh::create({{"y", 2}, {"x", 3}}), DeviceMesh::create({{"z", 2}, {"y", 2}, {"x", 2}})}) {
    const int64_t devices = mesh.numDevices();
    const IntExpr rows = devices * IntExpr::symbol("n", {.lower = 2});
    const std::vector<IntExpr> extents{rows, 24};
    for (int trial = 0; trial < 250; trial++) {
      std::vector<int64_t> sums;
      const Owners from = randomOwners(rng, mesh, 2, &sums);
      const Owners to = randomOwners(rng, mesh, 2, nullptr);
      const auto fromFor = [&](int64_t n) { return stateOf(mesh, {n, 24}, from, sums); };
      const auto toFor = [&](int64_t n) { return stateOf(mesh, {n, 24}, to, {}); };
      const int64_t plannedRows = devices * static_cast<int64_t>(2 + rng() % 6);
      const std::vector<CommStep> steps = planRedistribution(fromFor(plannedRows), toFor(plannedRows)).steps;
      if (!whyOfOneSize(steps, extents).empty()) {
        continue;
      }
      held++;
      EXPECT_EQ(stepsFor(steps, extents, {plannedRows, 24}), steps);
      for (const CommStep& step : steps) {
        EXPECT_EQ(plannedExtents(step, extents), (std::vector<int64_t>{plannedRows, 24}));
      }
      for (int64_t n = 2 * devices; n <= 8 * devices; n += devices) {
        const std::vector<CommStep> sized = stepsFor(steps, extents, {n, 24});
        const std::string what =
            fmt::format("{} -> {}: {}", fromFor(n).toString(), toFor(n).toString(), fmt::join(textOf(steps), ", "));
        EXPECT_EQ(mistakeOf(sized, fromFor(n), toFor(n)).value_or(""), "") << what;
        const std::vector<CommStep> alone = planRedistribution(fromFor(n), toFor(n)).steps;
        const bool isSame = textOf(alone) == textOf(sized) && ownersOf(alone) == ownersOf(sized);
        (isSame ? same : others)++;
        EXPECT_TRUE(!isSame || alone == sized) << what;
        for (const CommStep& step : steps) {
          for (const PlanState* state : {&step.before, &step.after}) {
            const CommStep& ofSize = sized[&step - steps.data()];
            const PlanDim& expected = (state == &step.before ? ofSize.before : ofSize.after).dims[0];
            const SizedDim digits = digitsFor(state->dims[0], rows);
            const auto valueOf = [&](const IntExpr& e) {
              return e.evaluate([&](std::string_view) { return std::optional(n / devices); });
            };
            EXPECT_EQ(mapped(digits,
                             [&](const SizedDigit& d) {
                               return PlanDigit{valueOf(d.stride), valueOf(d.size), d.atom};
                             }),
                      expected)
                << what;
          }
        }
      }
    }
  }
  EXPECT_GE(held, 500);
  EXPECT_GE(same, 9 * others);
  RecordProperty("held", static_cast<int>(held));
  fmt::print("{} plans hold for all sizes; for {} of {} sizes a plan alone takes the same way\n", held, same,
             same + others);
}

TEST(SizedSteps, SayWhyTheyHoldForOneSize) {
  const DeviceMesh mesh = DeviceMesh::create({{"x", 4}});
  const auto whyFor = [&](const Owners& from, const Owners& to, const IntExpr& rows) {
    const std::vector<CommStep> steps =
        planRedistribution(stateOf(mesh, {16, 24}, from, {}), stateOf(mesh, {16, 24}, to, {})).steps;
    return whyOfOneSize(steps, {rows, 24});
  };
  const IntExpr any = IntExpr::symbol("n", {.lower = 2});
  const Owners rows{{0, kLocal}, {kLocal}};
  const Owners columns{{kLocal}, {0, kLocal}};
  const Owners whole{{kLocal}, {kLocal}};
  EXPECT_EQ(whyFor(rows, columns, 4 * any), "");
  EXPECT_EQ(whyFor(columns, whole, any), "") << "the rows are whole on each rank";
  EXPECT_EQ(whyFor(rows, columns, any), "the 4 devices do not divide dim 0 of n elements");
  EXPECT_EQ(whyFor(rows, columns, 2 * any), "the 4 devices do not divide dim 0 of n*2 elements");
  EXPECT_EQ(whyFor(rows, columns, 16), "");
}

}  // namespace

}  // namespace meshfuse
