// Reshapes and slices of cut dims: which digits keep their place, and what it takes where they cannot.
#include "multidevice/scenario_parts.h"

namespace meshfuse {

namespace {

class RegroupedDims : public ScenarioTest {
 protected:
  static TensorView* whole(Fusion& f, std::vector<int64_t> shape, const DeviceMesh& mesh) {
    return input(f, std::move(shape), mesh);
  }
};

// [B, H D] cut over D, the inner digit of the merged dim, in blocks or cyclic; as [B, H, D], as [B, D, H], and merged again.
TEST_F(RegroupedDims, InnerDigitOfAMergedDimAndItsPermutation) {
  for (bool cyclic : {false, true}) {
    runScenario([=](int64_t n) {
      const int64_t H = 3, D = 2 * n;
      return Scenario{[=](Fusion& f) {
                        const DeviceMesh mesh = axisX(n);
                        TensorView* x = whole(f, {2, H * D}, mesh);
                        x->inner_split(1, D);
                        cyclic ? x->inner_split(2, n) : x->outer_split(2, n);
                        x->axis(cyclic ? 3 : 2)->parallelize(mesh.axis("x"));
                        TensorView* heads = reshape(x, {2, H, D});
                        f.addOutput(heads);
                        f.addOutput(neg(reshape(permute(heads, {0, 2, 1}), {2, D * H})));
                        f.addOutput(reshape(add(heads, 1.0), {2, H * D}));
                      },
                      {random({2, H * D}, 1)},
                      {{}, -1, 0}};
    });
  }
}

// [A B, C D E] cut over B's outer digit: the outer digit of B C.
TEST_F(RegroupedDims, SeveralSplitsAndMergesInOneReshape) {
  for (bool last : {false, true}) {
    runScenario([=](int64_t n) {
      const int64_t A = 2, B = 2 * n, C = 3, D = 2, E = 5;
      return Scenario{
          [=](Fusion& f) {
            const DeviceMesh mesh = axisX(n);
            TensorView* x = whole(f, {A * B, C * D * E}, mesh);
            x->inner_split(0, B);
            x->outer_split(1, n);
            x->axis(1)->parallelize(mesh.axis("x"));
            f.addOutput(mul(
                reshape(x, last ? std::vector<int64_t>{A, B * C, D, E} : std::vector<int64_t>{A, B * C, D * E}), 2.0));
          },
          {random({A * B, C * D * E}, 1)},
          {{}, 1, 0}};
    });
  }
}

// Three elements a rank, as rows of n: where a row lies on two ranks, no dim has the digit.
TEST_F(RegroupedDims, RowsOnTwoRanksAreGathered) {
  runScenario([](int64_t n) {
    const bool fits = 3 % n == 0;
    return Scenario{[=](Fusion& f) {
                      const DeviceMesh mesh = axisX(n);
                      TensorView* x = whole(f, {3 * n}, mesh);
                      shardBlock(x, 0, mesh, "x");
                      f.addOutput(mul(reshape(x, {3, n}), 2.0));
                    },
                    {random({3 * n}, 1)},
                    {fits ? std::vector<std::string>{} : among(n, "all-gather"), -1, fits ? 0 : (n - 1) * 3 * 4}};
  });
}

// Gate and up lie one after the other in the weight, each cut: the digit is not the outermost of the dim.
TEST_F(RegroupedDims, GatedUnitKeepsBothHalvesCut) {
  for (bool swapped : {false, true}) {
    runScenario([=](int64_t n) {
      const int64_t T = 3, E = 4, F = 4 * n;
      return Scenario{
          [=](Fusion& f) {
            const DeviceMesh mesh = axisX(n);
            TensorView* x = whole(f, {T, E}, mesh);
            TensorView* w = whole(f, swapped ? std::vector<int64_t>{E, 2 * F} : std::vector<int64_t>{2 * F, E}, mesh);
            const int dim = swapped ? 1 : 0;
            w->inner_split(dim, F);
            w->outer_split(dim + 1, n);
            w->axis(dim + 1)->parallelize(mesh.axis("x"));
            TensorView* down = whole(f, {E, F}, mesh);
            shardBlock(down, 1, mesh, "x");
            TensorView* h = swapped ? matmul(x, w) : linear(x, w);
            TensorView* gate = slice(h, {0, 0}, {T, F});
            TensorView* up = slice(h, {0, F}, {T, 2 * F});
            f.addOutput(linear(mul(silu(gate), up), down));
          },
          {random({T, E}, 1), swapped ? random({E, 2 * F}, 2) : random({2 * F, E}, 2), random({E, F}, 3)},
          {among(n, "all-reduce"), -1, allReduceBytes(T * E, n)}};
    });
  }
}

}  // namespace

}  // namespace meshfuse
