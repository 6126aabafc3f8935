// What a rank says of a call: as a message and back, of bounded length; and what two such accounts have in common.
#include "exec/accounts.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "host/program.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/transport/call.h"
#include "multidevice/transport/disagreement.h"
#include "multidevice/transport/loopback/loopback.h"
#include "nasty/checked_cache.h"

namespace meshfuse {

namespace {

CallAccount account(size_t arguments, size_t lines, std::string_view plan = "p", std::string_view fusion = "f") {
  CallAccount a{.fusion = std::string(fusion), .plan = std::string(plan)};
  for (size_t i = 0; i < arguments; i++) {
    a.arguments.push_back({fmt::format("input {0} (T{0})", i), "Float", "[2, 3]", "[4, 3]"});
  }
  for (size_t i = 0; i < lines; i++) {
    a.text += fmt::format("T{} = neg(T{})\n", i + 1, i);
  }
  return a;
}

TEST(CallAccount, IsReadAsItWasWritten) {
  const CallAccount a = account(3, 5);
  const CallAccount b = CallAccount::parse(a.toString(3500));
  EXPECT_EQ(b.fusion, a.fusion);
  EXPECT_EQ(b.plan, a.plan);
  EXPECT_EQ(b.text, a.text);
  ASSERT_EQ(b.arguments.size(), 3U);
  EXPECT_EQ(b.arguments[2].input, "input 2 (T2)");
  EXPECT_EQ(b.arguments[2].type, "Float");
  EXPECT_EQ(b.arguments[2].given, "[2, 3]");
  EXPECT_EQ(b.arguments[2].whole, "[4, 3]");
}

TEST(CallAccount, IsCutBetweenLines) {
  const CallAccount a = account(1000, 1000);
  for (const size_t bytes : {0, 10, 200, 3500}) {
    const std::string message = a.toString(bytes);
    EXPECT_LE(message.size(), bytes + 20);
    const CallAccount b = CallAccount::parse(message);
    EXPECT_LT(b.arguments.size(), 1000U);
    EXPECT_TRUE(a.text.starts_with(b.text));
    EXPECT_TRUE(b.text.empty() || b.text.ends_with('\n')) << b.text;
    EXPECT_TRUE(b.arguments.empty() || b.arguments.back().whole == "[4, 3]");
  }
  EXPECT_TRUE(CallAccount::parse("").arguments.empty());
}

// What a rank with one plan says of a call of that plan that meets another's message or program.
class PlanAccountsTest : public testing::Test {
 protected:
  PlanAccountsTest() { PlanAccounts::add(*world_, plan_); }

  std::optional<std::string> against(const std::string& message, uint32_t program = 0) const {
    return world_->programs()->difference({0, shortHash(programNumber(plan_->identity, 1)), ""}, {1, program, message});
  }
  static std::string plan(const CallAccount& a) { return std::string(kMakesAPlan) + "hash\n" + a.toString(3500); }

  std::unique_ptr<Communicator> world_ = makeSelfCommunicator();
  std::shared_ptr<const PlanAccount> plan_ =
      std::make_shared<PlanAccount>(PlanAccount{.call = account(2, 2), .identity = 77, .communications = 3});
};

TEST_F(PlanAccountsTest, SaysWhatDiffersFirst) {
  CallAccount other = account(2, 2, "q");
  other.arguments[1].given = "[5, 3]";
  other.arguments[1].whole = "[10, 3]";
  EXPECT_EQ(
      against(plan(other)),
      "[run] ranks 0 and 1 call one program with different arguments: input 1 (T1) is Float [2, 3] for a whole of "
      "[4, 3] on rank 0 and Float [5, 3] for a whole of [10, 3] on rank 1, other in dim 0; rank 0 runs the plan that "
      "it has, rank 1 makes a plan; give every rank its part of one whole, [4, 3] or [10, 3] (see "
      "Tensor::withGlobalShape)");
  other.text = "T1 = abs(T0)\n";
  other.fusion = "g";
  EXPECT_NE(against(plan(other))->find("rank 0 has \"T1 = neg(T0)\", rank 1 has \"T1 = abs(T0)\""), std::string::npos);
  EXPECT_NE(against(plan(account(2, 2, "q")))->find("the same arguments with other options"), std::string::npos);
  EXPECT_NE(against(plan(account(2, 2)))->find("one executor cache"), std::string::npos);
  EXPECT_TRUE(against("bad call: [run] no")->starts_with("[run] no; so says rank 1, and rank 0 does not"));
}

TEST_F(PlanAccountsTest, SaysNothingOfWhatIsNotTheUsers) {
  EXPECT_EQ(against("no plan: out of memory"), std::nullopt);
  EXPECT_EQ(against("a message of somebody else"), std::nullopt);
  EXPECT_EQ(against("", 0), std::nullopt) << "a barrier";
  EXPECT_EQ(against("", shortHash(programNumber(77, 2))), std::nullopt) << "another step of the same plan";
}

TEST_F(PlanAccountsTest, ForgetsPlansThatAreGone) {
  auto gone =
      std::make_shared<PlanAccount>(PlanAccount{.call = account(2, 3, "q", "g"), .identity = 78, .communications = 3});
  PlanAccounts::add(*world_, gone);
  const uint32_t program = shortHash(programNumber(78, 0));
  EXPECT_NE(against("", program)->find("which differ in line 3"), std::string::npos);
  gone.reset();
  EXPECT_NE(against("", program)->find("rank 1 runs the plan that it has, which the other does not have"),
            std::string::npos);
}

// One rank has given up the cache that the other one calls.
TEST(PlanAccounts, OfACacheThatOneRankHasGivenUp) {
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
      errors[static_cast<size_t>(comm.rank())] =
          errorOf([&] { (void)(comm.rank() == 1 ? one : two)->runFusionWithInputs({x}); });
    });
  });
  EXPECT_TRUE(errors[0].starts_with("UserError: [run] ranks 0 and 1 call different programs")) << errors[0];
  EXPECT_EQ(errors[0], errors[1]);
}

}  // namespace

}  // namespace meshfuse
