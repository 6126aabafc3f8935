// What a cache says of its plan, against the plan itself.
#include "exec/explain.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "exec/fusion_executor_cache.h"
#include "host/program.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/transport/loopback/loopback.h"

namespace meshfuse {
namespace {

TEST(Explain, ShardedSum) {
  runLoopback(2, [](Communicator& comm) {
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      TensorView* x = makeContigConcreteTensor({8, 3});
      fusion->addInput(x);
      TensorView* y = sum(add(x, 1.0), {0});
      fusion->addOutput(y);
      DeviceMesh mesh = DeviceMesh::createForNumDevices(2);
      x->setDeviceMesh(mesh);
      x->outer_split(0, 2);
      x->axis(0)->parallelize(ParallelType::DIDx);
      y->setDeviceMesh(mesh);
    }
    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm});
    EXPECT_THROW((void)cache.explain(), UserError);  // no plan yet
    cache.runFusionWithInputs({Tensor::zeros({4, 3}, DataType::Float)});
    const Explanation e = cache.explain();
    EXPECT_EQ(e.rank, comm.rank());

    ASSERT_EQ(e.tensors.size(), 4u);
    EXPECT_EQ(e.tensors[0].sizes, (std::vector<int64_t>{8, 3}));
    EXPECT_EQ(e.tensors[0].localSizes, (std::vector<int64_t>{4, 3}));
    EXPECT_EQ(e.tensors[1].sharding, e.tensors[0].sharding) << "the addition follows its operand";
    EXPECT_TRUE(e.tensors[3].isOutput);
    EXPECT_EQ(e.tensors[3].localSizes, (std::vector<int64_t>{3}));

    ASSERT_EQ(e.edges.size(), 3u);
    EXPECT_EQ(e.edges[0].relation, "aligned");
    EXPECT_EQ(e.edges[0].reason, "");
    EXPECT_EQ(e.edges[2].relation, "comm");
    EXPECT_EQ(e.edges[2].reason, "the producer is a partial sum over x");
    EXPECT_EQ(e.edges[2].moves, (std::vector<std::string>{"all_reduce(x)"}));

    ASSERT_EQ(e.steps.size(), 2u);
    EXPECT_EQ(e.steps[0].kind, "kernel");
    EXPECT_EQ(e.steps[0].ops, (std::vector<std::string>{"add", "reduce"}));
    EXPECT_EQ(e.steps[0].bytesRead, 4 * 3 * 4);
    EXPECT_EQ(e.steps[0].bytesWritten, 3 * 4);
    EXPECT_NE(e.steps[0].boundary.find("goes to communication"), std::string::npos);
    EXPECT_EQ(e.steps[1].kind, "communicate");

    ASSERT_EQ(e.communications.size(), cache.commSteps().size());
    EXPECT_EQ(e.communications[0].team, (std::vector<int64_t>{0, 1}));
    EXPECT_EQ(e.communications[0].axes, (std::vector<std::string>{"x"}));
    EXPECT_EQ(cache.commSteps()[0].axes, e.communications[0].axes);
    EXPECT_EQ(e.bytesReceived(), cache.commSteps()[0].bytesReceived);
    EXPECT_EQ(e.peakBytes, cache.hostProgram()->sizes().peakBytes);
  });
}

TEST(Explain, WhatStandsInOneKernelAndWhatDoesNot) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    TensorView* x = makeContigConcreteTensor({8, 6});
    fusion->addInput(x);
    fusion->addOutput(exp(x));
    fusion->addOutput(sum(x, {1}));
    fusion->addOutput(sum(x, {0}));
  }
  FusionExecutorCache cache(std::move(fusion));
  cache.runFusionWithInputs({Tensor::zeros({8, 6}, DataType::Float)});
  const Explanation e = cache.explain();
  ASSERT_EQ(e.steps.size(), 2u);
  EXPECT_EQ(e.steps[0].ops, (std::vector<std::string>{"exp", "reduce"}));
  EXPECT_EQ(e.steps[0].joins, (std::vector<std::string>{"T2[8, r{6}] beside T1[8, 6]: both read T0[8, 6]"}));
  EXPECT_EQ(e.steps[0].boundary,
            "T3 does not join: T3[r{8}, 6] reduces other dims than the reductions before it, and one kernel of both "
            "needs at least 256 rows");
  EXPECT_EQ(e.steps[1].joins, std::vector<std::string>{});
}

TEST(Explain, ResultsThatAreCopiedAreSteps) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    TensorView* x = makeContigConcreteTensor({8, 3});
    fusion->addInput(x);
    TensorView* y = neg(x);
    fusion->addOutput(y);
    fusion->addOutput(reshape(y, {24}));  // the same memory, wanted twice
  }
  FusionExecutorCache cache(std::move(fusion));
  cache.runFusionWithInputs({Tensor::zeros({8, 3}, DataType::Float)});
  const Explanation e = cache.explain();
  EXPECT_EQ(e.steps.size(),
            cache.hostProgram()->steps.size() +
                static_cast<size_t>(std::count_if(e.steps.begin(), e.steps.end(),
                                                  [](const ExplainedStep& s) { return s.kind == "view"; })));
}

}  // namespace
}  // namespace meshfuse
