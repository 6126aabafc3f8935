// Meshes that the ranks of a program cannot agree on: the error is the same on all, and comes before anything ran.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/transport/loopback/loopback.h"

namespace meshfuse {

namespace {

TensorView* cut(TensorView* x, const DeviceMesh& mesh, int dim) {
  x->setDeviceMesh(mesh);
  x->outer_split(dim, mesh.size("x"));
  x->axis(dim)->parallelize(mesh.axis("x"));
  return x;
}

// What every rank is told; fails unless it is one UserError on all.
std::string errorOnEveryRank(int ranks, const std::function<void(Fusion&)>& build, const Tensor& shard) {
  std::vector<std::string> errors(ranks);
  runLoopback(ranks, [&](Communicator& comm) {
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      build(*fusion);
    }
    std::string& mine = errors[comm.rank()];
    try {
      FusionExecutorCache cache(std::move(fusion), {.communicator = &comm});
      (void)cache.runFusionWithInputs({shard});
      mine = "none";
    } catch (const UserError& e) {
      mine = e.what();
    } catch (const std::exception& e) {
      mine = std::string("no UserError, but ") + e.what();
    }
  });
  for (const std::string& e : errors) {
    EXPECT_EQ(e, errors[0]);
  }
  EXPECT_FALSE(errors[0].starts_with("no UserError")) << errors[0];
  return errors[0];
}

TEST(Meshes, PlannerSettingsForAxesAndMovesThatThereAreNot) {
  const std::string error = errorOnEveryRank(
      2,
      [](Fusion& f) {
        TensorView* x = makeContigConcreteTensor({8, 4});
        f.addInput(x);
        f.addOutput(set(cut(x, DeviceMesh::create({{"x", 2}}), 0)));
        f.setPlanner({.forbid = {"all_to_al"}, .beta = {{"tp", 3}}});
      },
      Tensor::zeros({4, 4}, DataType::Float));
  EXPECT_NE(error.find("no move 'all_to_al' to forbid; it has all_gather, all_reduce, all_to_all"), std::string::npos)
      << error;
  EXPECT_NE(error.find("beta is given for an axis 'tp'; the meshes have x"), std::string::npos) << error;
}

TEST(Meshes, OneAxisOnTwoDims) {
  std::string error = errorOnEveryRank(
      2,
      [](Fusion& f) {
        TensorView* x = makeContigConcreteTensor({8, 4});
        f.addInput(x);
        const DeviceMesh mesh = DeviceMesh::create({{"x"}});
        cut(cut(x, mesh, 1), mesh, 0);
        f.addOutput(neg(x));
      },
      Tensor::zeros({4, 2}, DataType::Float));
  EXPECT_EQ(
      error,
      "[sharding] T0[DIDx{x}, ceilDiv(8, x), DIDx{x}, ceilDiv(4, x)] binds DIDx, axis x of {x: x}[], to its loop "
      "dims 0 and 2; an axis owns one digit of a tensor: leave one of them serial, or give the mesh one more axis");
}

TEST(Meshes, OnePartOfAnAxisOnTwoDims) {
  std::string error = errorOnEveryRank(
      4,
      [](Fusion& f) {
        TensorView* x = makeContigConcreteTensor({8, 4});
        f.addInput(x);
        const DeviceMesh mesh = DeviceMesh::create({{"x", 4}});
        x->setDeviceMesh(mesh);
        x->outer_split(1, 2)->outer_split(0, 2);
        x->parallelize(0, mesh.axis("x", 1, 2))->parallelize(2, mesh.axis("x", 1, 2));
        f.addOutput(neg(x));
      },
      Tensor::zeros({4, 2}, DataType::Float));
  EXPECT_EQ(
      error,
      "[run] the fusion is not valid:\n  T0: DIDx:1:2, axis x of {x: 4}[0, 1, 2, 3], is "
      "bound to two loop dims, 0 and 2; an axis owns one digit of a tensor: leave one of them serial, or bind it to "
      "one that is free: DIDx:2:2 (x)");
}

TEST(Meshes, SymbolicAxesThatTheRanksDoNotFill) {
  std::string error = errorOnEveryRank(
      3,
      [](Fusion& f) {
        TensorView* x = makeContigConcreteTensor({8});
        f.addInput(x);
        cut(x, DeviceMesh::create({{"y", 2}, {"x"}}), 0);
        f.addOutput(sum(x, {0}));
      },
      Tensor::zeros({4}, DataType::Float));
  EXPECT_TRUE(error.starts_with("[specialize] 3 ranks are no multiple of the 2 along the other axes of {y: 2, x: x}[]"))
      << error;
}

// A rank that a mesh leaves out passes a tensor without elements; here all pass a part.
TEST(Meshes, OfSomeRanksGivenPartsByAll) {
  const std::string e = errorOnEveryRank(
      4,
      [](Fusion& f) {
        TensorView* x = makeContigConcreteTensor({8});
        f.addInput(x);
        cut(x, DeviceMesh::create({{"x", 2}}, {3, 1}), 0);
        f.addOutput(sum(x, {0}));
      },
      Tensor::zeros({4}, DataType::Float));
  EXPECT_TRUE(e.starts_with("[run] input 0 (T0) has local sizes [0] on this rank, got [4], which differ in dim 0"))
      << e;
  EXPECT_NE(e.find("an empty tensor if the rank is outside its mesh"), std::string::npos) << e;
  EXPECT_TRUE(e.ends_with("; ranks [0, 2] of 4 refuse the call with this error")) << e;
}

TEST(Meshes, LargerThanTheWorld) {
  std::string error = errorOnEveryRank(
      2,
      [](Fusion& f) {
        TensorView* x = makeContigConcreteTensor({8});
        f.addInput(x);
        cut(x, DeviceMesh::create({{"x", 4}}), 0);
        f.addOutput(sum(x, {0}));
      },
      Tensor::zeros({2}, DataType::Float));
  EXPECT_TRUE(error.starts_with("[run] the mesh of T0 contains rank 2, but there are 2 ranks")) << error;
}

}  // namespace

}  // namespace meshfuse
