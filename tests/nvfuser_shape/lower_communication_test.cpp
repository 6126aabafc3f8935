// Ports of test_multidevice_lower_communication.cpp, and of a test of _communications.cpp: one edge between two shardings, and the collective that it takes.
#include "nvfuser_shape/port.h"

namespace meshfuse {
namespace {

class PortsOfLowering : public PortTest {
 protected:
  using Kinds = std::optional<std::vector<std::string>>;

  // out = set(in) between two meshes; `cutsIn` and `cutsOut`: dim 0 is one row for each rank.
  void copyBetween(const DeviceMesh& from, const DeviceMesh& to, bool cutsIn, bool cutsOut) {
    const int64_t rows = cutsIn ? from.size() : to.size();
    const auto build = [=](Fusion& f) {
      TensorView* in = makeContigTensor(2);
      TensorView* out = set(in);
      f.addInput(in);
      f.addOutput(out);
      in->setDeviceMesh(from);
      out->setDeviceMesh(to);
      for (const auto& [tv, cuts] : {std::pair(in, cutsIn), std::pair(out, cutsOut)}) {
        if (cuts) {
          tv->axis(0)->parallelize(ParallelType::DIDx);
        }
      }
    };
    runPortOn(3, {build, {random({rows, 4})}});
  }

  // A program with one input on all ranks.
  void edge(const std::function<std::vector<int64_t>(int64_t)>& shape,
            const std::function<TensorView*(TensorView*, int64_t)>& build, const Kinds& kinds,
            const std::function<void(const FusionExecutorCache&, const std::vector<Tensor>&)>& alsoExpect = {}) {
    runPort([&](int64_t d) {
      const auto all = [=](Fusion& f) {
        TensorView* in = makeSymbolicTensor(std::ssize(shape(d)));
        f.addInput(in);
        f.addOutput(build(in, d));
      };
      return Port{all, {random(shape(d))}, kinds, alsoExpect};
    });
  }
};

TensorView* on(TensorView* tv, const DeviceMesh& mesh) {
  tv->setDeviceMesh(mesh);
  return tv;
}

TEST_F(PortsOfLowering, Gather) {
  copyBetween({0, 1}, {0}, true, false);
  copyBetween({0, 1}, {1}, true, false);
  copyBetween({1, 2}, {0, 2}, true, false);
}

TEST_F(PortsOfLowering, Scatter) {
  copyBetween({0}, {0, 1}, false, true);
  copyBetween({1}, {0, 1}, false, true);
  copyBetween({0, 2}, {1, 2}, false, true);
}

TEST_F(PortsOfLowering, SendRecv) {
  copyBetween({0}, {1}, true, true);
  copyBetween({1}, {0}, true, true);
  copyBetween({1, 2}, {0, 1}, true, true);
  copyBetween({1, 2}, {1, 0}, true, true);
}

// An edge from a rank to itself is a copy: nothing is sent.
TEST_F(PortsOfLowering, SendRecvToSelf) {
  const auto build = [](Fusion& f) {
    TensorView* in = makeContigConcreteTensor({1024});
    f.addInput(in);
    in->setDeviceMesh({0});
    f.addOutput(on(set(in), {0}));
  };
  runPortOn(2, {build, {random({1024})}, kNoSteps});
}

TEST_F(PortsOfLowering, Allgather) {
  edge(
      [](int64_t d) {
        return std::vector{d, int64_t{4}};
      },
      [](TensorView* in, int64_t d) {
        bindDim(in, 0, d);
        return on(set(in), in->getDeviceMesh());
      },
      {{"all-gather"}},
      [](const FusionExecutorCache& cache, const auto&) {
        EXPECT_EQ(cache.commSteps()[0].axes, (std::vector<std::string>{"x"}));
      });
}

TEST_F(PortsOfLowering, AllgatherOfALoopSplit) {
  edge([](int64_t d) { return std::vector{d * 4}; },
       [](TensorView* in, int64_t d) {
         splitDim(in, 0, d);
         TensorView* out = on(set(in), in->getDeviceMesh());
         out->outer_split(0, d);
         allocateLoops(in);
         allocateLoops(out);
         return out;
       },
       {{"all-gather"}});
}

TEST_F(PortsOfLowering, Broadcast) {
  edge(
      [](int64_t) {
        return std::vector<int64_t>{1, 4};
      },
      [](TensorView* in, int64_t d) {
        in->setDeviceMesh({0});
        return on(set(in), DeviceMesh::createForNumDevices(d));
      },
      {});
}

TEST_F(PortsOfLowering, Reduce) {
  edge(
      [](int64_t d) {
        return std::vector{d, int64_t{4}};
      },
      [](TensorView* in, int64_t d) {
        bindDim(in, 0, d);
        return on(sum(in, {0}), {0});
      },
      {});
}

TEST_F(PortsOfLowering, Allreduce) {
  for (const bool concrete : {false, true}) {
    runPort([=](int64_t d) {
      const auto build = [=](Fusion& f) {
        TensorView* in = concrete ? makeContigConcreteTensor({d, 4}) : makeContigTensor(2);
        f.addInput(in);
        bindDim(in, 0, d);
        f.addOutput(on(sum(in, {0}), in->getDeviceMesh()));
      };
      return Port{build, {random({d, 4})}, {{"all-reduce"}}};
    });
  }
}

TEST_F(PortsOfLowering, ReduceScatter) {
  edge(
      [](int64_t d) {
        return std::vector{d * 2, d * 3};
      },
      [](TensorView* in, int64_t d) {
        splitDim(in, 1, d);
        TensorView* out = sum(in, {1});
        splitDim(out, 1, d);  // the reduced dim, as its operand
        splitDim(out, 0, d);
        allocateLoops(in);
        allocateLoops(out);
        return out;
      },
      {{"reduce-scatter"}}, [](const auto& cache, const auto&) { EXPECT_EQ(kernelsOf(cache), 1); });
}

TEST_F(PortsOfLowering, ReduceScatterOfWholeLoops) {
  edge(
      [](int64_t d) {
        return std::vector{d, d, int64_t{4}};
      },
      [](TensorView* in, int64_t d) {
        bindDim(in, 0, d);
        TensorView* out = sum(in, {0});
        bindDim(out, 1, d);  // axis 0 is the reduced dim
        return out;
      },
      {{"reduce-scatter"}});
}

TEST_F(PortsOfLowering, ReduceScatterAndAllgather) {
  edge(
      [](int64_t d) {
        return std::vector{d, d, int64_t{4}};
      },
      [](TensorView* in, int64_t d) {
        bindDim(in, 0, d);
        TensorView* parts = sum(in, {0});
        bindDim(parts, 1, d);
        return on(set(parts), in->getDeviceMesh());
      },
      {{"reduce-scatter", "all-gather"}});
}

TEST_F(PortsOfLowering, ReduceScatterOfAnInnerDim) {
  edge(
      [](int64_t d) {
        return std::vector{int64_t{5}, d * 3, d * 7};
      },
      [](TensorView* in, int64_t d) {
        splitDim(in, 1, d);
        TensorView* out = sum(in, {1});
        splitDim(out, 1, d);
        splitDim(out, -1, d);
        return out;
      },
      {{"reduce-scatter"}}, [](const auto& cache, const auto&) { EXPECT_EQ(kernelsOf(cache), 1); });
}

TEST_F(PortsOfLowering, AllreduceOfStridedRows) {
  edge(
      [](int64_t d) {
        return std::vector{int64_t{5}, d * 3};
      },
      [](TensorView* in, int64_t d) {
        in->setAllocationDomain(in->getLogicalDomain(), false);
        splitDim(in, 1, d);
        return sum(in, {1});
      },
      {{"all-reduce"}}, [](const auto& cache, const auto&) { EXPECT_EQ(kernelsOf(cache), 1); });
}

// The memory order that the caller asks for is that of the result, whatever the order of the operand.
TEST_F(PortsOfLowering, AllgatherIntoAnAllocation) {
  struct Row {
    bool fromColumns;
    bool toColumns;
    bool contiguous;
  };
  const Row rows[] = {
      {true, true, true},    // Allgather_CompliantAllocation; nvFuser has no kernel
      {false, false, true},  // Allgather_NonCompliantAllocation; nvFuser has a kernel before the collective as well
      {false, true, false},  // Allgather_NoncontiguousOutput
  };
  for (const Row& row : rows) {
    runPort([&](int64_t d) {
      const auto order = [](TensorView* tv, bool columns) {
        return columns ? std::vector{tv->axis(1), tv->axis(0)} : tv->getLogicalDomain();
      };
      const auto build = [=](Fusion& f) {
        TensorView* in = makeConcreteTensor({5, d * 3});
        f.addInput(in);
        in->setAllocationDomain(order(in, row.fromColumns), row.fromColumns);
        TensorView* out = set(in);
        f.addOutput(out);
        out->setAllocationDomain(order(out, row.toColumns), row.contiguous);
        splitDim(in, 1, d);
        out->setDeviceMesh(in->getDeviceMesh());
      };
      const Tensor whole = row.fromColumns ? random({d * 3, 5}).transpose(0, 1) : random({5, d * 3});
      return Port{build, {whole}, {{"all-gather"}}, [=](const auto& cache, const std::vector<Tensor>& out) {
                    EXPECT_EQ(kernelsOf(cache), 1) << cache.planText();
                    EXPECT_TRUE((row.toColumns ? out[0].transpose(0, 1) : out[0]).isContiguous());
                  }};
    });
  }
}

}  // namespace
}  // namespace meshfuse
