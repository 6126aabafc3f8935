// Ports of test_multidevice_pipeline.cpp: stages of a program on meshes of their own.
#include "nvfuser_shape/port.h"

namespace meshfuse {
namespace {

class PortsOfPipelines : public PortTest {};

TEST_F(PortsOfPipelines, AllocationDomain) {
  const auto build = [](Fusion& f) {
    TensorView* in = makeConcreteTensor({2, 5});
    TensorView* out = set(in);
    out->setAllocationDomain({out->axis(1), out->axis(0)}, true);
    f.addInput(in);
    f.addOutput(out);
    in->setDeviceMesh({0});
    out->setDeviceMesh({0});
  };
  runPortOn(2, {build, {random({2, 5})}, {}, [](const auto&, const std::vector<Tensor>& out) {
                  EXPECT_TRUE(out[0].transpose(0, 1).isContiguous());
                }});
}

// Two programs in one; stages of one to three of six ranks; some stages share ranks.
TEST_F(PortsOfPipelines, Pipeline) {
  const auto build = [](Fusion& f) {
    const auto on = [](const DeviceMesh& mesh, TensorView* tv) {
      tv->setDeviceMesh(mesh);
      return tv;
    };
    TensorView* first = on({5}, makeConcreteTensor({6, 7}));
    f.addInput(first);
    f.addOutput(on({2, 4}, sum(on({2, 4}, set(on({5}, sum(first, {0})))), {0})));

    const DeviceMesh head{0}, left{0, 1, 4}, right{1, 3}, middle{2}, tail{4, 5};
    TensorView* second = on(head, makeConcreteTensor({3, 5, 2}));
    f.addInput(second);
    TensorView* rows = on(head, sum(second, {0}));
    TensorView* atLeft = on(left, set(on(left, set(rows))));
    TensorView* ofLeft = on(left, sum(atLeft, {0}));
    TensorView* ofRight = on(right, sum(on(right, set(on(right, set(rows)))), {0}));
    TensorView* ofMiddle = on(middle, sum(on(middle, set(atLeft)), {0}));
    f.addOutput(ofMiddle);
    TensorView* total = on(tail, add(on(tail, set(ofLeft)), on(tail, set(ofRight))));
    f.addOutput(on(tail, sum(on(tail, add(total, on(tail, set(ofMiddle)))), {0})));
  };
  runPortOn(6, {build, {random({6, 7}, 1), random({3, 5, 2}, 2)}});
}

// The meshes, cuts and reductions between two stages of nvFuser's instances of this test.
class PortsOfTwoStages : public PortTest {
 protected:
  struct Stages {
    DeviceMesh first, second;
    bool cutsFirst = false;
    bool cutsSecond = false;
    bool reduces = false;
  };

  void runStages(const Stages& s) {
    for (const int64_t dim : {0, 1}) {
      std::vector<int64_t> shape = {3, 2, 3, 5};
      if (s.cutsFirst) {
        shape[dim] = s.first.size();
      }
      if (s.cutsSecond) {
        shape[dim] = s.second.size();
        shape[dim + 1] = s.reduces ? s.second.size() : shape[dim + 1];
      }
      const auto build = [=](Fusion& f) {
        TensorView* in = makeConcreteTensor(shape);
        TensorView* rows = sum(in, {3});
        TensorView* crossed = s.reduces ? sum(rows, {dim}) : set(rows);
        TensorView* out = add(crossed, crossed);
        f.addInput(in);
        f.addOutput(out);
        for (TensorView* tv : {in, rows}) {
          tv->setDeviceMesh(s.first);
          if (s.cutsFirst) {
            tv->axis(dim)->parallelize(ParallelType::DIDx);
          }
        }
        for (TensorView* tv : {crossed, out}) {
          tv->setDeviceMesh(s.second);
          if (s.cutsSecond) {
            tv->axis(tv == crossed && s.reduces ? dim + 1 : dim)->parallelize(ParallelType::DIDx);
          }
        }
      };
      SCOPED_TRACE(fmt::format("{} -> {}, dim {}", s.first.toString(), s.second.toString(), dim));
      runPortOn(4, {build, {random(shape)}});
    }
  }

  const std::vector<DeviceMesh> all_ = {{0}, {1}, {0, 1, 2, 3}, {0, 2, 3}, {1, 0, 2}, {1, 0}};
  const std::vector<DeviceMesh> several_ = {{0, 1, 2, 3}, {0, 2, 3}, {1, 0, 2}, {1, 0}};
};

TEST_F(PortsOfTwoStages, Gather) {
  for (const DeviceMesh& first : all_) {
    for (const DeviceMesh& second : all_) {
      runStages({first, second, true, false});
    }
  }
}

TEST_F(PortsOfTwoStages, Scatter) {
  for (const DeviceMesh& first : all_) {
    for (const DeviceMesh& second : all_) {
      runStages({first, second, false, true});
    }
  }
}

TEST_F(PortsOfTwoStages, Bcast) {
  for (const DeviceMesh& first : all_) {
    for (const DeviceMesh& second : all_) {
      runStages({first, second});
    }
  }
}

TEST_F(PortsOfTwoStages, BcastOfShards) {
  for (const DeviceMesh& first : {DeviceMesh{0, 2, 3}, DeviceMesh{1, 0, 2}}) {
    for (const DeviceMesh& second : {DeviceMesh{0, 2, 3}, DeviceMesh{1, 0, 2}}) {
      runStages({first, second, true, true});
    }
  }
  for (const DeviceMesh& mesh : {DeviceMesh{0}, DeviceMesh{1}}) {
    runStages({mesh, mesh, true, true});
  }
}

TEST_F(PortsOfTwoStages, Reduce) {
  for (const DeviceMesh& first : several_) {
    for (const DeviceMesh& second : all_) {
      runStages({first, second, true, false, true});
    }
  }
}

TEST_F(PortsOfTwoStages, ReduceScatter) {
  for (const DeviceMesh& mesh : several_) {
    runStages({mesh, mesh, true, true, true});
  }
}

}  // namespace
}  // namespace meshfuse
