// Ports of test_multidevice_sharding.cpp: programs whose tensors are cut by hand.
#include "nvfuser_shape/port.h"

namespace meshfuse {
namespace {

class PortsOfSharding : public PortTest {};

TensorView* source(Fusion& f, const std::vector<int64_t>& shape, bool concrete = true) {
  TensorView* tv = concrete ? makeContigConcreteTensor(shape) : makeContigTensor(std::ssize(shape));
  f.addInput(tv);
  return tv;
}

TEST_F(PortsOfSharding, WholeInputAndShardedResults) {
  for (const bool concrete : {true, false}) {
    for (const int64_t dim : {0, 1}) {
      runPort([=](int64_t d) {
        std::vector<int64_t> shape = {2, 3, 2, d};
        shape[dim] = d;
        const auto build = [=](Fusion& f) {
          TensorView* x = source(f, shape, concrete);
          x->setDeviceMesh(DeviceMesh::createForNumDevices(d));
          TensorView* copy = set(x);
          TensorView* twice = add(copy, copy);
          TensorView* total = sum(twice, {dim});
          for (TensorView* tv : {copy, twice}) {
            bindDim(tv, dim, d);
          }
          bindDim(total, -1, d);
          for (TensorView* tv : {copy, twice, total}) {
            f.addOutput(tv);
          }
        };
        return Port{build, {random(shape)}, {{"reduce-scatter"}}};
      });
    }
  }
}

TEST_F(PortsOfSharding, ShardedInputAndWholeResults) {
  for (const bool concrete : {true, false}) {
    for (const int64_t dim : {0, 1}) {
      runPort([=](int64_t d) {
        std::vector<int64_t> shape = {3, 2, 5};
        shape[dim] = d;
        const auto build = [=](Fusion& f) {
          TensorView* x = source(f, shape, concrete);
          bindDim(x, dim, d);
          TensorView* copy = set(x);
          TensorView* twice = add(copy, copy);
          for (TensorView* tv : {copy, twice}) {
            tv->setDeviceMesh(x->getDeviceMesh());
            f.addOutput(tv);
          }
        };
        return Port{build, {random(shape)}, {{"all-gather"}}};
      });
    }
  }
}

TEST_F(PortsOfSharding, Reduction) {
  runPort([](int64_t d) {
    const auto build = [=](Fusion& f) {
      TensorView* in = source(f, {d, 4}, false);
      bindDim(in, 0, d);
      f.addOutput(sum(in, {0}));
    };
    return Port{build, {random({d, 4})}, {{"all-reduce"}}};
  });
}

TEST_F(PortsOfSharding, Slice) {
  runPort([](int64_t d) {
    const auto build = [=](Fusion& f) {
      TensorView* x = source(f, {d, 8, 8});
      bindDim(x, 0, d);
      for (TensorView* half : {slice(x, {0, 0, 0}, {d, 8, 4}), slice(x, {0, 0, 4}, {d, 8, 8})}) {
        bindDim(half, 0, d);
        f.addOutput(half);
      }
    };
    return Port{build, {random({d, 8, 8})}, kNoSteps};
  });
}

// A random tensor takes its mesh and its cut from its reader, and has the numbers that one device would draw.
TEST_F(PortsOfSharding, BackpropMeshes) {
  runPort([](int64_t d) {
    const auto build = [=](Fusion& f) {
      TensorView* x = makeContigConcreteTensor({d, -1});
      TensorView* y = uniform(shape(x), f.zeroVal(DataType::Float), f.oneVal(DataType::Float), DataType::Float);
      f.addInput(x);
      f.addOutput(add(x, y));
      bindDim(x, 0, d);
    };
    return Port{build, {random({d, 4})}, kNoSteps, [](const FusionExecutorCache&, const std::vector<Tensor>& out) {
                  EXPECT_TRUE(std::ranges::equal(out[0].sizes(), std::vector<int64_t>{1, 4}));
                }};
  });
}

TEST_F(PortsOfSharding, DivideBySum) {
  runPort([](int64_t d) {
    const auto build = [=](Fusion& f) {
      TensorView* x = source(f, {2, d * 3, 5, 5}, false);
      TensorView* total = sum(x, {-1});
      TensorView* stretched = broadcast(total, {false, false, false, true});
      TensorView* y = div(x, stretched);
      f.addOutput(y);
      for (TensorView* tv : {x, total, stretched, y}) {
        splitDim(tv, 1, d);
        tv->reorder({{1, 0}});
      }
      allocateLoops(x);
      allocateLoops(y);
    };
    return Port{build, {randomTensor({2, d * 3, 5, 5}, DataType::Float, 1, 1, 5)}, kNoSteps};
  });
}

TEST_F(PortsOfSharding, LayerNorm) {
  runPort([](int64_t d) {
    const auto build = [=](Fusion& f) {
      TensorView* x = source(f, {16, 8, 32});
      const auto result = layer_norm(x, std::vector<int64_t>{32}, nullptr, nullptr, IrBuilder::create<Val>(1e-5));
      for (TensorView* tv : {result.output, result.mean, result.invstd}) {
        f.addOutput(tv);
      }
      x->setDeviceMesh(DeviceMesh::createForNumDevices(d));
    };
    return Port{build, {random({16, 8, 32})}, kNoSteps};
  });
}

TEST_F(PortsOfSharding, SizeOfAShardedTensorIsThatOfTheWhole) {
  runPort([](int64_t d) {
    const auto build = [=](Fusion& f) {
      TensorView* in = source(f, {d, d, 4}, false);
      bindDim(in, 0, d);
      TensorView* scattered = sum(in, {0});
      bindDim(scattered, 1, d);
      f.addOutput(add(scattered, shape(in)[1]));
    };
    return Port{build, {random({d, d, 4})}, {{"reduce-scatter"}}};
  });
}

TEST_F(PortsOfSharding, Transpose) {
  runPort([](int64_t d) {
    const auto build = [=](Fusion& f) {
      TensorView* in = makeSymbolicTensor(2);
      f.addInput(in);
      TensorView* out = transpose(in, 0, 1);
      f.addOutput(out);
      splitDim(in, 0, d);
      splitDim(out, 1, d);
      out->reorder({{1, 0}});
      allocateLoops(in);
      allocateLoops(out);
    };
    return Port{build, {random({64 * d, 48})}, kNoSteps, [](const auto& cache, const auto&) {
                  EXPECT_EQ(kernelsOf(cache), 1);
                }};
  });
}

TEST_F(PortsOfSharding, LoopSplits) {
  struct Row {
    std::vector<int64_t> shape;
    bool columnMajor;
  };
  for (const Row& row : {Row{{3}, false}, Row{{2, 3}, true}}) {
    runPort([row](int64_t d) {
      std::vector<int64_t> shape = row.shape;
      shape.back() *= d;
      const auto build = [=](Fusion& f) {
        TensorView* in = source(f, shape);
        TensorView* out = set(in);
        f.addOutput(out);
        splitDim(in, -1, d);
        splitDim(out, -1, d);
        if (row.columnMajor) {
          in->reorder({{0, -1}});
        }
        allocateLoops(in);
        allocateLoops(out);
      };
      return Port{build, {random(shape)}, kNoSteps};
    });
  }
}

TEST_F(PortsOfSharding, BroadcastDims) {
  const auto program = [](int64_t d, bool bound) {
    const auto build = [=](Fusion& f) {
      TensorView* in = TensorViewBuilder().contiguity(true).shape({1, -1}).build();
      f.addInput(in);
      f.addOutput(set(in));
      in->setDeviceMesh(DeviceMesh::createForNumDevices(d));
      if (bound) {
        in->axis(0)->parallelize(ParallelType::DIDx);
      }
    };
    return Port{build, {random({1, 8})}, kNoSteps};
  };
  runPort([&](int64_t d) { return program(d, false); });
  // nvFuser ignores that a dim of one element is bound
  Fusion fusion;
  FusionGuard guard(&fusion);
  program(2, true).build(fusion);
  try {
    runPass(fusion, "check-annotations");
    ADD_FAILURE() << "nothing was thrown";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("split by the size of the axis"), std::string::npos) << e.what();
  }
}

TEST_F(PortsOfSharding, ExpandedDims) {
  for (const bool cut : {false, true}) {
    runPort([=](int64_t d) {
      const auto build = [=](Fusion& f) {
        TensorView* in = TensorViewBuilder().contiguity(true).shape({d * 3, -1}).expanded({true, false}).build();
        f.addInput(in);
        TensorView* out = set(in);
        f.addOutput(out);
        in->setDeviceMesh(DeviceMesh::createForNumDevices(d));
        for (TensorView* tv : {in, out}) {
          if (cut) {
            splitDim(tv, 0, d);
          }
        }
      };
      return Port{build, {random({1, 8}).expand({d * 3, 8})}, kNoSteps};
    });
  }
}

TEST_F(PortsOfSharding, ShardsOfATensor) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* blocks = makeContigConcreteTensor({2, 9});
  splitDim(blocks, 1, DeviceMesh({0, 1, 2}));
  allocateLoops(blocks);
  const Tensor whole = random({2, 9});
  for (int64_t rank = 0; rank < 3; rank++) {
    const Tensor expected = whole.slice(1, 3 * rank, 3 * rank + 3);
    EXPECT_EQ(shardTensor(whole, blocks, rank).toVector(), expected.toVector());
    EXPECT_EQ(shardTensor1D(whole, 1, blocks->getDeviceMesh(), rank).toVector(), expected.toVector());
  }
  // nvFuser refuses a bound inner loop; here it is every third element
  TensorView* cyclic = makeContigConcreteTensor({9});
  cyclic->setDeviceMesh({0, 1, 2});
  cyclic->inner_split(0, 3);
  cyclic->axis(-1)->parallelize(ParallelType::DIDx);
  const Tensor line = random({9});
  EXPECT_EQ(shardTensor(line, cyclic, 1).toVector(), line.slice(0, 1, 9, 3).toVector());
}

TEST_F(PortsOfSharding, BiasAddRelu) {
  runPort([](int64_t d) {
    const auto build = [=](Fusion& f) {
      TensorView* in = source(f, {2, 16, d * 8});
      TensorView* bias = source(f, {d * 8});
      TensorView* stretched = broadcast(bias, {true, true, false});
      TensorView* total = add(in, stretched);
      TensorView* out = relu(total);
      f.addOutput(out);
      for (TensorView* tv : {in, bias, stretched, total, out}) {
        splitDim(tv, -1, d);
        tv->reorder({{-2, 0}});
        allocateLoops(tv);
      }
    };
    return Port{build, {random({2, 16, d * 8}, 1), random({d * 8}, 2)}, kNoSteps, [](const auto& cache, const auto&) {
                  EXPECT_EQ(kernelsOf(cache), 1);
                }};
  });
}

// Reshapes of a cut tensor: which dims are split and merged, and where the cut is before and after.
TEST_F(PortsOfSharding, Reshapes) {
  struct Row {
    std::vector<int64_t> from;
    std::vector<int64_t> to;
    int64_t cutFrom;           // these extents are per rank
    int64_t cutTo;             // -1: left to propagation
    bool isContiguous = true;  // the operand
    std::optional<int64_t> kernels = {};
  };
  const Row rows[] = {
      {{2, 15}, {2, 3, 5}, 0, 0, false, 1},  // ViewWithSplit
      {{2, 3, 5}, {2, 15}, 0, 0, false, 1},  // ViewWithMerge
      {{2, 3, 32}, {2, 3, 8, 4}, 2, 2},      // LoopShardedSplitReshapeIds
      {{2, 3, 8, 4}, {2, 3, 32}, 2, 2},      // LoopShardedMergeReshapeIds
      {{2, 3, 32}, {2 * 3 * 8, 4}, 0, -1},   // MultipleTransformReshape
  };
  for (const Row& row : rows) {
    runPort([&](int64_t d) {
      std::vector<int64_t> from = row.from;
      std::vector<int64_t> to = row.to;
      from[row.cutFrom] *= d;
      to[std::max<int64_t>(row.cutTo, 0)] *= d;
      const auto build = [=](Fusion& f) {
        TensorView* in = source(f, from);
        TensorView* out = reshape(in, from, to);
        f.addOutput(out);
        splitDim(in, row.cutFrom, d);
        if (!row.isContiguous) {
          in->setAllocationDomain(in->getLoopDomain(), false);
        }
        if (row.cutTo >= 0) {
          splitDim(out, row.cutTo, d);
          out->reorder({{row.cutTo, 0}});
          allocateLoops(out);
        }
      };
      return Port{build, {random(from)}, kNoSteps, [=](const auto& cache, const auto&) {
                    EXPECT_EQ(kernelsOf(cache), row.kernels.value_or(kernelsOf(cache))) << cache.planText();
                  }};
    });
  }
}

TEST_F(PortsOfSharding, DeviceLoopsInFront) {
  runPort([](int64_t d) {
    const auto build = [=](Fusion& f) {
      TensorView* in = makeConcreteTensor({2, 4, d * 16});
      f.addInput(in);
      TensorView* out = set(in);
      f.addOutput(out);
      for (TensorView* tv : {in, out}) {
        splitDim(tv, -1, d);
        tv->reorder({{-2, 0}});
        allocateLoops(tv);
        EXPECT_TRUE(tv->axis(0)->isDeviceDim());
      }
    };
    return Port{build, {random({2, 4, d * 16})}, kNoSteps};
  });
}

// The cut of a reshape's result moves to its operand, an input, and only these two take it.
TEST_F(PortsOfSharding, TransformsPropagateThroughAReshape) {
  runPort([](int64_t d) {
    const auto build = [=](Fusion& f) {
      TensorView* in = source(f, {2, 2, d * 12});
      TensorView* out = reshape(in, {2, 2, d * 12}, {2, 2, d * 4, 3});
      f.addOutput(out);
      splitDim(out, 2, d);
      EXPECT_TRUE(propagateShardings(f, {.tensors = {in}}));
      EXPECT_EQ(getTvsWithDifferentSharding(out, {out}).size(), 0U);
      EXPECT_FALSE(haveDifferentShardings(in, out));
      allocateLoops(in);
      allocateLoops(out);
    };
    return Port{build, {random({2, 2, d * 12})}, kNoSteps};
  });
}

TEST_F(PortsOfSharding, ALinearAndAViewOfItsHeads) {
  runPort([](int64_t d) {
    const auto build = [=](Fusion& f) {
      TensorView* x = source(f, {2, 8, 16});
      TensorView* w = source(f, {48, 16});
      TensorView* y = linear(x, w);
      TensorView* heads = reshape(y, {2, 8, 48}, {2, 8, 4, 12});
      f.addOutput(heads);
      x->setDeviceMesh(DeviceMesh::createForNumDevices(d));
      splitDim(w, 0, d);
      splitDim(y, 2, d);
      splitDim(heads, 2, d);
      for (TensorView* tv : {x, w, y, heads}) {
        allocateLoops(tv);
      }
    };
    return Port{build, {random({2, 8, 16}, 1), random({48, 16}, 2)}, kNoSteps, [](const auto& cache, const auto&) {
                  EXPECT_EQ(kernelsOf(cache), 0) << "a library call and a view";
                }};
  });
}

}  // namespace
}  // namespace meshfuse
