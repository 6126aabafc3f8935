// Call descriptors: written to messages of bounded length and read back; the differences of two descriptors.
#include "exec/call_descriptor.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "host/program.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/transport/call.h"
#include "multidevice/transport/disagreement.h"
#include "multidevice/transport/loopback/loopback.h"
#include "stress/checked_cache.h"

namespace meshfuse {

namespace {

CallDescriptor descriptor(size_t arguments, size_t lines, std::string_view plan = "p", std::string_view fusion = "f") {
  CallDescriptor a{.fusion = std::string(fusion), .plan = std::string(plan)};
  for (size_t i = 0; i < arguments; i++) {
    a.arguments.push_back({fmt::format("input {0} (T{0})", i), "Float", "[2, 3]", "[4, 3]"});
  }
  for (size_t i = 0; i < lines; i++) {
    a.text += fmt::format("T{} = neg(T{})\n", i + 1, i);
  }
  return a;
}

TEST(CallDescriptor, IsReadAsItWasWritten) {
  const CallDescriptor a = descriptor(3, 5);
  const CallDescriptor b = CallDescriptor::parse(a.toString(3500));
  EXPECT_EQ(b.fusion, a.fusion);
  EXPECT_EQ(b.plan, a.plan);
  EXPECT_EQ(b.text, a.text);
  ASSERT_EQ(b.arguments.size(), 3U);
  EXPECT_EQ(b.arguments[2].input, "input 2 (T2)");
  EXPECT_EQ(b.arguments[2].type, "Float");
  EXPECT_EQ(b.arguments[2].local, "[2, 3]");
  EXPECT_EQ(b.arguments[2].global, "[4, 3]");
}

TEST(CallDescriptor, IsCutBetweenLines) {
  const CallDescriptor a = descriptor(1000, 1000);
  for (const size_t bytes : {0, 10, 200, 3500}) {
    const std::string message = a.toString(bytes);
    EXPECT_LE(message.size(), bytes + 20);
    const CallDescriptor b = CallDescriptor::parse(message);
    EXPECT_LT(b.arguments.size(), 1000U);
    EXPECT_TRUE(a.text.starts_with(b.text));
    EXPECT_TRUE(b.text.empty() || b.text.ends_with('\n')) << b.text;
    EXPECT_TRUE(b.arguments.empty() || b.arguments.back().global == "[4, 3]");
  }
  EXPECT_TRUE(CallDescriptor::parse("").arguments.empty());
}

// The error of a rank that runs its only plan while another rank sends a message or runs a program.
class PlanDescriptorsTest : public testing::Test {
 protected:
  PlanDescriptorsTest() { PlanDescriptors::add(*world_, plan_); }

  std::optional<std::string> against(const std::string& message, uint32_t program = 0) const {
    return world_->programs()->difference({0, shortHash(programNumber(plan_->identity, 1)), ""}, {1, program, message});
  }
  static std::string plan(const CallDescriptor& a) { return std::string(kNewPlan) + "hash\n" + a.toString(3500); }

  std::unique_ptr<Communicator> world_ = makeSelfCommunicator();
  std::shared_ptr<const PlanDescriptor> plan_ =
      std::make_shared<PlanDescriptor>(PlanDescriptor{.call = descriptor(2, 2), .identity = 77, .communications = 3});
};

TEST_F(PlanDescriptorsTest, NamesTheFirstDifference) {
  CallDescriptor other = descriptor(2, 2, "q");
  other.arguments[1].local = "[5, 3]";
  other.arguments[1].global = "[10, 3]";
  EXPECT_EQ(
      against(plan(other)),
      "[run] ranks 0 and 1 call one program with different arguments: input 1 (T1) is Float [2, 3] of a global [4, 3] "
      "on rank 0 and Float [5, 3] of a global [10, 3] on rank 1, they differ in dim 0; rank 0 runs a cached plan, rank "
      "1 "
      "compiles a plan; pass every rank its shard of one global tensor, [4, 3] or [10, 3] (see "
      "Tensor::withGlobalShape)");
  other.text = "T1 = abs(T0)\n";
  other.fusion = "g";
  EXPECT_NE(against(plan(other))->find("rank 0 has \"T1 = neg(T0)\", rank 1 has \"T1 = abs(T0)\""), std::string::npos);
  EXPECT_NE(against(plan(descriptor(2, 2, "q")))->find("the same arguments with other options"), std::string::npos);
  EXPECT_NE(against(plan(descriptor(2, 2)))->find("one executor cache"), std::string::npos);
  EXPECT_TRUE(against("bad call: [run] no")->starts_with("[run] no; rank 1 refuses the call, rank 0 does not"));
}

TEST_F(PlanDescriptorsTest, IsSilentWithoutAMistakeOfTheUser) {
  EXPECT_EQ(against("no plan: out of memory"), std::nullopt);
  EXPECT_EQ(against("another message"), std::nullopt);
  EXPECT_EQ(against("", 0), std::nullopt) << "a barrier";
  EXPECT_EQ(against("", shortHash(programNumber(77, 2))), std::nullopt) << "another step of the same plan";
}

TEST_F(PlanDescriptorsTest, ForgetsDestroyedPlans) {
  auto gone = std::make_shared<PlanDescriptor>(
      PlanDescriptor{.call = descriptor(2, 3, "q", "g"), .identity = 78, .communications = 3});
  PlanDescriptors::add(*world_, gone);
  const uint32_t program = shortHash(programNumber(78, 0));
  EXPECT_NE(against("", program)->find("which differ in line 3"), std::string::npos);
  gone.reset();
  EXPECT_NE(against("", program)->find("rank 1 runs a cached plan, which the other rank does not have"),
            std::string::npos);
}

// One rank has destroyed the cache that the other rank calls.
TEST(PlanDescriptors, OfACacheThatOneRankHasDestroyed) {
  std::vector<std::string> errors(2);
  (void)errorOf([&] {
    runLoopback(2, [&](Communicator& comm) {
      const auto sums = [&](double increment) {
        auto fusion = std::make_unique<Fusion>();
        FusionGuard guard(fusion.get());
        TensorView* x = makeContigTensor(2);
        fusion->addInput(x);
        TensorView* y = sum(add(x, increment), {0});
        fusion->addOutput(y);
        x->setDeviceMesh(DeviceMesh::createForNumDevices(2));
        x->outer_split(0, 2);
        x->axis(0)->parallelize(ParallelType::DIDx);
        y->setDeviceMesh(DeviceMesh::createForNumDevices(2));
        return std::make_unique<FusionExecutorCache>(std::move(fusion), ExecutorOptions{.communicator = &comm});
      };
      std::unique_ptr<FusionExecutorCache> one = sums(1);
      std::unique_ptr<FusionExecutorCache> two = sums(2);
      const Tensor x = Tensor::full({2, 3}, DataType::Float, 1);
      (void)one->runFusionWithInputs({x});
      (void)two->runFusionWithInputs({x});
      if (comm.rank() == 1) {
        two.reset();
      }
      errors[comm.rank()] = errorOf([&] { (void)(comm.rank() == 1 ? one : two)->runFusionWithInputs({x}); });
    });
  });
  EXPECT_TRUE(errors[0].starts_with("UserError: [run] ranks 0 and 1 call different programs")) << errors[0];
  EXPECT_EQ(errors[0], errors[1]);
}

}  // namespace

}  // namespace meshfuse
