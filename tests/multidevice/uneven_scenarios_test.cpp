// Parts of different sizes, some of them empty: what each rank receives, on loopback and between processes.
#include <algorithm>

#include "multidevice/scenario_parts.h"

namespace meshfuse {

namespace {

class UnevenParts : public ScenarioTest {
 protected:
  // Elements of a dim of `extent` that rank k of n holds.
  static int64_t part(int64_t extent, int64_t n, int64_t k) {
    const int64_t block = (extent + n - 1) / n;
    return std::clamp<int64_t>(extent - k * block, 0, block);
  }

  // One step among all ranks, of which rank k receives bytes(k).
  static std::vector<Expected> byRank(int64_t n, const std::string& step,
                                      const std::function<int64_t(int64_t)>& bytes) {
    std::vector<Expected> expected;
    for (int64_t k = 0; k < n; k++) {
      expected.push_back({among(n, step), -1, bytes(k)});
    }
    return expected;
  }
};

TEST_F(UnevenParts, AreGatheredWithCounts) {
  for (const int64_t extent : {5, 10}) {
    runScenario([=](int64_t n) {
      return Scenario{[=](Fusion& f) {
                        const DeviceMesh mesh = axisX(n);
                        TensorView* x = input(f, {extent, 3}, mesh);
                        shardBlock(x, 0, mesh, "x");
                        output(f, set(x), mesh);
                      },
                      {random({extent, 3}, 1)},
                      {},
                      byRank(n, extent % n == 0 ? "all-gather" : "all-gather-v",
                             [=](int64_t k) { return (extent - part(extent, n, k)) * 3 * 4; })};
    });
  }
}

TEST_F(UnevenParts, MoveToAnotherDimWithCounts) {
  for (const int64_t extent : {5, 10}) {
    runScenario([=](int64_t n) {
      constexpr int64_t kColumns = 7;
      return Scenario{[=](Fusion& f) {
                        const DeviceMesh mesh = axisX(n);
                        TensorView* x = input(f, {extent, kColumns}, mesh);
                        shardBlock(x, 0, mesh, "x");
                        shardBlock(output(f, set(x), mesh), 1, mesh, "x");
                      },
                      {random({extent, kColumns}, 1)},
                      {},
                      byRank(n, "all-to-all-v",
                             [=](int64_t k) { return (extent - part(extent, n, k)) * part(kColumns, n, k) * 4; })};
    });
  }
}

TEST_F(UnevenParts, AreSummedByAnAllReduce) {
  for (const int64_t extent : {5, 10}) {
    for (const bool isMean : {false, true}) {
      runScenario([=](int64_t n) {
        return Scenario{[=](Fusion& f) {
                          const DeviceMesh mesh = axisX(n);
                          TensorView* x = input(f, {extent, 12}, mesh);
                          shardBlock(x, 0, mesh, "x");
                          output(f, isMean ? mean(x, {0}) : sum(x, {0}), mesh);
                        },
                        {random({extent, 12}, 1)},
                        {among(n, "all-reduce"), -1, allReduceBytes(12, n)}};
      });
    }
  }
}

TEST_F(UnevenParts, OfAContractedDimAreSummedByAnAllReduce) {
  runScenario([](int64_t n) {
    return Scenario{[=](Fusion& f) {
                      const DeviceMesh mesh = axisX(n);
                      TensorView* a = input(f, {6, 10}, mesh);
                      TensorView* b = input(f, {10, 8}, mesh);
                      shardBlock(a, 1, mesh, "x");
                      shardBlock(b, 0, mesh, "x");
                      output(f, matmul(a, b), mesh);
                    },
                    {random({6, 10}, 1), random({10, 8}, 2)},
                    {among(n, "all-reduce"), -1, allReduceBytes(6 * 8, n)}};
  });
}

// Six in blocks, then in turn: on two ranks each receives one.
TEST_F(UnevenParts, FromBlocksToTurnsWithCounts) {
  runScenario([](int64_t n) {
    constexpr int64_t kExtent = 6;
    const auto lacked = [=](int64_t k) {
      int64_t elements = 0;
      for (int64_t i = k; i < kExtent; i += n) {
        const int64_t block = (kExtent + n - 1) / n;
        elements += i / block == k ? 0 : 1;
      }
      return elements * 4;
    };
    return Scenario{[=](Fusion& f) {
                      const DeviceMesh mesh = axisX(n);
                      TensorView* x = input(f, {kExtent}, mesh);
                      shardBlock(x, 0, mesh, "x");
                      TensorView* y = output(f, set(x), mesh);
                      y->inner_split(0, n);
                      y->axis(1)->parallelize(mesh.axis("x"));
                    },
                    {random({kExtent}, 1)},
                    {},
                    byRank(n, "all-to-all-v", lacked)};
  });
}

}  // namespace

}  // namespace meshfuse
