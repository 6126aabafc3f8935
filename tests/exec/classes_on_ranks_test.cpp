// Programs for a class of sizes on ranks: no pass has an internal error for the class, and results are right.
#include <gtest/gtest.h>

#include "base/ranges.h"
#include "exec/explain.h"
#include "inputs.h"
#include "interpret/bounds.h"
#include "ir/text.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/sharding/shard_tensor.h"

namespace meshfuse {

namespace {

using Shapes = std::vector<std::vector<int64_t>>;  // of the inputs

Tensor partOf(const Tensor& whole, const TensorView* tv, int64_t rank) {
  return shardTensor(whole, tv, static_cast<int>(rank));
}

// Calls with each list of shapes in turn.
void expectRight(const std::string& text, int64_t ranks, const std::vector<Shapes>& calls) {
  const std::unique_ptr<Fusion> fusion = parseFusion(text);
  runLoopback(static_cast<int>(ranks), [&](Communicator& comm) {
    FusionExecutorCache cache(fusion->clone(), {.communicator = &comm, .threads = 1});
    for (const Shapes& shapes : calls) {
      std::vector<Argument> whole;
      std::vector<Argument> local;
      for (const int64_t k : indices(shapes)) {
        const TensorView* tv = fusion->inputs()[k]->asTensor();
        const Tensor t = randomTensor(shapes[k], tv->dtype(), static_cast<uint64_t>(k) + 1, -1, 1);
        whole.emplace_back(t);
        local.emplace_back(partOf(t, tv, comm.rank()));
      }
      const std::vector<BoundedTensor> expected = interpretWithBounds(*fusion, whole, {.partials = ranks});
      const std::vector<Tensor> got = cache.runFusionWithInputs(local);
      const std::shared_ptr<const Fusion> planned = cache.planned();
      for (const int64_t k : indices(got)) {
        const TensorView* tv = planned->outputs()[k]->asTensor();
        const BoundedTensor part{partOf(expected[k].value, tv, comm.rank()).contiguous(),
                                 partOf(expected[k].error, tv, comm.rank()).contiguous(), 0};
        EXPECT_EQ(compare(got[k], part).value_or(""), "") << "rank " << comm.rank();
      }
      const std::string sizes = joined(cache.explain().sizes, "\n");
      EXPECT_EQ(sizes.find("internal error"), std::string::npos) << sizes;
    }
  });
}

// Both operands own the summed dim, one in blocks and one cyclic.
TEST(ClassesOnRanks, ASumOverWindowsOfDifferentlyCutDims) {
  expectRight(
      "fusion {\n"
      "  mesh M0 {x: 2} [0, 1]\n"
      "  T0 = input() : Double[i0, i1] contiguity[f, f] mesh M0 outer_split(1, 2) parallelize(1, DIDx)\n"
      "  T1 = input() : Double[i2, i3] contiguity[t, t] mesh M0 inner_split(1, 2) parallelize(2, DIDx)\n"
      "  T4 = slice(T0, starts=[0, min(2, i1)], stops=[i0, i1], steps=[1, 1]) : Double[i0, s{i1 - min(2, i1)}]\n"
      "  T5 = linear(T4, T1) : Double[i0, i2, r{i1 - min(2, i1)}]\n"
      "  output T5\n"
      "}\n",
      2, {{{1, 1042}, {2, 1040}}, {{1, 4}, {64, 2}}, {{1, 66}, {32, 64}}});
}

// The bias has as many elements as the window of the weight, whose size is another expression.
TEST(ClassesOnRanks, ABiasOfTheSizeOfAWindow) {
  expectRight(
      "fusion {\n"
      "  mesh M0 {x: 4} [0, 1, 2, 3]\n"
      "  T0 = input() : Float[i0, i1] contiguity[t, t] mesh M0 outer_split(0, 4) parallelize(0, DIDx)\n"
      "  T1 = input() : Float[i2, i3] contiguity[f, f] mesh M0 inner_split(0, 4) parallelize(1, DIDx)\n"
      "  T2 = input() : Float[i4] contiguity[t] mesh M0\n"
      "  T4 = slice(T0, starts=[0, min(1, i1)], stops=[i0, i1], steps=[1, 1]) : Float[i0, s{i1 - min(1, i1)}]\n"
      "  T5 = slice(T1, starts=[min(1, i2), 0], stops=[i2, i3], steps=[1, 1]) : Float[s{i2 - min(1, i2)}, i3]\n"
      "  T6 = linear(T4, T5, T2) : Float[i0, s{i2 - min(1, i2)}, r{i1 - min(1, i1)}] mesh M0\n"
      "  output T6\n"
      "}\n",
      4, {{{2, 1025}, {65, 1024}, {64}}, {{2, 1025}, {49, 1024}, {48}}, {{2, 1025}, {81, 1024}, {80}}});
}

// Two more elements than a multiple of three on three ranks.
TEST(ClassesOnRanks, AWindowInUnevenBlocksOfACyclicDim) {
  expectRight(
      "fusion {\n"
      "  mesh M0 {x: 3} [0, 1, 2]\n"
      "  T0 = input() : Float[i0, i1] contiguity[t, t] mesh M0 inner_split(1, 3) parallelize(2, DIDx)\n"
      "  T3 = pad(T0, 3.0, starts=[0, 0], stops=[0, 2]) : Float[i0, i1 + 2] mesh M0 outer_split(1, 3) parallelize(1, "
      "DIDx)\n"
      "  output T3\n"
      "}\n",
      3, {{{6, 6}}, {{12, 12}}, {{18, 18}}, {{6, 9}}});
}

}  // namespace

}  // namespace meshfuse
