// Plans of any size on several ranks: results, and the communication of plans for constant sizes.
#include <fmt/ranges.h>

#include <algorithm>

#include "base/ranges.h"
#include "exec/explain.h"
#include "inputs.h"
#include "interpret/bounds.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/device_of_rank.h"
#include "multidevice/multidevice_test.h"
#include "multidevice/scenario.h"

namespace meshfuse {

namespace {

using Shapes = std::vector<std::vector<int64_t>>;
using Build = std::function<void(Fusion&, int64_t ranks)>;

TensorView* sized(Fusion& f, int64_t dims, const DeviceMesh& mesh) {
  TensorView* tv = makeContigTensor(dims);
  f.addInput(tv);
  tv->setDeviceMesh(mesh);
  return tv;
}

int64_t bytesReceived(const FusionExecutorCache& cache) { return sumOf(cache.commSteps(), &CommRecord::bytesReceived); }

class ShapesOnRanks : public MultiDeviceTest {
 protected:
  void SetUp() override {
    if (defaultDevice() != DeviceId::cpu()) {
      GTEST_SKIP() << "kernels of other devices take constant sizes";
    }
  }

  // Each call is compared with the interpreter, and the bytes that it receives with those of a plan for its sizes alone. At most `most` programs are
  // compiled.
  void runShapes(const Build& build, const std::function<std::vector<Shapes>(int64_t ranks)>& calls, int64_t most) {
    runOnRanks([&](Communicator& comm) {
      const auto make = [&] {
        auto fusion = std::make_unique<Fusion>();
        FusionGuard guard(fusion.get());
        build(*fusion, comm.size());
        return fusion;
      };
      const std::unique_ptr<Fusion> fusion = make();
      FusionExecutorCache cache(make(), {.communicator = &comm});
      FusionExecutorCache constant(make(), {.communicator = &comm, .sharePlans = false});
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
      EXPECT_LE(cache.plansCompiled(), most) << fmt::format("{}", fmt::join(cache.explain().sizes, ", "));
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
        TensorView* x = sized(f, 2, mesh);
        TensorView* w0 = input(f, {32, 16}, mesh);
        TensorView* w1 = input(f, {16, 32}, mesh);
        shardBlock(w0, 0, mesh, "tp");
        shardBlock(w1, 1, mesh, "tp");
        f.addOutput(linear(tanh_gelu(linear(x, w0)), w1));
      },
      [](int64_t n) {
        return mapped(rowCounts(n), [](int64_t rows) { return Shapes{{rows, 16}, {32, 16}, {16, 32}}; });
      },
      3);
}

TEST_F(ShapesOnRanks, RowsOfDataParallelRanks) {
  runShapes(
      [](Fusion& f, int64_t n) {
        const DeviceMesh mesh = DeviceMesh::create({{"dp", n}});
        TensorView* x = sized(f, 2, mesh);
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

// Layers with attention and norms on a grid: rows over dp, heads and features over tp.
TEST_F(ShapesOnRanks, AnEncoderOnAGrid) {
  constexpr int64_t kTokens = 8;
  constexpr int64_t kFeatures = 32;
  constexpr int64_t kHeads = 4;
  runShapes(
      [](Fusion& f, int64_t n) {
        const DeviceMesh mesh = DeviceMesh::create({{"dp", n / 2}, {"tp", 2}});
        TensorView* x = sized(f, 3, mesh);
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

}  // namespace

}  // namespace meshfuse
