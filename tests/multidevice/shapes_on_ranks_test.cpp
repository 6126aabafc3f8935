// Plans of any size on several ranks: results, and the communication of plans for constant sizes.
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/ranges.h"
#include "exec/explain.h"
#include "inputs.h"
#include "interpret/bounds.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/called_shapes.h"
#include "multidevice/device_of_rank.h"
#include "multidevice/multidevice_test.h"
#include "multidevice/scenario.h"
#include "stress/checked_cache.h"

namespace meshfuse {

namespace {

using Shapes = std::vector<std::vector<int64_t>>;
int64_t bytesReceived(const FusionExecutorCache& cache) { return sumOf(cache.commSteps(), &CommRecord::bytesReceived); }

class ShapesOnRanks : public MultiDeviceTest {
 protected:
  void SetUp() override {
    if (ranksHaveGpus()) {
      GTEST_SKIP() << "kernels of other devices take constant sizes";
    }
  }

  // Each call is compared with the interpreter, and the bytes that it receives with those of a plan for its sizes alone. So many programs are
  // compiled. whyConstant: part of why the last one has constant sizes; empty: it may have others.
  void runShapes(const BuildOnRanks& build, const std::function<std::vector<Shapes>(int64_t ranks)>& calls,
                 int64_t programs, const std::string& whyConstant = "") {
    runOnRanks([&](Communicator& comm) {
      const std::unique_ptr<Fusion> fusion = fusionOf(build, comm.size());
      FusionExecutorCache cache(fusionOf(build, comm.size()), {.communicator = &comm});
      FusionExecutorCache constant(fusionOf(build, comm.size()), {.communicator = &comm, .sharePlans = false});
      for (const Shapes& shapes : calls(comm.size())) {
        uint64_t seed = 1;
        const auto inputs = mapped<Argument>(
            shapes, [&](const std::vector<int64_t>& s) { return randomTensor(s, DataType::Float, seed++, -1, 1); });
        const std::vector<BoundedTensor> whole = interpretWithBounds(*fusion, inputs, {.partials = comm.size()});
        const std::vector<Argument> local = shardsOfRank(*fusion, inputs, comm);
        const std::vector<Tensor> got = cache.runFusionWithInputs(local);
        const std::shared_ptr<const Fusion> planned = cache.planned();
        for (const int64_t i : indices(got)) {
          const BoundedTensor part = shardOf(whole[i], planned->outputs()[i]->asTensor(), comm.rank());
          EXPECT_EQ(compare(got[i], part).value_or(""), "") << "output " << i << " of " << shapes[0][0] << " rows";
        }
        (void)constant.runFusionWithInputs(local);
        EXPECT_EQ(bytesReceived(cache), bytesReceived(constant))
            << shapes[0][0] << " rows: " << fmt::format("{}", fmt::join(cache.explain().sizes, ", "));
      }
      const std::string sizes = joined(cache.explain().sizes, ", ");
      EXPECT_EQ(cache.plansCompiled(), programs) << sizes;
      EXPECT_NE(sizes.find(whyConstant), std::string::npos) << sizes;
    });
  }
};

// Row counts that the ranks divide.
std::vector<int64_t> rowCounts(int64_t ranks) {
  return mapped(std::vector<int64_t>{12, 16, 5, 32, 7, 48, 64, 13, 80, 6}, [=](int64_t n) { return n * ranks; });
}

TEST_F(ShapesOnRanks, AnMlpOfTensorParallelRanks) {
  runShapes(
      [](Fusion& f, int64_t n) {
        const DeviceMesh mesh = DeviceMesh::create({{"tp", n}});
        TensorView* x = inputOfAnySize(f, 2, mesh);
        TensorView* w0 = input(f, {48, 16}, mesh);
        TensorView* w1 = input(f, {16, 48}, mesh);
        shardBlock(w0, 0, mesh, "tp");
        shardBlock(w1, 1, mesh, "tp");
        f.addOutput(linear(tanh_gelu(linear(x, w0)), w1));
      },
      [](int64_t n) {
        return mapped(rowCounts(n), [](int64_t rows) { return Shapes{{rows, 16}, {48, 16}, {16, 48}}; });
      },
      3);
}

TEST_F(ShapesOnRanks, RowsOfDataParallelRanks) {
  runShapes(
      [](Fusion& f, int64_t n) {
        const DeviceMesh mesh = DeviceMesh::create({{"dp", n}});
        TensorView* x = inputOfAnySize(f, 2, mesh);
        TensorView* w = input(f, {8, 16}, mesh);
        shardBlock(x, 0, mesh, "dp");
        TensorView* y = softmax(linear(x, w), 1);
        f.addOutput(y);
        f.addOutput(sum(y, {0}));
        f.addOutput(sum(mul(y, y), {0, 1}));
      },
      [](int64_t n) { return mapped(rowCounts(n), [](int64_t rows) {
                        return Shapes{{rows, 16}, {8, 16}};
                      }); }, 3);
}

// Lines that the ranks cut, in blocks of any length, with any number of lines.
void scansAndFirst(Fusion& f, int64_t n) {
  const DeviceMesh mesh = DeviceMesh::create({{"x", n}});
  TensorView* x = inputOfAnySize(f, 2, mesh);
  shardBlock(x, 1, mesh, "x");
  TensorView* sums = cumsum(x, 1);
  f.addOutput(sums);
  f.addOutput(mul(scan(neg(x), 1, ReduceOp::Max), 0.5));
  for (const int64_t k : {2, 3}) {
    const TopKResult top = topk(x, k, 1);
    f.addOutput(top.values);
    f.addOutput(top.indices);
  }
}

// So long that candidates take fewer bytes than blocks for each of them.
TEST_F(ShapesOnRanks, ScansAndTopKAlongACutDim) {
  runShapes(
      scansAndFirst,
      [](int64_t n) { return mapped(rowCounts(10 * n), [](int64_t width) {
                        return Shapes{{6, width}};
                      }); }, 3);
}

// Numbers of lines that neither 2, 3 nor 4 divide are one class.
TEST_F(ShapesOnRanks, LinesOfScansAndTopK) {
  runShapes(
      scansAndFirst,
      [](int64_t n) {
        return mapped(std::vector<int64_t>{6, 5, 7, 11, 25}, [=](int64_t rows) { return Shapes{{rows, 12 * n}}; });
      },
      2);
}

// Layers with attention and norms on a grid: rows over dp, heads and features over tp.
TEST_F(ShapesOnRanks, AnEncoderOnAGrid) {
  constexpr int64_t kTokens = 8;
  constexpr int64_t kFeatures = 32;
  constexpr int64_t kHeads = 4;
  runShapes(
      [](Fusion& f, int64_t n) {
        const int64_t parts = n % 2 == 0 ? 2 : 1;
        const DeviceMesh mesh = DeviceMesh::create({{"dp", n / parts}, {"tp", parts}});
        TensorView* x = inputOfAnySize(f, 3, mesh);
        if (n > 2) {
          shardBlock(x, 0, mesh, "dp");
        }
        const auto weight = [&](int64_t rows, int64_t columns, int dim) {
          TensorView* w = input(f, {rows, columns}, mesh);
          shardBlock(w, dim, mesh, "tp");
          return w;
        };
        for (int64_t layer = 0; layer < 2; layer++) {
          const auto heads = [&](TensorView* t) {
            return permute(reshape(t, {x->shape()[0], kTokens, kHeads, kFeatures / kHeads}), {0, 2, 1, 3});
          };
          TensorView* normed = layer_norm(x, 1, nullptr, nullptr, 1e-5).output;
          TensorView* q = heads(linear(normed, weight(kFeatures, kFeatures, 0)));
          TensorView* k = heads(linear(normed, weight(kFeatures, kFeatures, 0)));
          TensorView* v = heads(linear(normed, weight(kFeatures, kFeatures, 0)));
          TensorView* a = matmul(softmax(mul(matmul(q, transpose(k, 2, 3)), 0.35), 3), v);
          TensorView* together = reshape(permute(a, {0, 2, 1, 3}), {x->shape()[0], kTokens, kFeatures});
          x = add(x, linear(together, weight(kFeatures, kFeatures, 1)));
          TensorView* wide = tanh_gelu(linear(x, weight(2 * kFeatures, kFeatures, 0)));
          x = add(x, linear(wide, weight(kFeatures, 2 * kFeatures, 1)));
        }
        f.addOutput(x);
      },
      [](int64_t n) {
        return mapped(rowCounts(n), [](int64_t batch) {
          Shapes shapes{{batch, kTokens, kFeatures}};
          for (int64_t layer = 0; layer < 2; layer++) {
            const std::vector<int64_t> square{kFeatures, kFeatures};
            shapes.insert(shapes.end(),
                          {square, square, square, square, {2 * kFeatures, kFeatures}, {kFeatures, 2 * kFeatures}});
          }
          return shapes;
        });
      },
      3);
}

// Columns that the ranks do not divide: rows of any number beside them would need parts of symbolic sizes.
TEST_F(ShapesOnRanks, UnevenColumnsBesideAnyRows) {
  runShapes(
      [](Fusion& f, int64_t n) {
        const DeviceMesh mesh = DeviceMesh::create({{"tp", n}});
        TensorView* x = inputOfAnySize(f, 2, mesh);
        TensorView* w = input(f, {2 * n + 1, 16}, mesh);
        shardBlock(w, 0, mesh, "tp");
        TensorView* y = tanh(linear(x, w));
        f.addOutput(y);
        f.addOutput(sum(y, {1}));
      },
      [](int64_t n) {
        return mapped(std::vector<int64_t>{6, 10, 14, 12}, [n](int64_t rows) {
          return Shapes{{rows * n, 16}, {2 * n + 1, 16}};
        });
      },
      4);
}

// Each has a program of its own if sizes are constants.
std::vector<Shapes> multiplesOf(int64_t rows) {
  return mapped(std::vector<int64_t>{6, 10, 14, 5}, [=](int64_t n) { return Shapes{{n * rows, 8}}; });
}

TEST_F(ShapesOnRanks, ABoundOfThePlannerIsForOneSize) {
  runShapes(
      [](Fusion& f, int64_t n) {
        f.setPlanner({.bound = 1 << 20});
        columnSums(f, n);
      },
      [](int64_t n) { return multiplesOf(n); }, 4, "the planner setting `bound` limits intermediate tensors");
}

// From blocks to every n-th row: each rank sends an n-th part of its block to each other one.
TEST_F(ShapesOnRanks, PartsThatAreNotProvenToBeEqualHaveConstantSizes) {
  runShapes(
      [](Fusion& f, int64_t n) {
        const DeviceMesh mesh = DeviceMesh::create({{"dp", n}});
        TensorView* x = inputOfAnySize(f, 2, mesh);
        shardBlock(x, 0, mesh, "dp");
        TensorView* y = tanh(x);
        y->setDeviceMesh(mesh);
        y->inner_split(0, n);
        y->axis(1)->parallelize(mesh.axis("dp"));
        f.addOutput(y);
      },
      [](int64_t n) { return multiplesOf(n * n); }, 4, "it is not proven that");
}

// The plan is for 8 rows a rank, whatever the rows of another tensor are.
TEST_F(ShapesOnRanks, APlanInTheTextIsForItsSizes) {
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    const std::string cut = fmt::format("mesh M0 outer_split(0, {0}) parallelize(0, DIDx)", n);
    const std::string text = fmt::format(
        "fusion {{\n  mesh M0 {{x: {0}}} [{1}]\n"
        "  T0 = input() : Float[i0, 4] contiguity[t, t] {2}\n"
        "  T1 = input() : Float[i1, 16] contiguity[t, t] {2}\n"
        "  T2 = redistribute(T0, plan=[all_gather(x) on M0 [{0}:x 8, 4] -> [{3}, 4]]) : Float[i0, 4] mesh M0\n"
        "  T3 = exp(T1) : Float[i1, 16] {2}\n  output T2\n  output T3\n}}",
        n, fmt::join(indices(std::vector<int64_t>(n)), ", "), cut, 8 * n);
    FusionExecutorCache cache(parseFusion(text), {.communicator = &comm});
    const std::unique_ptr<Fusion> fusion = parseFusion(text);
    const auto call = [&](int64_t planned, int64_t rows) {
      const std::vector<Argument> whole{randomTensor({planned, 4}, DataType::Float, 1, -1, 1),
                                        randomTensor({rows, 16}, DataType::Float, 2, -1, 1)};
      const std::vector<BoundedTensor> expected = interpretWithBounds(*fusion, whole, {.partials = n});
      const std::vector<Tensor> got = cache.runFusionWithInputs(shardsOfRank(*fusion, whole, comm));
      for (const int64_t i : indices(got)) {
        const BoundedTensor part = shardOf(expected[i], fusion->outputs()[i]->asTensor(), comm.rank());
        EXPECT_EQ(compare(got[i], part).value_or(""), "") << "output " << i << " of " << rows << " rows";
      }
    };
    for (const int64_t rows : {5, 6, 7, 9}) {
      call(8 * n, rows * n);
    }
    EXPECT_EQ(cache.plansCompiled(), 2) << joined(cache.explain().sizes, ", ");
    for (const int64_t rows : {7, 10}) {
      const std::string error = errorOf([&] { call(12 * n, rows * n); });
      EXPECT_NE(error.find("does not lead from"), std::string::npos) << error;
    }
    call(8 * n, 11 * n);
    EXPECT_EQ(cache.plansCompiled(), 2) << joined(cache.explain().sizes, ", ");
  });
}

}  // namespace

}  // namespace meshfuse
