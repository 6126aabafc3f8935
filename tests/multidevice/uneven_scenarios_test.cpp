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

  // One step among all ranks; rank k receives bytes(k).
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

// Rank k has k + 2 rows.
class GivenParts : public UnevenParts {
 protected:
  static int64_t rowsOf(int64_t k) { return k + 2; }
  static int64_t allRows(int64_t n) { return n * (n + 3) / 2; }
  static std::vector<IntExpr> sizes(int64_t n) {
    std::vector<IntExpr> rows;
    for (int64_t k = 0; k < n; k++) {
      rows.emplace_back(rowsOf(k));
    }
    return rows;
  }
  static TensorView* inParts(TensorView* tv, const DeviceMesh& mesh, std::vector<IntExpr> sizes) {
    tv->setDeviceMesh(mesh);
    tv->partition(0, sizes);
    tv->axis(0)->parallelize(mesh.axis("x"));
    return tv;
  }
  using Rows = std::pair<int64_t, int64_t>;  // begin, end
  static Rows held(int64_t k) { return {k * (k + 3) / 2, k * (k + 3) / 2 + rowsOf(k)}; }
  static int64_t shared(const Rows& a, const Rows& b) {
    return std::max<int64_t>(0, std::min(a.second, b.second) - std::max(a.first, b.first));
  }
  // A transfer of rows to where rank k wants these; among the ranks that one exchanges rows with.
  static std::vector<Expected> transfers(int64_t n, const std::function<Rows(int64_t)>& wanted) {
    std::vector<Expected> expected;
    for (int64_t k = 0; k < n; k++) {
      int64_t peers = 0;
      for (int64_t other = 0; other < n; other++) {
        peers += other == k || shared(held(k), wanted(other)) + shared(held(other), wanted(k)) > 0 ? 1 : 0;
      }
      const int64_t lacked = wanted(k).second - wanted(k).first - shared(held(k), wanted(k));
      expected.push_back({among(peers, "transfer"), -1, lacked * 7 * 4});
    }
    return expected;
  }
  // From rows in parts to a result of the same shape, sharded by `place`.
  void expectMove(const std::function<void(TensorView*, const DeviceMesh&, int64_t)>& place,
                  const std::function<std::vector<Expected>(int64_t)>& expected) {
    runScenario([=](int64_t n) {
      return Scenario{[=](Fusion& f) {
                        const DeviceMesh mesh = axisX(n);
                        TensorView* x = inParts(input(f, {allRows(n), 7}, mesh), mesh, sizes(n));
                        place(output(f, tanh(x), mesh), mesh, n);
                      },
                      {random({allRows(n), 7}, 1)},
                      {},
                      expected(n)};
    });
  }
};

TEST_F(GivenParts, StayWhereTheyAre) {
  expectMove([](TensorView* y, const DeviceMesh& mesh, int64_t n) { inParts(y, mesh, sizes(n)); },
             [](int64_t n) { return std::vector<Expected>(n); });
}

TEST_F(GivenParts, AreGatheredWithCounts) {
  expectMove(
      [](TensorView*, const DeviceMesh&, int64_t) {},
      [](int64_t n) { return byRank(n, "all-gather-v", [=](int64_t k) { return (allRows(n) - rowsOf(k)) * 7 * 4; }); });
}

TEST_F(GivenParts, MoveToAnotherDimWithCounts) {
  expectMove([](TensorView* y, const DeviceMesh& mesh, int64_t) { shardBlock(y, 1, mesh, "x"); },
             [](int64_t n) {
               return byRank(n, "all-to-all-v",
                             [=](int64_t k) { return (allRows(n) - rowsOf(k)) * part(7, n, k) * 4; });
             });
}

TEST_F(GivenParts, AreSentToPartsOfOtherSizes) {
  expectMove([](TensorView* y, const DeviceMesh& mesh, int64_t) { shardBlock(y, 0, mesh, "x"); },
             [](int64_t n) {
               const int64_t block = (allRows(n) + n - 1) / n;
               return transfers(n, [=](int64_t k) {
                 return Rows(std::min(k * block, allRows(n)), std::min((k + 1) * block, allRows(n)));
               });
             });
  expectMove(
      [](TensorView* y, const DeviceMesh& mesh, int64_t n) {
        std::vector<IntExpr> turned = sizes(n);
        std::reverse(turned.begin(), turned.end());
        inParts(y, mesh, turned);
      },
      [](int64_t n) {
        return transfers(n, [=](int64_t k) {
          int64_t begin = 0;
          for (int64_t before = 0; before < k; before++) {
            begin += rowsOf(n - 1 - before);
          }
          return Rows(begin, begin + rowsOf(n - 1 - k));
        });
      });
}

TEST_F(GivenParts, AreSummedByAnAllReduce) {
  for (const bool isProduct : {false, true}) {
    runScenario([=](int64_t n) {
      return Scenario{[=](Fusion& f) {
                        const DeviceMesh mesh = axisX(n);
                        TensorView* x = inParts(input(f, {allRows(n), 12}, mesh), mesh, sizes(n));
                        TensorView* dy = inParts(input(f, {allRows(n), 5}, mesh), mesh, sizes(n));
                        output(f, isProduct ? matmul(transpose(x, 0, 1), dy) : sum(x, {0}), mesh);
                      },
                      {random({allRows(n), 12}, 1), random({allRows(n), 5}, 2)},
                      {among(n, "all-reduce"), -1, allReduceBytes(isProduct ? 12 * 5 : 12, n)}};
    });
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
