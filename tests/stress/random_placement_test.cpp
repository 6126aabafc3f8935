// Random numbers belong to elements: order of segments, mesh, sharding and number of ranks move none of them.
#include <gtest/gtest.h>

#include <fmt/ranges.h>

#include "interpret/interpret.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/loopback/loopback.h"

namespace meshfuse {

namespace {

constexpr int kSegments = 4;
constexpr int64_t kRows = 8, kColumns = 12;

struct Placement {
  std::string name;
  int ranks;
  std::function<void(TensorView*, int segment)> place;  // nothing on one rank
};

void block(TensorView* tv, int dim, const DeviceMesh& mesh, std::string_view axis) {
  tv->setDeviceMesh(mesh);
  tv->outer_split(dim, mesh.size(axis));
  tv->axis(dim)->parallelize(mesh.axis(axis));
}

// Each segment's tensor in another way.
std::vector<Placement> placements() {
  std::vector<Placement> all = {{"one rank", 1, [](TensorView*, int) {}}};
  for (int ranks : {2, 3, 4, 8}) {
    const DeviceMesh line = DeviceMesh::create({{"x", ranks}});
    std::vector<int64_t> reversed;
    for (int r = ranks - 1; r >= 0; r--) {
      reversed.push_back(r);
    }
    const DeviceMesh backwards = DeviceMesh::create({{"x", ranks}}, reversed);
    for (const DeviceMesh& mesh : {line, backwards}) {
      all.push_back({"blocks of rows or columns on " + mesh.toString(), ranks,
                     [=](TensorView* tv, int segment) { block(tv, segment % 2, mesh, "x"); }});
    }
    all.push_back({"cyclic, or whole, on " + line.toString(), ranks, [=](TensorView* tv, int segment) {
                     tv->setDeviceMesh(line);
                     if (segment % 2 == 0) {
                       tv->inner_split(1, ranks);
                       tv->axis(2)->parallelize(line.axis("x"));
                     }
                   }});
  }
  for (const auto& [x, y] : std::vector<std::pair<int64_t, int64_t>>{{2, 2}, {4, 1}, {2, 4}, {4, 2}}) {
    const DeviceMesh grid = DeviceMesh::create({{"x", x}, {"y", y}});
    all.push_back({"tiles on " + grid.toString(), static_cast<int>(x * y), [=](TensorView* tv, int segment) {
                     block(tv, 1, grid, segment % 2 == 0 ? "y" : "x");
                     tv->outer_split(0, grid.size(segment % 2 == 0 ? "x" : "y"));
                     tv->axis(0)->parallelize(grid.axis(segment % 2 == 0 ? "x" : "y"));
                   }});
  }
  return all;
}

// Segments in the order given, results in that of their numbers. What makes a random tensor what it is, seed and offset + ordinal,
// is that of the number.
std::unique_ptr<Fusion> inOrder(const std::vector<int>& order, const Placement& placement) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* x = makeContigConcreteTensor({kRows, kColumns});
  fusion->addInput(x);
  std::vector<std::vector<TensorView*>> results(kSegments);
  for (int at = 0; at < kSegments; at++) {
    const int segment = order[at];
    const int64_t offset = 10 + 2 * segment - 2 * at;
    TensorView* uniform = rand_like(x, 7, offset);
    TensorView* normal = randn_like(x, 7, offset);
    TensorView* kept = segment_set(where(lt(uniform, 0.5), x, 0.0));
    placement.place(kept, segment);
    results[segment] = {kept, set(uniform), set(normal), sum(gt(normal, 0.0), {0})};
  }
  for (const std::vector<TensorView*>& of : results) {
    for (TensorView* tv : of) {
      fusion->addOutput(tv);
    }
  }
  return fusion;
}

// One random tensor, read in four segments.
std::unique_ptr<Fusion> readInFour(const std::vector<int>& order, const Placement& placement) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* x = makeContigConcreteTensor({kRows, kColumns});
  fusion->addInput(x);
  TensorView* numbers = rand_like(x, 3, 5);
  std::vector<TensorView*> results(kSegments);
  TensorView* last = x;
  for (int segment : order) {
    last = segment_set(add(mul(last, 0.0), numbers));
    placement.place(last, segment);
    results[segment] = last;
  }
  for (TensorView* tv : results) {
    fusion->addOutput(tv);
  }
  return fusion;
}

using Make = std::function<std::unique_ptr<Fusion>(const std::vector<int>& order, const Placement&)>;

void expectUnmoved(const Make& make) {
  const std::vector<std::vector<int>> orders = {{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}, {1, 3, 0, 2}};
  const Tensor x = randomTensor({kRows, kColumns}, DataType::Float, 1, 1, 2);
  std::vector<std::vector<double>> first;
  size_t turn = 0;
  for (const Placement& placement : placements()) {
    for (size_t k = 0; k < 2; k++) {  // the orders in turn: each meets many meshes
      const std::vector<int>& order = orders[turn++ % orders.size()];
      std::string where = fmt::format("order {} with {}", order, placement.name);
      runLoopback(placement.ranks,
                  [&](Communicator& comm) {
                    FusionExecutorCache cache(make(order, placement), {.communicator = &comm, .threads = 1});
                    const Tensor mine = shardTensor(x, cache.fusion().inputs()[0]->asTensor(), comm.rank());
                    const std::vector<Tensor> got = cache.runFusionWithInputs({mine});
                    if (first.empty()) {  // the first placement has one rank
                      for (const Tensor& t : got) {
                        first.push_back(t.toVector());
                      }
                    }
                    for (size_t k = 0; k < got.size(); k++) {
                      const TensorView* tv = cache.planned()->outputs()[k]->asTensor();
                      std::vector<int64_t> sizes;
                      for (const IntExpr& extent : tv->shape()) {
                        sizes.push_back(extent.constValue());
                      }
                      const Tensor expected = shardTensor(Tensor::of(first[k], sizes, tv->dtype()), tv, comm.rank());
                      EXPECT_EQ(got[k].toVector(), expected.toVector()) << "output " << k << ", " << where;
                    }
                  },
                  {.deadline = std::chrono::milliseconds(60'000)});
    }
  }
  // the meaning, said elsewhere
  const std::vector<Tensor> meant = interpret(*make(orders[0], placements()[0]), std::vector<Argument>{x});
  ASSERT_EQ(meant.size(), first.size());
  for (size_t k = 0; k < meant.size(); k++) {
    const std::vector<double> values = meant[k].toVector();
    for (size_t i = 0; i < values.size(); i++) {
      EXPECT_NEAR(first[k][i], values[i], 1e-5) << "element " << i << " of output " << k;
    }
  }
}

TEST(RandomPlacement, FourSegmentsInAnyOrderOnAnyMesh) { expectUnmoved(inOrder); }

TEST(RandomPlacement, OneTensorReadInFourSegments) { expectUnmoved(readInFour); }

}  // namespace

}  // namespace meshfuse
