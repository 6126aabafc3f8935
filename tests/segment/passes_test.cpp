// The passes over the local fusion that run before segmentation: text in, text out, and nothing left to do.
#include <gtest/gtest.h>

#include "interpret/interpret.h"
#include "ir/fusion.h"
#include "ir/text.h"
#include "segment/contiguous_operands.h"
#include "segment/decompose_contractions.h"
#include "segment/duplicate_cheap.h"
#include "segment/fold_scalars.h"

namespace meshfuse {

namespace {

using Pass = std::function<bool(Fusion&)>;

// The program of `text` after `pass`; checks that it is well formed, that the pass has nothing left to do, and that what was
// changed computes the same.
std::string after(const std::string& text, const Pass& pass, bool changes = true) {
  std::unique_ptr<Fusion> fusion = parseFusion(text);
  EXPECT_EQ(verify(*fusion), std::vector<std::string>{});
  std::unique_ptr<Fusion> before = fusion->clone();
  EXPECT_EQ(pass(*fusion), changes);
  EXPECT_EQ(verify(*fusion), std::vector<std::string>{});
  std::string result = fusion->toString();
  EXPECT_FALSE(pass(*fusion)) << "not idempotent";
  EXPECT_EQ(fusion->toString(), result);
  std::vector<Argument> inputs;
  for (const Val* in : fusion->inputs()) {
    if (!in->isTensor()) {
      inputs.emplace_back(0.5);
      continue;
    }
    std::vector<int64_t> sizes;
    for (const IntExpr& e : in->asTensor()->shape()) {
      sizes.push_back(e.constValue());
    }
    inputs.emplace_back(randomTensor(sizes, in->dtype(), static_cast<uint64_t>(in->id()), -2, 2));
  }
  std::vector<Tensor> expected = interpret(*before, inputs);
  std::vector<Tensor> got = interpret(*fusion, inputs);
  for (size_t i = 0; i < got.size(); i++) {
    EXPECT_EQ(got[i].sizes().size(), expected[i].sizes().size());
    std::vector<double> a = got[i].toVector();
    std::vector<double> b = expected[i].toVector();
    EXPECT_EQ(a.size(), b.size());
    for (size_t k = 0; k < std::min(a.size(), b.size()); k++) {
      EXPECT_NEAR(a[k], b[k], 1e-2);
    }
  }
  return result;
}

bool noLibrary(const Expr&) { return false; }

TEST(DuplicateCheap, EveryReaderGetsItsOwn) {
  EXPECT_EQ(after(R"(fusion {
  T0 = input() : BFloat16[8]
  T1 = input() : Float[4, 8]
  T2 = cast(T0) : Float[8]
  T3 = broadcast(T2, flags=[t, f]) : Float[b{1}, 8]
  T4 = mul(T1, T3) : Float[4, 8]
  T5 = add(T1, T3) : Float[4, 8]
  output T4
  output T5
}
)",
                  duplicateCheap),
            R"(fusion {
  T0 = input() : BFloat16[8] contiguity[t]
  T1 = input() : Float[4, 8] contiguity[t, t]
  T2 = cast(T0) : Float[8]
  T3 = broadcast(T2, flags=[t, f]) : Float[b{1}, 8]
  T4 = mul(T1, T3) : Float[4, 8]
  T7 = cast(T0) : Float[8]
  T6 = broadcast(T7, flags=[t, f]) : Float[b{1}, 8]
  T5 = add(T1, T6) : Float[4, 8]
  output T4
  output T5
}
)");
}

TEST(DuplicateCheap, OutputsAndExpensiveOpsStay) {
  after(R"(fusion {
  T0 = input() : BFloat16[8]
  T1 = cast(T0) : Float[8]
  T2 = exp(T1) : Float[8]
  T3 = neg(T2) : Float[8]
  T4 = mul(T2, T1) : Float[8]
  output T1
  output T3
  output T4
}
)",
        duplicateCheap, false);
}

TEST(DecomposeContractions, Matmul) {
  EXPECT_EQ(after(R"(fusion {
  T0 = input() : Float[3, 4]
  T1 = input() : Float[4, 5]
  T2 = matmul(T0, T1) : Float[3, 5, r{4}]
  output T2
}
)",
                  [](Fusion& f) { return decomposeContractions(f, noLibrary); }),
            R"(fusion {
  T0 = input() : Float[3, 4] contiguity[t, t]
  T1 = input() : Float[4, 5] contiguity[t, t]
  T3 = permute(T1, order=[1, 0]) : Float[5, 4]
  T4 = broadcast(T3, flags=[t, f, f]) : Float[b{1}, 5, 4]
  T5 = broadcast(T0, flags=[f, t, f]) : Float[3, b{1}, 4]
  T6 = mul(T5, T4) : Float[3, 5, 4]
  T7 = reduce(T6, op=sum) : Float[3, 5, r{4}]
  output T7
}
)");
}

TEST(DecomposeContractions, HalfLinearWithBias) {
  EXPECT_EQ(after(R"(fusion {
  T0 = input() : Half[3, 4]
  T1 = input() : Half[5, 4]
  T2 = input() : Half[5]
  T3 = linear(T0, T1, T2) : Half[3, 5, r{4}]
  output T3
}
)",
                  [](Fusion& f) { return decomposeContractions(f, noLibrary); }),
            R"(fusion {
  T0 = input() : Half[3, 4] contiguity[t, t]
  T1 = input() : Half[5, 4] contiguity[t, t]
  T2 = input() : Half[5] contiguity[t]
  T4 = cast(T0) : Float[3, 4]
  T5 = cast(T1) : Float[5, 4]
  T6 = broadcast(T4, flags=[f, t, f]) : Float[3, b{1}, 4]
  T7 = broadcast(T5, flags=[t, f, f]) : Float[b{1}, 5, 4]
  T8 = mul(T6, T7) : Float[3, 5, 4]
  T9 = reduce(T8, op=sum) : Float[3, 5, r{4}]
  T10 = cast(T2) : Float[5]
  T11 = broadcast(T10, flags=[t, f]) : Float[b{1}, 5]
  T12 = add(T9, T11) : Float[3, 5]
  T13 = cast(T12) : Half[3, 5]
  output T13
}
)");
}

TEST(DecomposeContractions, WhatALibraryTakesStays) {
  after(R"(fusion {
  T0 = input() : Float[3, 4]
  T1 = input() : Float[4, 5]
  T2 = matmul(T0, T1) : Float[3, 5, r{4}]
  output T2
}
)",
        [](Fusion& f) { return decomposeContractions(f, [](const Expr&) { return true; }); }, false);
}

TEST(FoldScalars, ConstantsOfConstants) {
  EXPECT_EQ(after(R"(fusion {
  T0 = input() : Float[8]
  S1 = input() : Double
  S2 = cast(4096) : Double
  S3 = div(1.0, S2) : Double
  S4 = mul(S1, S3) : Double
  T5 = mul(T0, S3) : Float[8]
  T6 = add(T5, S4) : Float[8]
  output T6
}
)",
                  foldScalars),
            R"(fusion {
  T0 = input() : Float[8] contiguity[t]
  S1 = input() : Double
  S4 = mul(S1, 0.000244140625) : Double
  T5 = mul(T0, 0.000244140625) : Float[8]
  T6 = add(T5, S4) : Float[8]
  output T6
}
)");
}

TEST(FoldScalars, WhatDependsOnInputsStays) {
  after(R"(fusion {
  T0 = input() : Float[8]
  S1 = input() : Double
  S2 = mul(S1, 2.0) : Double
  T3 = mul(T0, S2) : Float[8]
  output T3
}
)",
        foldScalars, false);
}

TEST(ContiguousOperands, BitCastOfAStridedInput) {
  std::map<int, Layout> strided = {{0, {{1, 4}, 64}}, {1, {{8, 1}, 64}}};
  EXPECT_EQ(after(R"(fusion {
  T0 = input() : Float[4, 8]
  T1 = input() : Float[4, 8]
  T2 = bit_cast(T0) : Int32[4, 8]
  T3 = bit_cast(T1) : Int32[4, 8]
  T4 = add(T2, T3) : Int32[4, 8]
  T5 = neg(T0) : Float[4, 8]
  output T4
  output T5
}
)",
                  [&](Fusion& f) { return contiguousOperands(f, strided); }),
            R"(fusion {
  T0 = input() : Float[4, 8] contiguity[t, t]
  T1 = input() : Float[4, 8] contiguity[t, t]
  T3 = bit_cast(T1) : Int32[4, 8]
  T5 = neg(T0) : Float[4, 8]
  T6 = set(T0) : Float[4, 8]
  T2 = bit_cast(T6) : Int32[4, 8]
  T4 = add(T2, T3) : Int32[4, 8]
  output T4
  output T5
}
)");
}

}  // namespace

}  // namespace meshfuse
