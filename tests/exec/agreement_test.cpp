// Ranks that fail or refuse at different places of a call, and what their next calls exchange.
#include "exec/agreement.h"
#include "device/device.h"
#include "device/open.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "exec/call_descriptor.h"
#include "exec/compile.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/transport/disagreement.h"
#include "multidevice/transport/loopback/loopback.h"

namespace meshfuse {

namespace {

std::unique_ptr<Fusion> negatedOnAllRanks() {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* x = makeContigTensor(1);
  fusion->addInput(x);
  fusion->addOutput(neg(x));
  return fusion;
}

std::vector<Argument> elementsFor(int64_t count) { return {Tensor::full({count}, DataType::Float, 1)}; }

void planFor(Agreement& agreement, const Fusion& fusion, int64_t count) {
  (void)compileToSegments(fusion, elementsFor(count), agreement.call(),
                          openDevice(defaultDevice(), {.threads = 1})->info());
}

// The disagreement that each of two ranks finds in `body`.
std::array<std::string, 2> disagreementsIn(const std::function<void(Communicator&)>& body) {
  std::array<std::string, 2> texts;
  runLoopback(2, [&](Communicator& comm) {
    PlanDescriptors::add(comm, std::make_shared<PlanDescriptor>());
    try {
      body(comm);
    } catch (const DisagreementError& e) {
      texts[comm.rank()] = e.what();
    } catch (const std::exception& e) {
      texts[comm.rank()] = std::string("another error: ") + e.what();
    }
  });
  EXPECT_EQ(texts[0], texts[1]);
  return texts;
}

const AgreedPlan kCommunicates{.identity = 1, .communicates = true};

// Rank 1 refuses a call after its last collective, when rank 0 has completed the call.
TEST(Agreement, ALateRefusalDoesNotMatchTheNextPlan) {
  const std::array<std::string, 2> texts = disagreementsIn([](Communicator& comm) {
    Agreement agreement(comm, {.maxPlans = 4});
    const std::unique_ptr<Fusion> fusion = negatedOnAllRanks();
    agreement.call().afterAgreement(kCommunicates, [&] {
      comm.barrier(comm.world());
      check(comm.rank() == 0, "[test] refused at the end");
    });
    planFor(agreement, *fusion, 3);
  });
  EXPECT_TRUE(texts[0].starts_with("[test] refused at the end; rank 1 refuses the call, rank 0 does not")) << texts[0];
}

TEST(Agreement, ALateRefusalDoesNotMatchTheNextRefusal) {
  const std::array<std::string, 2> texts = disagreementsIn([](Communicator& comm) {
    Agreement agreement(comm, {.maxPlans = 4});
    agreement.call().afterAgreement(kCommunicates, [&] { check(comm.rank() == 0, "[test] refused at the end"); });
    agreement.call().afterAgreement(kCommunicates, [&] { throwUserError("[test] refused later"); });
  });
  EXPECT_TRUE(texts[0].starts_with("[test] refused later on rank 0, [test] refused at the end on rank 1")) << texts[0];
}

TEST(Agreement, RanksThatHaveMadeDifferentNumbersOfCallsSaySo) {
  const std::array<std::string, 2> texts = disagreementsIn([](Communicator& comm) {
    Agreement agreement(comm, {.maxPlans = 4});
    if (comm.rank() == 1) {
      (void)agreement.call();
    }
    planFor(agreement, *negatedOnAllRanks(), 3);
  });
  EXPECT_TRUE(texts[0].starts_with("[run] ranks 0 and 1 have made different numbers of calls")) << texts[0];
}

// Both refuse one call, one of them while it plans: another call may follow.
TEST(Agreement, RefusalsOfOneCallMatch) {
  runLoopback(2, [](Communicator& comm) {
    Agreement agreement(comm, {.maxPlans = 4});
    const std::unique_ptr<Fusion> fusion = negatedOnAllRanks();
    const std::vector<Argument> inputs = elementsFor(3);
    const auto refused = [] { throwUserError("[test] refused"); };
    {
      const Agreement::Call call = agreement.call();
      EXPECT_THROW(comm.rank() == 0 ? call.beforeAgreement({*fusion, inputs}, refused)
                                    : call.afterAgreement(kCommunicates, refused),
                   UserError);
    }
    EXPECT_NO_THROW(planFor(agreement, *fusion, 3));
    EXPECT_EQ(comm.program(), 0u);
  });
}

// Rank 1 fails to compile the plan on which both have agreed. It plans again, rank 0 does not.
TEST(Agreement, AgreedShapesAreNotComparedAgainAfterAFailure) {
  runLoopback(2, [](Communicator& comm) {
    Agreement agreement(comm, {.maxPlans = 4});
    const std::unique_ptr<Fusion> fusion = negatedOnAllRanks();
    planFor(agreement, *fusion, 3);
    if (comm.rank() == 1) {
      planFor(agreement, *fusion, 3);
      planFor(agreement, *fusion, 5);  // the program never communicates
    }
    EXPECT_NO_THROW(comm.barrier(comm.world()));
  });
}

std::unique_ptr<Fusion> onMeshOfTwo(bool isSummed) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* x = makeContigTensor(1);
  fusion->addInput(x);
  x->setDeviceMesh(DeviceMesh::createForNumDevices(2));
  if (isSummed) {
    x->outer_split(0, 2);
    x->axis(0)->parallelize(ParallelType::DIDx);
  }
  TensorView* out = isSummed ? sum(x, {0}) : neg(x);
  out->setDeviceMesh(x->getDeviceMesh());
  fusion->addOutput(out);
  return fusion;
}

// Until a plan redistributes, only the first one is compared, and a rank may have programs of calls that its peers did not make, or that failed
// there. Afterwards all ranks compare them.
TEST(Agreement, ShapesThatWereNotComparedAreNewWhenAPlanRedistributes) {
  runLoopback(2,
              [](Communicator& comm) {
                Agreement agreement(comm, {.maxPlans = 4});
                const std::unique_ptr<Fusion> local = onMeshOfTwo(false);
                const std::unique_ptr<Fusion> summed = onMeshOfTwo(true);
                planFor(agreement, *local, 3);
                if (comm.rank() == 0) {
                  planFor(agreement, *local, 5);
                } else {
                  (void)agreement.call();
                }
                planFor(agreement, *summed, 4);
                EXPECT_EQ(std::ssize(agreement.call().takeEvicted()), comm.rank() == 0 ? 1 : 0);
                planFor(agreement, *local, 5);
                EXPECT_NE(agreement.call().agreed({.sizes = {{5}}, .device = defaultDevice().kind}), nullptr);
                planFor(agreement, *summed, 6);
              },
              {.deadline = std::chrono::milliseconds(20'000)});
}

// No tensor is on a mesh: only the first plans are compared.
TEST(Agreement, NothingIsAgreedWithoutAComparison) {
  runLoopback(2, [](Communicator& comm) {
    Agreement agreement(comm, {.maxPlans = 2});
    const std::unique_ptr<Fusion> fusion = negatedOnAllRanks();
    EXPECT_FALSE(agreement.call().plansAlone(*fusion));
    planFor(agreement, *fusion, 3);
    EXPECT_TRUE(agreement.call().plansAlone(*fusion));
    for (int64_t k = 0; k < 3; k++) {
      planFor(agreement, *fusion, 5 + k + 10 * comm.rank());
    }
    const Agreement::Call call = agreement.call();
    const auto kind = defaultDevice().kind;
    EXPECT_NE(call.agreed({.sizes = {{3}}, .device = kind}), nullptr);
    EXPECT_EQ(call.agreed({.sizes = {{5 + 10 * comm.rank()}}, .device = kind}), nullptr);
    EXPECT_TRUE(call.takeEvicted().empty());
  });
}

// Rank 1 cannot make its program for shapes that were agreed before; rank 0 runs it.
TEST(Agreement, AFailureBeforeAnAgreedProgramIsToldToRanksThatRunIt) {
  runLoopback(2, [](Communicator& comm) {
    Agreement agreement(comm, {.maxPlans = 4});
    const std::unique_ptr<Fusion> fusion = negatedOnAllRanks();
    const std::vector<Argument> inputs = elementsFor(3);
    const ProgramChoice agreed{
        .program = std::make_shared<const PlannedProgram>(PlannedProgram{.planned = nullptr, .agreed = kCommunicates})};
    std::string error;
    try {
      const Agreement::Call call = agreement.call();
      if (comm.rank() == 0) {
        call.afterAgreement(kCommunicates, [&] { comm.barrier(comm.world()); });
      } else {
        call.beforeAgreement({*fusion, inputs}, agreed, [] { throw std::runtime_error("no memory"); });
      }
    } catch (const std::exception& e) {
      error = e.what();
    }
    EXPECT_NE(error.find("no memory"), std::string::npos) << error;
  });
}

// Ranks take the global sizes from their shards, so they compare them.
TEST(Agreement, EvictedShapesAreReportedOnce) {
  runLoopback(2, [](Communicator& comm) {
    Agreement agreement(comm, {.maxPlans = 1});
    const std::unique_ptr<Fusion> fusion = negatedOnAllRanks();
    TensorView* x = fusion->inputs()[0]->asTensor();
    x->setDeviceMesh(DeviceMesh::createForNumDevices(2));
    x->outer_split(0, 2);
    x->axis(0)->parallelize(ParallelType::DIDx);
    planFor(agreement, *fusion, 3);
    EXPECT_TRUE(agreement.call().takeEvicted().empty());
    planFor(agreement, *fusion, 5);
    const std::vector<Agreement::Shapes> evicted = agreement.call().takeEvicted();
    ASSERT_EQ(evicted.size(), 1u);
    EXPECT_EQ(evicted[0], (AgreedPrograms::Shapes{.sizes = {{6}}, .device = defaultDevice().kind}));
    EXPECT_TRUE(agreement.call().takeEvicted().empty());
    EXPECT_EQ(agreement.call().agreed(evicted[0]), nullptr);
  });
}

}  // namespace

}  // namespace meshfuse
