// The order of steps: random programs keep every dependency, and each recorded edge is needed.
#include "host/step_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/ranges.h"
#include "host/accesses.h"
#include "host/order_steps.h"
#include "host/verify_program.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {
namespace {

// Steps that read earlier results; about a third are collectives of two teams and of the world, and transfers.
HostProgram randomProgram(std::mt19937& random, int64_t steps) {
  HostProgram program;
  program.ranks = 3;
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  const auto tensor = [&](Place place, int64_t index) {
    program.tensors.push_back(
        {.val = std::ssize(program.tensors), .bytes = 64 * (1 + below(8)), .place = place, .index = index});
    return std::ssize(program.tensors) - 1;
  };
  for (int64_t i = 0; i < 3; i++) {
    tensor(Place::Input, i);
  }
  for (int64_t i = 0; i < steps; i++) {
    Step step{.name = "step " + std::to_string(i)};
    const int64_t known = std::ssize(program.tensors);
    step.reads.push_back(std::max<int64_t>(0, known - 1 - below(6)));
    if (below(3) == 0) {
      step.kind = HostStepKind::Communicate;
      const std::vector<std::vector<int64_t>> teams = {{0, 1}, {0, 2}, {0, 1, 2}};
      step.comm.team.ranks = teams[below(3)];
      step.comm.kind = below(4) == 0 ? Collective::Transfer : Collective::AllReduce;
    } else if (below(2) == 0) {
      step.reads.push_back(below(known));
    }
    if (below(4) == 0) {
      step.workspaces.push_back({64 * (1 + below(4))});
    }
    // in place at times
    const bool inPlace = below(6) == 0 && program.tensors[step.reads[0]].place == Place::Arena;
    step.writes.push_back(inPlace ? step.reads[0] : tensor(Place::Arena, 0));
    program.steps.push_back(std::move(step));
  }
  return program;
}

// By walking back over all edges.
bool endsBefore(const HostProgram& program, int64_t first, int64_t then) {
  std::vector<int64_t> front = {then};
  std::vector<bool> seen(program.steps.size());
  while (!front.empty()) {
    const int64_t at = front.back();
    front.pop_back();
    std::vector<int64_t> earlier = program.steps[at].order.waits;
    for (int64_t i = at - 1; i >= 0; i--) {
      if (program.steps[i].order.queue == program.steps[at].order.queue) {
        earlier.push_back(i);
        break;
      }
    }
    for (const int64_t e : earlier) {
      if (!seen[e]) {
        seen[e] = true;
        front.push_back(e);
      }
    }
  }
  return seen[first];
}

// Every pair of accesses of the same bytes is ordered if one of the two writes: in the words of the definition.
bool isOrdered(const HostProgram& program, const ProgramSizes& sizes) {
  struct Bytes {
    int64_t step, begin, end;
    bool writes;
  };
  std::vector<Bytes> all;
  for (const int64_t i : indices(program.steps)) {
    const Step& s = program.steps[i];
    const auto add = [&](int64_t t, bool writes) {
      const TensorPlan& p = program.tensors[t];
      const int64_t base = p.place == Place::Arena ? sizes.tensors[t].offset : (int64_t{1} << 40) * (1 + p.index);
      all.push_back({i, base, base + sizes.tensors[t].bytes, writes});
    };
    for (const int64_t t : s.reads) {
      add(t, false);
    }
    for (const int64_t t : s.writes) {
      add(t, true);
    }
    for (const int64_t k : indices(s.workspaces)) {
      const WorkspaceSizes& w = sizes.steps[i].workspaces[k];
      if (!s.workspaces[k].zeroed) {
        all.push_back({i, w.offset, w.offset + w.bytes, true});
      }
    }
  }
  for (const Bytes& a : all) {
    for (const Bytes& b : all) {
      if (a.step < b.step && (a.writes || b.writes) && a.begin < b.end && b.begin < a.end &&
          !endsBefore(program, a.step, b.step)) {
        return false;
      }
    }
  }
  return true;
}

std::vector<std::string> namesOf(const HostProgram& program, bool collectives) {
  std::vector<std::string> names;
  for (const Step& s : program.steps) {
    if (!collectives || s.kind == HostStepKind::Communicate) {
      names.push_back(s.name);
    }
  }
  return names;
}

TEST(StepSchedule, RandomProgramsStayOrderedAndEachEdgeIsNeeded) {
  std::mt19937 random(7);
  int64_t removed = 0;
  int64_t needed = 0;
  for (int program = 0; program < 200; program++) {
    const HostProgram given = randomProgram(random, 10 + program % 40);
    HostProgram ordered = given;
    orderSteps(ordered, {.allowed = true});
    const ProgramSizes sizes = sizesOf(ordered);
    ASSERT_EQ(unorderedAccess(ordered, sizes), std::nullopt);
    ASSERT_TRUE(isOrdered(ordered, sizes));
    EXPECT_EQ(namesOf(ordered, true), namesOf(given, true)) << "the order of collectives is that of all ranks";
    for (const Step& s : ordered.steps) {
      const int64_t queue = s.order.queue;
      ASSERT_EQ(queue != 0, s.kind == HostStepKind::Communicate);
      if (s.comm.kind == Collective::Transfer) {
        ASSERT_EQ(ordered.teams[queue - 1].ranks, (std::vector<int64_t>{0, 1, 2}))
            << "of the world, as its collectives";
      } else if (queue != 0) {
        ASSERT_EQ(ordered.teams[queue - 1], s.comm.team);
      }
      ASSERT_EQ(std::ranges::count(ordered.teams, queue == 0 ? ordered.teams[0] : ordered.teams[queue - 1]), 1);
    }
    HostProgram onOneQueue = given;
    orderSteps(onOneQueue, {.allowed = false});
    EXPECT_EQ(namesOf(onOneQueue, false), namesOf(given, false));
    EXPECT_LE(static_cast<double>(sizes.arenaBytes),
              static_cast<double>(sizesOf(onOneQueue).arenaBytes) * (1 + kMostArenaGrowth));
    for (const int64_t i : indices(ordered.steps)) {
      for (const int64_t k : indices(ordered.steps[i].order.waits)) {
        HostProgram without = ordered;
        std::vector<int64_t>& waits = without.steps[i].order.waits;
        waits.erase(waits.begin() + k);
        removed++;
        const bool refused = unorderedAccess(without, sizes).has_value();
        ASSERT_EQ(refused, !isOrdered(without, sizes)) << "the checker and the definition differ";
        needed += refused ? 1 : 0;
      }
    }
  }
  EXPECT_GT(removed, 500);
  EXPECT_GT(needed, removed * 9 / 10) << "most edges order accesses that nothing else orders";
}

TEST(StepSchedule, CollectivesBeginEarlyOnlyAsFarAsMemoryAllows) {
  std::mt19937 random(2);
  int64_t larger = 0;
  for (int64_t round = 0; round < 60; round++) {
    HostProgram given = randomProgram(random, 20);
    given.inputs = {0, 1, 2};
    const auto arenaWith = [&](const Overlap& overlap) {
      HostProgram program = given;
      orderSteps(program, overlap);
      return sizesOf(program).arenaBytes;
    };
    const int64_t inOneQueue = arenaWith({.allowed = false});
    const int64_t inputs = sumOf(given.inputs, [&](int64_t t) { return given.tensors[t].bytes.constValue(); });
    larger += arenaWith({.allowed = true}) > inOneQueue ? 1 : 0;
    for (const int64_t more : {-1000, 0, 64, 256}) {
      EXPECT_LE(arenaWith({.allowed = true, .memory = inputs + inOneQueue + more}),
                inOneQueue + std::max<int64_t>(more, 0));
    }
  }
  EXPECT_GT(larger, 10);
}

TEST(StepSchedule, WorkRunsWhileACollectiveIsInFlight) {
  // all-reduce of 0; 1, 2 independent; 3 needs the all-reduce and 2
  const std::vector<StepUse> steps = {{.queue = 1, .reads = {0}, .writes = {10}},
                                      {.reads = {10}, .writes = {11}},
                                      {.reads = {1}, .writes = {12}},
                                      {.reads = {12, 11}, .writes = {13}}};
  const StepSchedule schedule = scheduleSteps(steps, 256, 256);
  EXPECT_EQ(schedule.steps, (std::vector<int64_t>{0, 2, 1, 3}));
  EXPECT_EQ(schedule.orders[1], (StepOrder{0, {}}));
  EXPECT_EQ(schedule.orders[2], (StepOrder{0, {0}}));
  EXPECT_EQ(schedule.orders[3], (StepOrder{0, {}}));
  EXPECT_EQ(scheduleSteps(steps, 0, 256).steps, (std::vector<int64_t>{0, 1, 2, 3}));
}

TEST(StepSchedule, WhatTheNextCollectiveNeedsComesFirst) {
  // 0 and 1 are for the user only; 2 makes the operand of the all-reduce 3
  const std::vector<StepUse> steps = {{.reads = {0}, .writes = {10}},
                                      {.reads = {10}, .writes = {11}},
                                      {.reads = {0}, .writes = {12}},
                                      {.queue = 1, .reads = {12}, .writes = {13}}};
  EXPECT_EQ(scheduleSteps(steps, 256, 256).steps, (std::vector<int64_t>{2, 3, 0, 1}));
}

TEST(StepSchedule, WeightsAreGatheredAtMostSoEarly) {
  // for each layer: all-gather of a weight, the product with it
  std::vector<StepUse> steps;
  for (int64_t layer = 0; layer < 4; layer++) {
    steps.push_back({.queue = 1, .reads = {100 + layer}, .writes = {200 + layer}});
    steps.push_back({.reads = {layer, 200 + layer}, .writes = {layer + 1}});
  }
  EXPECT_EQ(scheduleSteps(steps, 0, 256).steps, (std::vector<int64_t>{0, 2, 4, 6, 1, 3, 5, 7}));
  EXPECT_EQ(scheduleSteps(steps, 0, 2).steps, (std::vector<int64_t>{0, 2, 1, 4, 3, 6, 5, 7}));
  EXPECT_EQ(scheduleSteps(steps, 0, 0).steps, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(StepSchedule, GradientsAreReducedWhileTheBackwardPassGoesOn) {
  // for each layer: dx (needs the dx before), dw (needs it too), all-reduce of dw
  std::vector<StepUse> steps;
  for (int64_t layer = 0; layer < 4; layer++) {
    steps.push_back({.reads = {layer}, .writes = {layer + 1}});
    steps.push_back({.reads = {layer}, .writes = {100 + layer}});
    steps.push_back({.queue = 1, .reads = {100 + layer}, .writes = {200 + layer}});
  }
  const StepSchedule schedule = scheduleSteps(steps, 256, 256);
  for (const int64_t i : indices(schedule.steps)) {
    EXPECT_TRUE(steps[schedule.steps[i]].queue != 0 || schedule.orders[i].waits.empty()) << "a layer waits";
  }
  // each all-reduce is issued right after the step that makes its operand
  for (int64_t layer = 0; layer < 4; layer++) {
    const int64_t made = positionIn(schedule.steps, 3 * layer + 1);
    EXPECT_EQ(schedule.steps[made + 1], 3 * layer + 2);
  }
}

// c1 and c2 of one team, c2 reads what c1 makes, the device needs c2 at once: neither is handed over to a thread.
TEST(StepSchedule, WhatIsAwaitedAtOnceRunsOnTheCaller) {
  HostProgram program;
  program.ranks = 2;
  program.tensors = {{.val = 0, .bytes = 64, .place = Place::Input},
                     {.val = 1, .bytes = 64},
                     {.val = 2, .bytes = 64},
                     {.val = 3, .bytes = 64},
                     {.val = 4, .bytes = 64}};
  const CommCall call{.kind = Collective::AllReduce, .team = {{0, 1}}};
  program.steps = {{.kind = HostStepKind::Communicate, .name = "c1", .reads = {0}, .writes = {1}, .comm = call},
                   {.kind = HostStepKind::Communicate, .name = "c2", .reads = {1}, .writes = {2}, .comm = call},
                   {.name = "d", .reads = {2}, .writes = {3}, .workspaces = {{4096}}}};  // most of the arena
  HostProgram together = program;
  together.steps.push_back({.name = "e", .reads = {0}, .writes = {4}});
  orderSteps(program, {.allowed = true});
  EXPECT_EQ(std::ranges::count_if(program.steps, &Step::runsBeside), 0);
  orderSteps(together, {.allowed = true});
  EXPECT_EQ(namesOf(together, false), (std::vector<std::string>{"c1", "c2", "e", "d"}));
  EXPECT_EQ(std::ranges::count_if(together.steps, &Step::runsBeside), 2) << "e runs beside both";
}

// The error about an index names its position after all steps. `found` is the result of the step that may refuse one, `table` is what it reads.
TEST(StepSchedule, OnlyWhatAnIndexIsComputedFromLivesUntilTheEnd) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* in = makeContigConcreteTensor({8}, DataType::Int);
  fusion->addInput(in);
  TensorView* index = neg(in);
  TensorView* table = abs(in);
  TensorView* found = add(checked_index(add(index, 1), 8), table);
  TensorView* next = neg(found);
  TensorView* out = neg(next);
  fusion->addOutput(out);
  const std::vector<TensorView*> all = {in, index, table, found, next, out};
  HostProgram program;
  program.tensors = mapped(
      all, [](const TensorView* tv) { return TensorPlan{.val = tv->id(), .dtype = DataType::Int, .bytes = 64}; });
  program.tensors[0].place = Place::Input;
  program.tensors[5].place = Place::Output;
  program.steps = {{.name = "index", .reads = {0}, .writes = {1}},
                   {.name = "table", .reads = {0}, .writes = {2}},
                   {.name = "found", .reads = {1, 2}, .writes = {3}, .launch = {.checksIndices = true}},
                   {.name = "next", .reads = {3}, .writes = {4}},
                   {.name = "out", .reads = {4}, .writes = {5}}};
  program.fusion = std::move(fusion);
  orderSteps(program, {.allowed = true, .endsTogether = true});
  const auto lastStepOf = [&](int64_t tensor) {
    return std::ranges::find(program.arena, tensor, &ArenaBlock::tensor)->lastStep;
  };
  EXPECT_EQ(lastStepOf(1), 4) << "index";
  EXPECT_EQ(lastStepOf(2), 2) << "table";
  EXPECT_EQ(lastStepOf(3), 3) << "found";
  EXPECT_EQ(lastStepOf(4), 4) << "next";
}

// Against an arena whose bytes know the tensor that was written there last.
TEST(Accesses, ATensorIsIntactUntilAnotherIsWrittenOverIt) {
  std::mt19937 random(11);
  int64_t lost = 0;
  for (int number = 0; number < 50; number++) {
    HostProgram program = randomProgram(random, 20);
    orderSteps(program, {.allowed = false});
    const ProgramSizes sizes = sizesOf(program);
    std::vector<int64_t> writtenLast(sizes.arenaBytes, -1);
    std::vector<bool> isComputed(program.tensors.size());
    const auto write = [&](int64_t offset, int64_t bytes, int64_t tensor) {
      std::ranges::fill_n(writtenLast.begin() + offset, bytes, tensor);
    };
    for (const int64_t i : indices(program.steps)) {
      for (const int64_t k : indices(program.steps[i].workspaces)) {
        const WorkspaceSizes& w = sizes.steps[i].workspaces[k];
        if (!program.steps[i].workspaces[k].zeroed) {
          write(w.offset, w.bytes, -1);
        }
      }
      for (const int64_t t : program.steps[i].writes) {
        write(sizes.tensors[t].offset, sizes.tensors[t].bytes, t);
        isComputed[t] = true;
      }
      for (const int64_t t : indices(program.tensors)) {
        const TensorSizes& n = sizes.tensors[t];
        const bool isThere =
            program.tensors[t].place == Place::Input ||
            (isComputed[t] && std::ranges::count(std::span(writtenLast).subspan(n.offset, n.bytes), t) == n.bytes);
        ASSERT_EQ(isIntact(program, sizes, t, i + 1), isThere) << "T" << t << " after step " << i;
        lost += isComputed[t] && !isThere ? 1 : 0;
      }
    }
  }
  EXPECT_GT(lost, 100);
}

TEST(VerifyProgram, NamesTheTwoStepsAndTensors) {
  HostProgram program;
  program.tensors = {{.val = 1, .bytes = 64}, {.val = 2, .bytes = 64}};
  program.steps = {{.name = "all-reduce T1", .reads = {1}, .writes = {0}, .order = {.queue = 1}},
                   {.name = "neg T2", .reads = {0}, .writes = {1}}};
  const ProgramSizes sizes = {.tensors = {{.bytes = 64}, {.bytes = 64, .offset = 64}}, .steps = {2, StepSizes()}};
  EXPECT_EQ(unorderedAccess(program, sizes),
            "all-reduce T1 writes T1 and neg T2 reads T1 in the same memory, in no order");
  program.steps[1].order.waits = {0};
  EXPECT_EQ(unorderedAccess(program, sizes), std::nullopt);
  program.steps[1].order.waits = {1};
  EXPECT_EQ(unorderedAccess(program, sizes), "neg T2 waits for step 1, which is not before it");
}

}  // namespace
}  // namespace meshfuse
