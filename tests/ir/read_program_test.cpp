// Errors in programs that someone wrote stand at their places in the text.
#include "ir/read_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "ir/fusion.h"

namespace meshfuse {
namespace {

std::string refusalOf(std::string_view text) {
  try {
    (void)readProgram(text, "f.fir");
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(ReadProgram, TakesWhatIsRight) {
  const std::unique_ptr<Fusion> fusion = readProgram(R"(fusion {
  symbol coord.x {lower: 0, upper: 1}
  mesh M0 {x: x} []
  S0 = input() : Int i3
  T1 = input() : Float[i0*2, 16] contiguity[t, t] mesh M0 outer_split(0, x) parallelize(0, DIDx)
  T2 = neg(T1) : Float[i0*2, 16]
  T3 = slice(T2, starts=[coord.x, 0], stops=[coord.x + 1, i3], steps=[1, 1]) : Float[b{1}, i3]
  output T2
})",
                                                     "f.fir");
  EXPECT_EQ(fusion->inputs().size(), 2u);
}

TEST(ReadProgram, ASymbolThatNoInputHas) {
  EXPECT_EQ(refusalOf(R"(fusion {
  T0 = input() : Float[i0, 16] contiguity[t, t]
  T1 = neg(T0) : Float[i1, 16]
  output T1
})"),
            "f.fir:3:24: the symbol i1 is in the extents of no input; there are: i0");
  EXPECT_EQ(refusalOf(R"(fusion {
  mesh M0 {x: 2} [0, 1]
  T0 = input() : Float[8, 16] contiguity[t, t] mesh M0 outer_split(0, n) parallelize(0, DIDx)
  T1 = neg(T0) : Float[8, 16]
  output T1
})"),
            "f.fir:3:71: the symbol n is in the extents of no input; there are: none");
}

TEST(ReadProgram, EveryBrokenRuleHasItsPlace) {
  const std::string text = refusalOf(R"(fusion {
  T0 = input() : Float[8, 16] contiguity[t, t]
  T1 = neg(T0) : Float[8, 17]
  T2 = exp(T0) : Int[8, 16]
  output T1
  output T2
})");
  EXPECT_EQ(text.find("f.fir:3:3: T1"), 0u) << text;
  EXPECT_NE(text.find("\nf.fir:4:3: T2"), std::string::npos) << text;
}

TEST(ReadProgram, NestsABoundedNumberOfLevels) {
  std::string deep(40001, '(');
  deep[20000] = '4';
  std::fill(deep.begin() + 20001, deep.end(), ')');
  const std::string text = refusalOf("fusion {\n  T0 = input() : Float[" + deep + "]\n  output T0\n}");
  EXPECT_EQ(text.find("f.fir:2:24: [expression] parentheses and signs nest more than "), 0u);
}

}  // namespace
}  // namespace meshfuse
