// What a rank's own layouts may not change: the order of collectives, and what a view of an overwritten input shows.
#include <gtest/gtest.h>

#include "exec/fusion_executor_cache.h"
#include "interpret/interpret.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/transport/loopback/loopback.h"

namespace meshfuse {

namespace {

// Two gathers of equal shape: a rank that must copy its strided shard first still makes them in the agreed order.
TEST(Layouts, OfOneRankDoNotReorderCollectives) {
  Tensor x = randomTensor({8, 6}, DataType::Float, 1);
  Tensor y = randomTensor({8, 6}, DataType::Float, 2);
  runLoopback(2,
              [&](Communicator& comm) {
                auto fusion = std::make_unique<Fusion>();
                {
                  FusionGuard guard(fusion.get());
                  DeviceMesh mesh = DeviceMesh::createForNumDevices(2);
                  for (int i = 0; i < 2; i++) {
                    TensorView* in = makeSymbolicTensor(2);
                    fusion->addInput(in);
                    in->setDeviceMesh(mesh);
                    in->outer_split(0, 2);
                    in->axis(0)->parallelize(ParallelType::DIDx);
                    TensorView* out = set(in);
                    fusion->addOutput(out);
                    out->setDeviceMesh(mesh);
                  }
                }
                FusionExecutorCache cache(std::move(fusion), {.communicator = &comm});
                auto shard = [&](const Tensor& t) { return t.slice(0, comm.rank() * 4, comm.rank() * 4 + 4); };
                Tensor strided = shard(x);
                if (comm.rank() == 1) {
                  strided = shard(x).transpose(0, 1).contiguous().transpose(0, 1);
                }
                std::vector<Tensor> out = cache.runFusionWithInputs({strided, shard(y)});
                EXPECT_EQ(out[0].toVector(), x.toVector());
                EXPECT_EQ(out[1].toVector(), y.toVector());
              },
              {.deadline = std::chrono::milliseconds(60'000)});
}

// The bits of x as they were before x was overwritten.
TEST(Layouts, AViewOfAnOverwrittenInputShowsTheOldValue) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    TensorView* x = makeContigTensor(1);
    fusion->addInput(x);
    TensorView* bits = bitCastOp(DataType::Int32, x);
    fusion->addOutput(bits);
    TensorView* next = neg(x);
    fusion->addOutput(next);
    fusion->aliasOutputToInput(next, x);
  }
  Tensor x = randomTensor({40}, DataType::Float, 1);
  std::vector<Tensor> expected = interpret(*fusion, {x.clone()});
  FusionExecutorCache cache(std::move(fusion));
  std::vector<Tensor> out = cache.runFusionWithInputs({x});
  EXPECT_EQ(out[0].toVector(), expected[0].toVector());
  EXPECT_EQ(x.toVector(), expected[1].toVector());
}

// A run-time integer may be negative.
TEST(Layouts, RunTimeIntegersKeepTheirSign) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    TensorView* x = makeContigTensor(1, DataType::Int);
    Val* i = IrBuilder::create<Val>(DataType::Int);
    fusion->addInput(x);
    fusion->addInput(i);
    fusion->addOutput(add(x, fusion->intScalar(max(i->intExpr(), IntExpr(0)))));
  }
  Tensor x = randomTensor({5}, DataType::Int, 1, 0, 9);
  std::vector<Tensor> expected = interpret(*fusion, {x, int64_t{-3}});
  FusionExecutorCache cache(std::move(fusion));
  EXPECT_EQ(cache.runFusionWithInputs({x, int64_t{-3}})[0].toVector(), expected[0].toVector());
}

// Meshes that place a rank differently on axes of one name are two: each cuts its own part of what is whole.
TEST(Layouts, AxesOfOneNameMayPlaceARankTwice) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    TensorView* x = makeContigConcreteTensor({4});
    fusion->addInput(x);
    x->setDeviceMesh(DeviceMesh({0, 1}));
    for (const std::vector<int64_t>& ids : {std::vector<int64_t>{0, 1}, {1, 0}}) {
      TensorView* y = neg(x);
      fusion->addOutput(y);
      y->setDeviceMesh(DeviceMesh(ids));
      y->outer_split(0, 2)->axis(0)->parallelize(ParallelType::DIDx);
    }
  }
  runLoopback(
      2,
      [&](Communicator& comm) {
        FusionExecutorCache cache(fusion->clone(), {.communicator = &comm});
        const std::vector<Tensor> out = cache.runFusionWithInputs({Tensor::of({1, 2, 3, 4}, {4}, DataType::Float)});
        const std::vector<double> low{-1, -2};
        const std::vector<double> high{-3, -4};
        EXPECT_EQ(out[0].toVector(), comm.rank() == 0 ? low : high);
        EXPECT_EQ(out[1].toVector(), comm.rank() == 0 ? high : low);
        EXPECT_TRUE(cache.commSteps().empty());
      },
      {.deadline = std::chrono::milliseconds(60'000)});
}

}  // namespace

}  // namespace meshfuse
