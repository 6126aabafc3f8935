// Plans run on values, one array a rank, and compared with what the destination is to hold.
#include "multidevice/sharding/planner.h"
#include "multidevice/sharding/held_tiles.h"
#include "multidevice/sharding/step_amounts.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <set>

#include "base/error.h"
#include "digits/part_sizes.h"
#include "multidevice/sharding/atoms.h"
#include "multidevice/sharding/held_part.h"
#include "multidevice/sharding/plan_check.h"
#include "multidevice/sharding/random_pair.h"
#include "multidevice/sharding/tile_transfer.h"
#include "sanitized.h"

namespace meshfuse {
namespace {

using Held = std::map<int64_t, int64_t>;  // element -> value

std::vector<IntExpr> exprs(const std::vector<int64_t>& v) { return {v.begin(), v.end()}; }

ShardState stateOnAtoms(const CommStep& step, const PlanState& state, const std::vector<int64_t>& extents) {
  return shardState(state, step.on.atoms, exprs(extents));
}

// Positions of the team of `device` along the step's axes, in row-major order of the axes.
std::vector<int64_t> teamOf(const CommStep& step, int64_t device) {
  std::vector<int64_t> ids = step.on.atoms.team(step.on.atoms.devices()[device], step.axes);
  std::vector<int64_t> positions;
  for (int64_t id : ids) {
    positions.push_back(step.on.atoms.indexOf(id));
  }
  return positions;
}

// What is kept and what messages bring, added up on zeros.
void fetch(const TileTransfer& transfer, const std::vector<int64_t>& extents, std::vector<Held>& data) {
  std::vector<Held> next(transfer.toMesh.numDevices());
  const ShardState after = shardState(transfer.after, transfer.toMesh, exprs(extents));
  for (size_t device = 0; device < next.size(); device++) {
    for (int64_t e : heldElements(after, extents, static_cast<int64_t>(device))) {
      next[device][e] = 0;
    }
  }
  for (const std::vector<TileMessage>* list : {&transfer.messages, &transfer.kept}) {
    for (const TileMessage& m : *list) {
      std::vector<int64_t> flat{0};
      const Part sent = intersection(heldPart(transfer.before, extents, transfer.fromMesh.coordinates(m.from)),
                                     heldPart(transfer.after, extents, transfer.toMesh.coordinates(m.to)));
      for (size_t k = 0; k < sent.dims.size(); k++) {
        std::vector<int64_t> longer;
        for (int64_t prefix : flat) {
          for (const IndexRun& r : sent.dims[k]) {
            for (int64_t i = 0; i < r.count; i++) {
              longer.push_back(prefix * extents[k] + r.start + i * r.step);
            }
          }
        }
        flat = std::move(longer);
      }
      ASSERT_EQ(std::ssize(flat), m.elements);
      for (int64_t e : flat) {
        const Held& sender = data[transfer.fromMesh.indexOf(m.from)];
        ASSERT_TRUE(sender.count(e));
        next[transfer.toMesh.indexOf(m.to)][e] += sender.at(e);
      }
    }
  }
  data = std::move(next);
}

// One step on the data of all ranks. A gather or exchange may only deliver what some member of the team holds.
void run(const CommStep& step, const std::vector<int64_t>& extents, std::vector<Held>& data) {
  if (step.to) {
    fetch(tileTransfer(step, extents), extents, data);
    return;
  }
  const ShardState after = stateOnAtoms(step, step.after, extents);
  std::vector<Held> next(data.size());
  for (size_t device = 0; device < data.size(); device++) {
    const std::vector<int64_t> team = teamOf(step, static_cast<int64_t>(device));
    int64_t fromTeam = 0;
    std::map<int64_t, int64_t> bySender;
    for (int64_t e : heldElements(after, extents, static_cast<int64_t>(device))) {
      switch (step.kind) {
        case Collective::Local: {
          if (step.before.partial == step.after.partial) {
            ASSERT_TRUE(data[device].count(e)) << step.toString();
            next[device][e] = data[device][e];
            break;
          }
          const int64_t axis = step.axes.at(0);
          const std::vector<int64_t> owners = usedAtoms(step.before);
          const bool owned = std::count(owners.begin(), owners.end(), axis) > 0;
          const bool keeps = owned || step.on.atoms.coordinates(step.on.atoms.devices()[device])[axis] == 0;
          next[device][e] = keeps && data[device].count(e) > 0 ? data[device][e] : 0;
          break;
        }
        case Collective::Transfer: {
          const int64_t source = step.sources[device];
          ASSERT_TRUE(std::count(team.begin(), team.end(), source)) << "the source is in the team";
          ASSERT_TRUE(data[source].count(e)) << step.toString();
          next[device][e] = data[source][e];
          break;
        }
        case Collective::AllReduce:
        case Collective::ReduceScatter:
          for (int64_t member : team) {
            ASSERT_TRUE(data[member].count(e)) << step.toString();
            next[device][e] += data[member][e];
          }
          break;
        case Collective::AllGather:
        case Collective::AllToAll: {
          auto holder =
              std::find_if(team.begin(), team.end(), [&](int64_t member) { return data[member].count(e) > 0; });
          ASSERT_NE(holder, team.end()) << step.toString();
          next[device][e] = data[*holder][e];
          bySender[*holder]++;
          fromTeam += *holder != static_cast<int64_t>(device) ? 1 : 0;
          break;
        }
        default:
          FAIL() << step.toString();
      }
    }
    const bool gathers = step.kind == Collective::AllToAll || step.kind == Collective::AllGather;
    if (gathers && isEven(step, extents)) {
      ASSERT_EQ(bySender.size(), team.size()) << "every member sends: " << step.toString();
      for (const auto& [sender, count] : bySender) {
        ASSERT_EQ(count, bySender.begin()->second) << "even counts: " << step.toString();
      }
      ASSERT_LE(fromTeam, elementsReceived(step, extents));
    }
  }
  if (step.kind == Collective::Transfer) {
    std::vector<int64_t> sorted = step.sources;
    std::sort(sorted.begin(), sorted.end());
    ASSERT_EQ(std::unique(sorted.begin(), sorted.end()), sorted.end()) << "every rank sends once";
  }
  data = std::move(next);
}

void expectPlanWorks(const RedistributionPlan& plan, const ShardState& from, const ShardState& to,
                     const std::vector<int64_t>& extents) {
  const int64_t devices = from.mesh.numDevices();
  std::vector<Held> data(devices);
  std::map<int64_t, int64_t> truth;
  std::set<std::pair<int64_t, int64_t>> counted;  // each contribution to an element once
  for (int64_t device = 0; device < devices; device++) {
    // Contributions differ between coordinates of the partial axes and agree elsewhere.
    int64_t contribution = 0;
    const std::vector<int64_t> at = from.mesh.coordinates(from.mesh.devices()[device]);
    for (int64_t axis : from.partial) {
      contribution = contribution * from.mesh.axisSize(axis).constValue() + at[axis];
    }
    for (int64_t e : heldElements(from, extents, device)) {
      data[device][e] = (e + 1) * 1000 + contribution * contribution + 7 * contribution;
    }
    for (const auto& [e, v] : data[device]) {
      if (counted.emplace(e, contribution).second) {
        truth[e] += v;
      }
    }
  }
  for (const CommStep& step : plan.steps) {
    ASSERT_NO_FATAL_FAILURE(run(step, extents, data)) << step.toString();
  }
  ASSERT_EQ(data.size(), to.mesh.devices().size());
  for (int64_t device = 0; device < to.mesh.numDevices(); device++) {
    Held expected;
    Held found;
    for (int64_t e : heldElements(to, extents, device)) {
      expected[e] = truth[e];
    }
    ASSERT_EQ(data[device].size(), expected.size()) << "device " << device;
    for (int64_t member : to.mesh.team(to.mesh.devices()[device], to.partial)) {
      for (const auto& [e, v] : data[to.mesh.indexOf(member)]) {
        found[e] += v;
      }
    }
    ASSERT_EQ(found, expected) << "device " << device;
  }
}

// The chain of collectives; what is planned where tiles may be sent directly receives no more.
std::vector<std::string> planned(const ShardState& from, const ShardState& to, const std::vector<int64_t>& extents,
                                 PlanOptions options = {}) {
  const RedistributionPlan cheapest = planRedistribution(from, to, options);
  options.direct = DirectChoice::Fallback;
  const RedistributionPlan plan = planRedistribution(from, to, options);
  expectPlanWorks(plan, from, to, extents);
  expectPlanWorks(cheapest, from, to, extents);
  EXPECT_LE(cheapest.elements, plan.elements);
  return plan.communications();
}

using Steps = std::vector<std::string>;

TEST(Planner, OneAxis) {
  const DeviceMesh mesh = DeviceMesh::create({{"x", 4}});
  const std::vector<int64_t> e{8, 8};
  auto S = [&](const std::string& a, const std::string& b, const std::string& p = "") {
    return blockState(mesh, e, {a, b}, p);
  };
  EXPECT_EQ(planned(S("", ""), S("", "x"), e), Steps{});
  EXPECT_EQ(planned(S("x", ""), S("", ""), e), Steps{"all_gather(x)"});
  EXPECT_EQ(planned(S("", "x"), S("", ""), e), Steps{"all_gather(x)"});
  EXPECT_EQ(planned(S("x", ""), S("", "x"), e), Steps{"all_to_all(x)"});
  EXPECT_EQ(planRedistribution(S("x", ""), S("", "x")).elements, 16 * 3 / 4);
  EXPECT_EQ(planned(S("", "", "x"), S("", ""), e), Steps{"all_reduce(x)"});
  EXPECT_EQ(planned(S("", "", "x"), S("x", ""), e), Steps{"reduce_scatter(x)"});
}

TEST(Planner, GatherAndSliceWhereExchangesAreForbidden) {
  const DeviceMesh mesh = DeviceMesh::create({{"x", 4}});
  const std::vector<int64_t> e{8, 8};
  const RedistributionPlan plan =
      planRedistribution(blockState(mesh, e, {"x", ""}), blockState(mesh, e, {"", "x"}),
                         {.bound = 64, .forbid = {Collective::AllToAll}, .direct = DirectChoice::Fallback});
  EXPECT_EQ(plan.communications(), Steps{"all_gather(x)"});
  EXPECT_EQ(plan.steps.back().kind, Collective::Local);
}

TEST(Planner, BlockToCyclic) {
  const DeviceMesh mesh = DeviceMesh::create({{"x", 4}});
  const ShardState cyclic{mesh, {fillLocal(0, 16, {{0, 1, 4, Owner::device(0)}})}, {}};
  EXPECT_EQ(planned(blockState(mesh, {16}, {"x"}), cyclic, {16}), Steps{"all_to_all(x)"});
}

TEST(Planner, TwoAxes) {
  const DeviceMesh mesh = DeviceMesh::create({{"x", 2}, {"y", 4}});
  const std::vector<int64_t> e{8, 8};
  auto S = [&](const std::string& a, const std::string& b, const std::string& p = "") {
    return blockState(mesh, e, {a, b}, p);
  };
  EXPECT_EQ(planned(S("x", "y"), S("x", ""), e), Steps{"all_gather(y)"});
  EXPECT_EQ(planned(S("x", "y"), S("", "y"), e), Steps{"all_gather(x)"});
  EXPECT_EQ(planned(S("", "", "xy"), S("", ""), e), Steps{"all_reduce(x, y)"});
  EXPECT_EQ(planned(S("", "y", "x"), S("", "y"), e), Steps{"all_reduce(x)"});
  EXPECT_EQ(planned(S("", "", "xy"), S("x", "y"), e), Steps{"reduce_scatter(x, y)"});
  EXPECT_EQ(planned(S("", "", "xy"), S("xy", ""), e), Steps{"reduce_scatter(x, y)"});
  EXPECT_EQ(planned(S("xy", ""), S("yx", ""), e), Steps{"permute(x, y)"});
  EXPECT_EQ(planned(S("xy", ""), S("y", ""), e), (Steps{"permute(x, y)", "all_gather(x)"}));
}

// A rank that keeps none of its rows receives all it is to hold, 64 / ny elements, and holds no more at any time.
TEST(Planner, DroppingTheOuterAxisBringsWhatIsHeldAfterwards) {
  for (const int64_t ny : {2, 4}) {
    const DeviceMesh mesh = DeviceMesh::create({{"x", 2}, {"y", ny}});
    const std::vector<int64_t> e{8, 8};
    const ShardState from = blockState(mesh, e, {"xy", ""});
    const ShardState to = blockState(mesh, e, {"y", ""});
    for (const DirectChoice direct : {DirectChoice::Fallback, DirectChoice::Priced}) {
      const RedistributionPlan plan = planRedistribution(from, to, {.direct = direct});
      expectPlanWorks(plan, from, to, e);
      EXPECT_EQ(plan.elements, 64 / ny);
      EXPECT_LE(plan.peakState, 64 / ny);
    }
  }
}

TEST(Planner, AxisSwapIsAPermutation) {
  const DeviceMesh mesh = DeviceMesh::create({{"x", 2}, {"y", 2}});
  const std::vector<int64_t> e{8, 8};
  EXPECT_EQ(planned(blockState(mesh, e, {"x", "y"}), blockState(mesh, e, {"y", "x"}), e), Steps{"permute(x, y)"});
}

// Tiles of 6 x 4 to tiles of 4 x 6: where the two do not meet a rank receives all 24 elements.
TEST(Planner, AxisSwapOfOtherSizesIsOneUnevenExchange) {
  const DeviceMesh mesh = DeviceMesh::create({{"x", 2}, {"y", 3}});
  const std::vector<int64_t> e{12, 12};
  const ShardState from = blockState(mesh, e, {"x", "y"});
  const ShardState to = blockState(mesh, e, {"y", "x"});
  EXPECT_EQ(planned(from, to, e), Steps{"all_to_all(x, y)"});
  const RedistributionPlan plan = planRedistribution(from, to, {.direct = DirectChoice::Fallback});
  EXPECT_EQ(plan.steps.at(0).kind, Collective::AllToAll);
  EXPECT_FALSE(isEven(plan.steps.at(0), e));
  EXPECT_LE(plan.elements, 24);
  EXPECT_LE(plan.peakState, 24);
}

TEST(Planner, AxesOfDifferentSize) {
  const DeviceMesh mesh = DeviceMesh::create({{"x", 2}, {"y", 3}});
  const RedistributionPlan plan = planRedistribution(blockState(mesh, {12}, {"x"}), blockState(mesh, {12}, {"y"}),
                                                     {.direct = DirectChoice::Fallback});
  EXPECT_EQ(plan.communications(), (Steps{"permute(x, y)", "all_gather(x)"}));
  EXPECT_EQ(plan.elements, 4);
  EXPECT_LE(plan.peakState, 6);
  expectPlanWorks(plan, blockState(mesh, {12}, {"x"}), blockState(mesh, {12}, {"y"}), {12});
  const RedistributionPlan cheapest = planRedistribution(blockState(mesh, {12}, {"x"}), blockState(mesh, {12}, {"y"}));
  EXPECT_EQ(cheapest.communications(), Steps{"transfer(x)"});
  EXPECT_EQ(cheapest.elements, 4);
}

TEST(Planner, MeshesThatDifferInRankOrder) {
  const DeviceMesh mesh({0, 1});
  const DeviceMesh reversed({1, 0});
  const RedistributionPlan plan = planRedistribution(blockState(mesh, {4}, {"x"}), blockState(reversed, {4}, {"x"}));
  EXPECT_EQ(plan.communications(), Steps{"transfer({x: 2}[0, 1] -> {x: 2}[1, 0])"});
  EXPECT_EQ(plan.elements, 2);
  const RedistributionPlan through =
      planRedistribution(blockState(mesh, {4}, {"x"}), blockState(reversed, {4}, {"x"}), {.transfers = false});
  EXPECT_EQ(through.communications(), Steps{"all_gather(x)"});
  EXPECT_FALSE(through.note.empty());
}

// Every pair has a plan that works; how often it needed the fallback, and how long it is, is printed.
TEST(Planner, RandomPairs) {
  const std::vector<std::pair<DeviceMesh, std::vector<int64_t>>> configs = {
      {DeviceMesh::create({{"x", 2}, {"y", 2}}), {8, 8}},
      {DeviceMesh::create({{"x", 2}, {"y", 3}}), {12, 12}},
      {DeviceMesh::create({{"x", 4}, {"y", 2}}), {16, 8}},
      {DeviceMesh::create({{"x", 2}, {"y", 2}, {"z", 2}}), {8, 8}},
      {DeviceMesh::create({{"x", 2}, {"y", 3}, {"z", 2}}), {12, 6, 4}},
  };
  for (const StateChoice choice : {StateChoice{false, false}, StateChoice{false, true}, StateChoice{true, true}}) {
    std::mt19937 rng(5);
    int64_t fallbacks = 0;
    int64_t pairs = 0;
    size_t longest = 0;
    for (int64_t round = 0; round < 100; round++) {
      for (const auto& [mesh, extents] : configs) {
        const ShardState from = randomState(rng, mesh, extents, choice);
        const ShardState to = randomState(rng, mesh, extents, {choice.anyDigit, false});
        const RedistributionPlan plan = planRedistribution(from, to);
        ASSERT_NO_FATAL_FAILURE(expectPlanWorks(plan, from, to, extents)) << from.toString() << " -> " << to.toString();
        ASSERT_NO_THROW(checkPlan(plan, from, to, std::numeric_limits<int64_t>::max()));
        pairs++;
        fallbacks += plan.note.empty() ? 0 : 1;
        longest = std::max(longest, plan.communications().size());
        if (plan.note.empty()) {
          const int64_t bound =
              std::max(std::ssize(heldElements(from, extents, 0)), std::ssize(heldElements(to, extents, 0)));
          ASSERT_LE(plan.peakState, bound);
        }
        if (provenEqual(from, to)) {
          ASSERT_TRUE(plan.steps.empty());
        }
      }
    }
    std::printf("%s digits%s: %ld pairs, %ld through the whole tensor, at most %zu calls\n",
                choice.anyDigit ? "any" : "block", choice.partial ? " and sums" : "", pairs, fallbacks, longest);
    EXPECT_LE(fallbacks, pairs / 20);
  }
}

// {2, 3, 4, 5} elements of a dim of 14 over an axis of 4.
ShardState inParts(const DeviceMesh& mesh, const std::vector<int64_t>& shape, int64_t dim,
                   const std::vector<IntExpr>& sizes, int64_t axis) {
  ShardState state = ShardState::replicated(mesh, {shape.begin(), shape.end()});
  const Digit top{dim, largestOf(sizes), std::ssize(sizes), Owner::device(axis), Digit::kEven, sizes};
  state.dims[dim] = fillLocal(dim, shape[dim], {top});
  return state;
}

TEST(Planner, PartsOfGivenSizes) {
  const DeviceMesh mesh = DeviceMesh::create({{"x", 4}});
  const std::vector<int64_t> shape = {14, 8};
  const ShardState parts = inParts(mesh, shape, 0, {2, 3, 4, 5}, 0);
  EXPECT_EQ(parts.toString(), "S0(x: [2, 3, 4, 5]) R on {x: 4}[0, 1, 2, 3]");
  const auto planTo = [&](const ShardState& to) {
    RedistributionPlan plan = planRedistribution(parts, to);
    expectPlanWorks(plan, parts, to, shape);
    return plan;
  };
  const RedistributionPlan whole = planTo(blockState(mesh, shape, {"", ""}));
  EXPECT_EQ(whole.communications(), Steps{"all_gather(x)"});
  EXPECT_EQ(whole.elements, 12 * 8);  // by the rank that holds two rows
  const RedistributionPlan columns = planTo(blockState(mesh, shape, {"", "x"}));
  EXPECT_EQ(columns.communications(), Steps{"all_to_all(x)"});
  EXPECT_EQ(columns.elements, 12 * 2);
  const RedistributionPlan blocks = planTo(inParts(mesh, shape, 0, {4, 4, 4, 2}, 0));  // 0:4, 4:8, 8:12, 12:14
  EXPECT_EQ(blocks.communications(), Steps{"transfer(x)"});
  EXPECT_EQ(blocks.elements, 3 * 8);
  const RedistributionPlan others = planTo(inParts(mesh, shape, 0, {5, 4, 3, 2}, 0));
  EXPECT_EQ(others.communications(), Steps{"transfer(x)"});
  EXPECT_EQ(others.elements, 4 * 8);  // 5:9 by the second
  EXPECT_TRUE(planTo(inParts(mesh, shape, 0, {2, 3, 4, 5}, 0)).steps.empty());
  // Parts that are blocks are blocks.
  EXPECT_EQ(inParts(mesh, shape, 0, {4, 4, 4, 2}, 0).toString(), "S0(x) R on {x: 4}[0, 1, 2, 3]");
  EXPECT_TRUE(provenEqual(inParts(mesh, shape, 1, {2, 2, 2, 2}, 0), blockState(mesh, shape, {"", "x"})));
}

TEST(Planner, RandomPairsInPartsOfGivenSizes) {
  const std::vector<std::pair<DeviceMesh, std::vector<int64_t>>> configs = {
      {DeviceMesh::create({{"x", 4}}), {14, 3}},
      {DeviceMesh::create({{"x", 2}, {"y", 2}}), {7, 9}},
      {DeviceMesh::create({{"x", 2}, {"y", 3}}), {12, 5}},
      {DeviceMesh::create({{"x", 2}, {"y", 2}, {"z", 2}}), {10, 6}},
      {DeviceMesh::create({{"x", 2}, {"y", 3}, {"z", 2}}), {4, 1}},
      {DeviceMesh::create({{"x", 3}, {"y", 2}}), {2, 1}},
  };
  std::mt19937 rng(17);
  int64_t given = 0;
  std::map<std::string, int64_t> kinds;
  for (int64_t round = 0; round < (kSanitized ? 80 : 400); round++) {
    for (const auto& [mesh, extents] : configs) {
      const StateChoice choice{round % 2 == 0, round % 3 == 0, round % 5 == 0, false, true};
      const ShardState from = randomState(rng, mesh, extents, choice);
      const ShardState to =
          round % 7 == 0 && !choice.partial
              ? from
              : randomState(rng, mesh, extents, {choice.anyDigit, false, choice.uneven, false, round % 4 < 2});
      const RedistributionPlan plan = planRedistribution(from, to);
      ASSERT_NO_FATAL_FAILURE(expectPlanWorks(plan, from, to, extents)) << from.toString() << " -> " << to.toString();
      ASSERT_NO_THROW(checkPlan(plan, from, to, plan.bound)) << from.toString() << " -> " << to.toString();
      ASSERT_EQ(provenEqual(from, to), plan.steps.empty()) << from.toString() << " -> " << to.toString();
      const auto hasParts = [](const DigitList& dim) { return dim.hasParts(); };
      given += std::ranges::any_of(from.dims, hasParts) || std::ranges::any_of(to.dims, hasParts) ? 1 : 0;
      for (const CommStep& step : plan.steps) {
        kinds[std::string(verbOf(step))]++;
      }
    }
  }
  for (const auto& [kind, count] : kinds) {
    std::printf("%5ld %s\n", count, kind.c_str());
  }
  EXPECT_GE(given, kSanitized ? 200 : 1000);
  EXPECT_GT(kinds["all_to_all"], 20);
  EXPECT_GT(kinds["all_gather"], 20);
  EXPECT_GT(kinds["transfer"], 20);
}

// What checks all plans finds what is wrong with one.
TEST(Planner, WrongPlansAreFound) {
  struct Mistake {
    const char* name;
    bool (*make)(RedistributionPlan& plan, size_t step);  // whether there is such a one
    int64_t made = 0;
  };
  Mistake mistakes[] = {
      {"a step left out",
       [](RedistributionPlan& plan, size_t i) {
         plan.steps.erase(plan.steps.begin() + static_cast<ptrdiff_t>(i));
         return true;
       }},
      {"a step taken back",
       [](RedistributionPlan& plan, size_t i) {
         std::swap(plan.steps[i].before, plan.steps[i].after);
         return true;
       }},
      {"a collective that sends nothing",
       [](RedistributionPlan& plan, size_t i) {
         const bool communicates = plan.steps[i].communicates() && !plan.steps[i].to;
         plan.steps[i].kind = Collective::Local;
         return communicates;
       }},
      {"a team too small",
       [](RedistributionPlan& plan, size_t i) {
         const bool hasTeam = plan.steps[i].communicates() && !plan.steps[i].to;
         if (hasTeam) {
           plan.steps[i].axes.pop_back();
         }
         return hasTeam;
       }},
      {"an element more",
       [](RedistributionPlan& plan, size_t i) {
         plan.elements++;
         return i == 0;
       }},
  };
  const std::vector<std::pair<DeviceMesh, std::vector<int64_t>>> configs = {
      {DeviceMesh::create({{"x", 4}}), {8, 4}}, {DeviceMesh::create({{"x", 2}, {"y", 2}}), {4, 8}}};
  std::mt19937 rng(23);
  for (int64_t round = 0; round < 200; round++) {
    for (const auto& [mesh, extents] : configs) {
      const ShardState from = randomState(rng, mesh, extents, {.partial = round % 2 == 0});
      const ShardState to = randomState(rng, mesh, extents, {});
      const RedistributionPlan plan = planRedistribution(from, to);
      const int64_t bound = plan.bound;
      ASSERT_NO_THROW(checkPlan(plan, from, to, bound));
      for (size_t i = 0; i < plan.steps.size(); i++) {
        for (Mistake& mistake : mistakes) {
          RedistributionPlan wrong = plan;
          if (mistake.make(wrong, i)) {
            mistake.made++;
            EXPECT_THROW(checkPlan(wrong, from, to, bound), InternalError)
                << mistake.name << ", " << plan.steps[i].toString() << " of " << from.toString() << " -> "
                << to.toString();
          }
        }
      }
      if (plan.peakState > 1 && !plan.steps.empty()) {
        EXPECT_THROW(checkPlan(plan, from, to, 0), InternalError) << "a bound that nothing keeps to";
      }
    }
  }
  for (const Mistake& mistake : mistakes) {
    EXPECT_GT(mistake.made, 50) << mistake.name;
  }
}

TEST(Planner, SumsOnBothSidesAndDirectTransfers) {
  const std::vector<std::pair<DeviceMesh, std::vector<int64_t>>> configs = {
      {DeviceMesh::create({{"x", 2}, {"y", 2}}), {8, 8}},
      {DeviceMesh::create({{"x", 2}, {"y", 3}}), {12, 6}},
      {DeviceMesh::create({{"x", 2}, {"y", 2}, {"z", 2}}), {8, 4}},
      {DeviceMesh::create({{"x", 2}, {"y", 3}, {"z", 2}}), {12, 6}},
  };
  std::mt19937 rng(11);
  int64_t direct = 0;
  for (int64_t round = 0; round < 150; round++) {
    for (const auto& [mesh, extents] : configs) {
      const ShardState from = randomPlacement(rng, mesh, extents, {true, true});
      const ShardState to = randomPlacement(rng, mesh, extents, {true, true});
      PlanOptions options;
      options.sums = PartialSums::Moved;
      options.alpha = round % 3;  // where calls are expensive, tiles may be sent directly
      const bool onlyTiles = round % 5 == 0;
      if (onlyTiles) {
        options.forbid = {Collective::AllToAll, Collective::AllGather, Collective::ReduceScatter,
                          Collective::AllReduce};
        options.permutes = false;
      }
      const RedistributionPlan plan = planRedistribution(from, to, options);
      ASSERT_NO_FATAL_FAILURE(expectPlanWorks(plan, from, to, extents)) << from.toString() << " -> " << to.toString();
      ASSERT_NO_THROW(checkPlan(plan, from, to, plan.bound)) << from.toString() << " -> " << to.toString();
      direct += !plan.steps.empty() && plan.steps[0].to ? 1 : 0;
    }
  }
  EXPECT_GT(direct, 40);
}

TEST(Planner, AxesCutInWaysThatDoNotNest) {
  const DeviceMesh mesh = DeviceMesh::create({{"x", 6}});
  auto half = [&](int64_t below, int64_t n) {  // a part of x owns the outermost digit
    return ShardState{mesh, {fillLocal(0, 36, {{0, 36 / n, n, Owner::device(0, below)}})}, {}};
  };
  PlanOptions options;
  options.sums = PartialSums::Moved;
  const RedistributionPlan plan = planRedistribution(half(3, 2), half(2, 3), options);
  EXPECT_EQ(plan.communications(), Steps{"transfer(x)"});
  EXPECT_EQ(plan.elements, 6);
  expectPlanWorks(plan, half(3, 2), half(2, 3), {36});
}

TEST(Planner, TwoMeshes) {
  const std::vector<int64_t> extents{12, 8};
  const std::vector<std::pair<DeviceMesh, DeviceMesh>> meshes = {
      {DeviceMesh::create({{"x", 2}, {"y", 2}}, {0, 1, 2, 3}), DeviceMesh::create({{"a", 4}}, {4, 5, 6, 7})},
      {DeviceMesh::create({{"x", 4}}, {0, 1, 2, 3}), DeviceMesh::create({{"a", 2}}, {2, 3})},
      {DeviceMesh::create({{"x", 2}, {"y", 3}}, {5, 4, 3, 2, 1, 0}),
       DeviceMesh::create({{"a", 2}, {"b", 2}}, {3, 7, 1, 9})},
      {DeviceMesh::create({{"x", 4}}, {0, 1, 2, 3}), DeviceMesh::create({{"x", 4}}, {3, 1, 0, 2})},
      {DeviceMesh::create({{"x", 1}}, {0}), DeviceMesh::create({{"a", 2}, {"b", 2}}, {0, 1, 2, 3})},
  };
  std::mt19937 rng(12);
  PlanOptions options;
  options.sums = PartialSums::Moved;
  for (int64_t round = 0; round < 60; round++) {
    for (const auto& [source, target] : meshes) {
      const ShardState from = randomPlacement(rng, source, extents, {true, true});
      const ShardState to = randomPlacement(rng, target, extents, {true, true});
      const RedistributionPlan plan = planRedistribution(from, to, options);
      ASSERT_NO_FATAL_FAILURE(expectPlanWorks(plan, from, to, extents)) << from.toString() << " -> " << to.toString();
      ASSERT_NO_THROW(checkPlan(plan, from, to, plan.bound)) << from.toString() << " -> " << to.toString();
      const auto bound = std::max(heldElements(from, extents, 0).size(), heldElements(to, extents, 0).size());
      ASSERT_LE(plan.peakState, static_cast<int64_t>(bound));
    }
  }
  EXPECT_THROW((void)planRedistribution(blockState(meshes[0].first, extents, {"x", ""}),
                                        blockState(meshes[0].second, extents, {"a", ""}), {.transfers = false}),
               UserError)
      << "without transfers nothing goes between meshes";
}

// What is replicated on the source leaves it once, and is spread again where links inside the target are cheaper.
TEST(Planner, NothingCrossesTwiceWhereLinksBetweenMeshesAreExpensive) {
  const DeviceMesh source = DeviceMesh::create({{"x", 2}}, {0, 1});
  const DeviceMesh target = DeviceMesh::create({{"a", 4}}, {2, 3, 4, 5});
  PlanOptions options;
  options.sums = PartialSums::Moved;
  options.betaBetween = 10;
  const RedistributionPlan plan =
      planRedistribution(blockState(source, {16}, {"x"}), blockState(target, {16}, {""}), options);
  EXPECT_EQ(plan.communications(), (Steps{"transfer({x: 2}[0, 1] -> {a: 4}[2, 3, 4, 5])", "all_gather(a)"}));
}

// Nothing but a reduction combines a sum: if both kinds are forbidden, one is taken all the same.
TEST(Planner, ASumIsCombinedThoughItIsForbidden) {
  const DeviceMesh mesh = DeviceMesh::create({{"x", 4}});
  PlanOptions options;
  options.forbid = {Collective::AllReduce, Collective::ReduceScatter};
  ShardState sums = ShardState::replicated(mesh, {8, 4});
  sums.partial = {0};
  ShardState parts = ShardState::replicated(mesh, {8, 4});
  parts.dims[0] = fillLocal(0, 8, {{0, 2, 4, Owner::device(0)}});
  const RedistributionPlan plan = planRedistribution(sums, parts, options);
  EXPECT_EQ(plan.communications(), std::vector<std::string>{"reduce_scatter(x)"});
  EXPECT_NE(plan.note.find("forbidden"), std::string::npos) << plan.note;
}

}  // namespace
}  // namespace meshfuse
