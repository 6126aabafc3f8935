// Simulated calls: times of small programs by hand, ranks that would wait for each other forever, and classes of ranks.
#include "exec/simulate_call.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/open.h"
#include "exec/abstract_inputs.h"
#include "exec/assumed_ranks.h"
#include "exec/compile.h"
#include "host/program.h"
#include "ir/fusion.h"
#include "ir/text.h"

namespace meshfuse {
namespace {

// A byte a second in memory, and over links after half a second.
const DistributedConfig kMachine{
    .devicesPerMachine = 3, .within = {.bandwidth = 1, .latency = 0.5}, .device = {.bandwidth = 1, .launch = 0}};

// Steps of a rank with their numbers.
class Steps {
 public:
  Steps(int64_t rank, int64_t ranks) {
    program_->rank = rank;
    program_->ranks = ranks;
  }

  // A copy of `bytes`, which takes twice as many seconds.
  Steps& copy(int64_t bytes, std::vector<int64_t> waits = {}) {
    const int64_t tensor = std::ssize(program_->tensors);
    program_->tensors.push_back({.val = tensor, .bytes = bytes});
    sizes_.tensors.push_back({.bytes = bytes});
    sizes_.steps.emplace_back();
    program_->steps.push_back({.kind = HostStepKind::Copy,
                               .name = "copy",
                               .writes = {tensor},
                               .order = {.queue = 0, .waits = std::move(waits)}});
    return *this;
  }

  // Takes half a second more than `bytes` seconds.
  Steps& meet(int64_t number, std::vector<int64_t> team, int64_t bytes, int64_t queue = 1,
              std::vector<int64_t> waits = {}) {
    CommSizes comm;
    comm.bytesReceived = bytes;
    sizes_.steps.push_back({.comm = comm});
    program_->steps.push_back({.kind = HostStepKind::Communicate,
                               .name = "all-gather " + std::to_string(number),
                               .comm = {.team = {std::move(team)}, .number = number},
                               .order = {.queue = queue, .waits = std::move(waits)}});
    return *this;
  }

  std::shared_ptr<const HostProgram> done() {
    program_->constant = std::make_shared<const ProgramSizes>(sizes_);
    return program_;
  }

 private:
  std::shared_ptr<HostProgram> program_ = std::make_shared<HostProgram>();
  ProgramSizes sizes_;
};

TEST(SimulateCall, ACollectiveWaitsForTheSlowestRankOfItsTeam) {
  const auto fast = Steps(0, 3).copy(1).meet(7, {0, 2}, 4, 1, {0}).copy(1, {1}).done();
  const auto slow = Steps(2, 3).copy(3).meet(7, {0, 2}, 4, 1, {0}).copy(1, {1}).done();
  const auto alone = Steps(1, 3).copy(2).done();
  const Simulation s = simulatePrograms(std::vector{fast, alone, slow}, {0, 1, 2}, kMachine);
  EXPECT_EQ(s.blocked, std::vector<std::string>{});
  EXPECT_EQ(s.collectives, 1);
  EXPECT_DOUBLE_EQ(s.classes[0].steps[1].begin, 6);  // its copy has ended at 2
  EXPECT_DOUBLE_EQ(s.classes[0].steps[1].end, 10.5);
  EXPECT_DOUBLE_EQ(s.seconds, 12.5);
  EXPECT_DOUBLE_EQ(s.classes[0].busy, 2 + 4.5 + 2);
  EXPECT_DOUBLE_EQ(s.classes[0].kernels, 4);
  EXPECT_DOUBLE_EQ(s.classes[1].busy, 4);
  EXPECT_DOUBLE_EQ(s.classes[2].busy, 12.5);
  EXPECT_NEAR(s.idle, (4 + 8.5 + 0) / 12.5 / 3, 1e-12);
}

TEST(SimulateCall, WorkRunsBesideACollectiveThatItDoesNotWaitFor) {
  // the second copy waits for nothing, the third one for the collective
  const auto program = Steps(0, 3).copy(1).meet(1, {0, 1, 2}, 3, 1, {0}).copy(1).copy(1, {1}).done();
  const Simulation s = simulatePrograms(std::vector{program}, {0, 0, 0}, kMachine);
  EXPECT_DOUBLE_EQ(s.classes[0].steps[2].begin, 2);
  EXPECT_DOUBLE_EQ(s.classes[0].steps[3].begin, 5.5);
  EXPECT_DOUBLE_EQ(s.seconds, 7.5);
  EXPECT_DOUBLE_EQ(s.classes[0].busy, 7.5);
  EXPECT_EQ(s.classes[0].ranks, 3);
}

TEST(SimulateCall, RanksThatMeetInDifferentOrdersAreNamed) {
  const auto one = Steps(0, 2).meet(1, {0, 1}, 1).meet(2, {0, 1}, 1, 2).done();
  const auto other = Steps(1, 2).meet(2, {0, 1}, 1, 2).meet(1, {0, 1}, 1).done();
  const Simulation s = simulatePrograms(std::vector{one, other}, {0, 1}, kMachine);
  EXPECT_EQ(s.blocked, (std::vector<std::string>{"rank 0 waits in all-gather 1 for rank 1",
                                                 "rank 1 waits in all-gather 2 for rank 0"}));
}

// 0 meets 1, 1 meets 2, and 2 meets 0: each of them comes first to that with the next one.
TEST(SimulateCall, ARingOfRanksIsBlocked) {
  const auto a = Steps(0, 3).meet(1, {0, 1}, 1).meet(3, {0, 2}, 1).done();
  const auto b = Steps(1, 3).meet(2, {1, 2}, 1).meet(1, {0, 1}, 1).done();
  const auto c = Steps(2, 3).meet(3, {0, 2}, 1).meet(2, {1, 2}, 1).done();
  EXPECT_EQ(simulatePrograms(std::vector{a, b, c}, {0, 1, 2}, kMachine).blocked.size(), 3u);
  const auto inOrder = Steps(2, 3).meet(2, {1, 2}, 1).meet(3, {0, 2}, 1).done();
  EXPECT_EQ(simulatePrograms(std::vector{a, b, inOrder}, {0, 1, 2}, kMachine).blocked.size(), 0u);
}

TEST(SimulateCall, ARankThatDoesNotTakePartIsNamed) {
  const auto one = Steps(0, 2).meet(1, {0, 1}, 1).done();
  const auto other = Steps(1, 2).copy(1).done();
  const Simulation s = simulatePrograms(std::vector{one, other}, {0, 1}, kMachine);
  EXPECT_EQ(s.blocked, std::vector<std::string>{"rank 0 waits in all-gather 1 for rank 1"});
}

// Rank 0 meets rank 1 alone, but rank 2 of its class meets rank 3: in X first, while rank 3 comes to Y first.
TEST(SimulateCall, RanksOfAClassThatMeetOthersAreNotForgotten) {
  const auto one = Steps(0, 4).meet(1, {0, 1}, 1).meet(2, {0, 1}, 1).done();
  const auto other = Steps(3, 4).meet(2, {2, 3}, 1).meet(1, {2, 3}, 1).done();
  EXPECT_EQ(
      simulatePrograms(std::vector{one, other}, {0, 0, 0, 1}, kMachine).blocked,
      (std::vector<std::string>{"rank 0 waits in all-gather 1 for rank 3", "rank 3 waits in all-gather 2 for rank 2"}));
  const auto inOrder = Steps(3, 4).meet(1, {2, 3}, 1).meet(2, {2, 3}, 1).done();
  EXPECT_EQ(simulatePrograms(std::vector{one, inOrder}, {0, 0, 0, 1}, kMachine).blocked.size(), 0u);
}

// Teams that ranks do not agree on: the last rank to come is the last one in the list.
TEST(SimulateCall, ARankThatComesLastIsHeard) {
  const auto a = Steps(0, 3).meet(1, {0, 1}, 1).meet(2, {0, 2}, 1).done();
  const auto b = Steps(1, 3).meet(1, {0, 1, 2}, 1).done();
  const auto c = Steps(2, 3).meet(2, {0, 2}, 1).meet(1, {1, 2}, 1).done();
  EXPECT_EQ(
      simulatePrograms(std::vector{a, b, c}, {0, 1, 2}, kMachine).blocked,
      (std::vector<std::string>{"rank 0 waits in all-gather 1 for rank 2", "rank 1 waits in all-gather 1 for rank 2",
                                "rank 2 waits in all-gather 2 for rank 0"}));
}

// Each rank is a class of its own.
Simulation ofEachRank(const Fusion& fusion, const std::vector<std::vector<int64_t>>& shapes,
                      const DistributedConfig& machines) {
  std::vector<std::shared_ptr<const HostProgram>> programs;
  for (int64_t rank = 0; rank < machines.devices(); rank++) {
    AssumedRanks assumed(machines.devices(), rank);
    programs.push_back(compile(fusion, abstractInputs(fusion, shapes, rank), Agreement(assumed).call(),
                               openDevice(DeviceId::cpu(), {.threads = 1, .compiles = false}))
                           .host);
  }
  std::vector<int64_t> classOf(programs.size());
  std::iota(classOf.begin(), classOf.end(), int64_t{0});
  return simulatePrograms(programs, classOf, machines);
}

// Ranks 0 and 1 keep their parts, ranks 2 and 3 exchange theirs; a tensor whose last part is smaller makes rank 3 a class of its own.
TEST(SimulateCall, RanksThatKeepTheirPartsAreAnotherClass) {
  const std::string moved =
      "  mesh M0 {x: 4} [0, 1, 2, 3]\n"
      "  mesh M1 {x: 4} [0, 1, 3, 2]\n"
      "  T0 = input() : Float[8] mesh M0 outer_split(0, 4) parallelize(0, DIDx)\n"
      "  T1 = set(T0) : Float[8] mesh M1 outer_split(0, 4) parallelize(0, DIDx)\n"
      "  output T1\n";
  const std::string uneven =
      "  T2 = input() : Float[10] mesh M0 outer_split(0, 4) parallelize(0, DIDx)\n"
      "  T3 = exp(T2) : Float[10] mesh M0 outer_split(0, 4) parallelize(0, DIDx)\n"
      "  output T3\n";
  const DistributedConfig machines{.devicesPerMachine = 4};
  for (const bool isUneven : {false, true}) {
    SCOPED_TRACE(isUneven);
    const std::unique_ptr<Fusion> fusion = parseFusion("fusion {\n" + moved + (isUneven ? uneven : "") + "}\n");
    std::vector<std::vector<int64_t>> shapes{{8}};
    if (isUneven) {
      shapes.push_back({10});
    }
    const Simulation s = simulateCall(*fusion, shapes, machines);
    const Simulation each = ofEachRank(*fusion, shapes, machines);
    EXPECT_EQ(s.blocked, std::vector<std::string>{});
    EXPECT_EQ(s.collectives, 1);
    EXPECT_EQ(s.classes.size(), isUneven ? 3u : 2u);
    EXPECT_EQ(s.isOfFirstRanks, true);
    EXPECT_GT(s.seconds, 0);
    EXPECT_EQ(s.seconds, each.seconds);
    EXPECT_NEAR(s.idle, each.idle, 1e-12);
    for (const SimulatedClass& c : s.classes) {
      EXPECT_EQ(c.busy, each.classes[c.rank].busy);
    }
  }
}

// Of 300 ranks each holds one row more than the one before.
TEST(SimulateCall, ManyClassesAreRefused) {
  std::string ranks = "0";
  std::string parts = "1";
  for (int64_t r = 1; r < 300; r++) {
    ranks += ", " + std::to_string(r);
    parts += ", " + std::to_string(r + 1);
  }
  const std::unique_ptr<Fusion> fusion = parseFusion("fusion {\n  mesh M0 {x: 300} [" + ranks +
                                                     "]\n"
                                                     "  T0 = input() : Float[45150] mesh M0 partition(0, [" +
                                                     parts +
                                                     "]) parallelize(0, DIDx)\n"
                                                     "  output T0\n"
                                                     "}\n");
  try {
    (void)simulateCall(*fusion, {{45150}}, {.devicesPerMachine = 300});
    FAIL();
  } catch (const UserError& refusal) {
    EXPECT_NE(std::string(refusal.what()).find("the 300 ranks are of 300 kinds"), std::string::npos) << refusal.what();
  }
}

// Of 10 rows on 4 ranks, three ranks hold 3 and the last one 1. The weight is gathered.
TEST(SimulateCall, RanksWithPartsOfEqualSizesAreOneClass) {
  const std::unique_ptr<Fusion> fusion = parseFusion(
      "fusion {\n"
      "  mesh M0 {x: 4} [0, 1, 2, 3]\n"
      "  T0 = input() : Float[10, 16] mesh M0 outer_split(0, 4) parallelize(0, DIDx)\n"
      "  T1 = input() : Float[8, 16] mesh M0 outer_split(0, 4) parallelize(0, DIDx)\n"
      "  T2 = linear(T0, T1) : Float[10, 8, r{16}] mesh M0 outer_split(0, 4) parallelize(0, DIDx)\n"
      "  output T2\n"
      "}\n");
  const std::vector<std::vector<int64_t>> shapes{{10, 16}, {8, 16}};
  const Simulation s = simulateCall(*fusion, shapes, {.devicesPerMachine = 4});
  ASSERT_EQ(s.classes.size(), 2u);
  EXPECT_EQ(s.classes[0].ranks, 3);
  EXPECT_EQ(s.classes[1].rank, 3);
  EXPECT_EQ(s.collectives, 1);
  EXPECT_EQ(s.blocked, std::vector<std::string>{});
  EXPECT_GT(s.classes[0].peakBytes(), s.classes[1].peakBytes());
  const Simulation larger = simulateCall(*fusion, shapes, {.devicesPerMachine = 8});
  ASSERT_EQ(larger.classes.size(), 3u) << "ranks outside of the mesh";
  EXPECT_EQ(larger.classes[2].ranks, 4);
  EXPECT_EQ(larger.classes[2].busy, 0);
  EXPECT_GT(larger.idle, 0.5);
}

}  // namespace
}  // namespace meshfuse
