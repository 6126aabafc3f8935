#include "ir/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "programs/random_fusion.h"

namespace meshfuse {
namespace {

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& l : lines) {
    text += l + "\n";
  }
  return text;
}

TEST(Text, PrintsAndParsesRandomPrograms) {
  std::map<ExprKind, int> seen;
  for (uint64_t seed = 0; seed < 600; seed++) {
    std::unique_ptr<Fusion> fusion = randomFusion(seed);
    std::string text = fusion->toString();
    std::unique_ptr<Fusion> parsed;
    ASSERT_NO_THROW(parsed = parseFusion(text)) << "seed " << seed << "\n" << text;
    ASSERT_EQ(parsed->toString(), text) << "seed " << seed;
    ASSERT_EQ(parsed->hash(), fusion->hash());
    ASSERT_TRUE(parsed->sameDefinition(*fusion));
    ASSERT_EQ(joined(verify(*fusion)), "") << "seed " << seed << "\n" << text;
    ASSERT_EQ(joined(verify(*parsed)), "") << "seed " << seed << "\n" << text;
    ASSERT_EQ(fusion->clone()->toString(), text);
    for (const Expr* e : fusion->exprs()) {
      seen[e->kind()]++;
    }
  }
  for (int k = 0; k <= static_cast<int>(ExprKind::Communicate); k++) {
    EXPECT_GT(seen[static_cast<ExprKind>(k)], 10) << ruleOf(static_cast<ExprKind>(k)).name;
  }
}

// Meshes with different coordinates of an axis name have a symbol each.
TEST(Text, APartOfASymbolMayBeginWithADigit) {
  const std::string text = R"(fusion {
  symbol coord.x {lower: 0, upper: 1}
  symbol coord.x.1 {lower: 0, upper: 1}
  T0 = input() : Float[8] contiguity[t]
  T1 = slice(T0, starts=[coord.x*4], stops=[coord.x*4 + 4], steps=[1]) : Float[4]
  T2 = slice(T0, starts=[coord.x.1*4], stops=[coord.x.1*4 + 4], steps=[1]) : Float[4]
  output T1
  output T2
}
)";
  EXPECT_EQ(parseFusion(text)->toString(), text);
  EXPECT_THROW((void)parseFusion("fusion {\n  symbol coord. {lower: 0}\n}\n"), UserError);
}

// What each line says, in full.
constexpr const char* kGolden = R"(fusion {
  symbol i1 {lower: 1, upper: 64, divisor: 4}
  mesh M0 {y: 2, x: 2} [0, 1, 2, 3]
  mesh M1 {dp: 2, tp: tp} []
  T0 = input() : Float[i0, 16] contiguity[t, f] alloc[1, 0] mesh M0 outer_split(0, 2) parallelize(0, DIDy) loop[DIDy{2}, ceilDiv(i0, 2), 16]
  S1 = input() : Double
  T12 = input() : Bool[i1, i2] contiguity[t, t]
  T2 = mul(T0, S1) : Float[i0, 16] mesh M1 outer_split(1, tp) merge(0) reorder[1, 0] loop[ceilDiv(16, tp), i0*tp]
  T3 = add(T2, -0.1) : Float[i0, 16]
  T4 = reduce(T3, op=sum) : Float[i0, r{16}]
  T5 = reduce(T3, op=max) : Float[i0, p{4, max}, r{4}] root[i0, r{16}; outer_split(1, 4)]
  T6 = reshape(T5) : Float[i0*4]
  T7 = slice(T6, starts=[0], stops=[4], steps=[2]) : Float[2]
  T8 = pad(T7, inf, starts=[1], stops=[-1]) : Float[2]
  T9 = broadcast(T4, flags=[t, f]) : Float[b{1}, i0]
  T10 = reshape(T9) : Float[s{i1}, s{i2}]
  output T8
  output T10
  alias T8 -> T11
}
)";

TEST(Text, Golden) {
  std::string text = kGolden;
  text.replace(text.find("  S1 = "), 0, "  T11 = input() : Float[2] contiguity[t]\n");
  std::unique_ptr<Fusion> fusion = parseFusion(text);
  EXPECT_EQ(fusion->toString(), text);
  EXPECT_EQ(joined(verify(*fusion)), "");
  Val* t8 = fusion->outputs()[0];
  EXPECT_EQ(t8->id(), 8);
  EXPECT_EQ(fusion->aliasOf(0), 1);
  EXPECT_EQ(fusion->aliasOf(1), std::nullopt);
  EXPECT_EQ(fusion->val(6)->asTensor()->getRootDomain().size(), 2u);
  EXPECT_EQ(fusion->freshSymbol().toString(), "i3");  // after the symbols of the text
}

TEST(Text, SettingsOfThePlanner) {
  const std::string text =
      "fusion {\n  planner {bound: 64, direct: fallback, forbid: all_to_all, forbid: permute, alpha x: 2.5, beta x: 8, "
      "beta "
      "y: 0.1, between: 3, memory: 4096}\n  T0 = input() : Float[4] contiguity[t]\n  output T0\n}\n";
  const std::unique_ptr<Fusion> fusion = parseFusion(text);
  const PlannerSettings expected{.bound = 64,
                                 .direct = DirectChoice::Fallback,
                                 .forbid = {"all_to_all", "permute"},
                                 .alpha = {{"x", 2.5}},
                                 .beta = {{"x", 8}, {"y", 0.1}},
                                 .betaBetween = 3,
                                 .memory = 4096};
  EXPECT_EQ(fusion->planner(), expected);
  EXPECT_EQ(fusion->toString(), text);
  EXPECT_EQ(fusion->clone()->toString(), text);
  const std::unique_ptr<Fusion> plain = fusion->clone();
  plain->setPlanner({});
  EXPECT_EQ(plain->toString().find("planner"), std::string::npos);
  EXPECT_FALSE(plain->sameDefinition(*fusion));
}

TEST(Text, ScalarsKeepTheirBits) {
  Fusion fusion;
  for (double value : {1.0, -0.0, 0.1, 1e300, 5e-324, 1e22, 123456789.0, -1e-7, 1.0 / 3}) {
    TensorView* t = fusion.tensor(DataType::Double, {});
    fusion.addExpr(ExprKind::Full, {fusion.scalar(value)}, {t});
    fusion.addOutput(t);
  }
  std::unique_ptr<Fusion> parsed = parseFusion(fusion.toString());
  for (size_t k = 0; k < fusion.outputs().size(); k++) {
    double a = std::get<double>(fusion.outputs()[k]->definition()->input(0)->constant());
    double b = std::get<double>(parsed->outputs()[k]->definition()->input(0)->constant());
    EXPECT_EQ(a, b);
    EXPECT_EQ(std::signbit(a), std::signbit(b));
  }
}

TEST(Text, IntegersKeepTheirValue) {
  Fusion fusion;
  const std::vector<IntExpr> values{INT64_MIN, INT64_MIN + 1, INT64_MAX, -1};
  for (const IntExpr& value : values) {
    TensorView* t = fusion.tensor(DataType::Int, {});
    fusion.addExpr(ExprKind::Full, {fusion.intScalar(value)}, {t});
    fusion.addOutput(t);
  }
  const std::unique_ptr<Fusion> parsed = parseFusion(fusion.toString());
  EXPECT_EQ(parsed->toString(), fusion.toString());
  for (size_t k = 0; k < values.size(); k++) {
    EXPECT_EQ(parsed->outputs()[k]->definition()->input(0)->intExpr(), values[k]) << fusion.toString();
  }
  EXPECT_THROW((void)parseFusion("fusion {\n  T0 = full(-9223372036854775809) : Int[2]\n  output T0\n}"), UserError);
}

struct BadText {
  const char* text;
  const char* message;
};

TEST(Text, ErrorsNameTheirPlace) {
  const BadText cases[] = {
      {"fusion {\n  T0 = input() : Flot[4]\n}", "f:2:18: there is no type 'Flot'"},
      {"fusion {\n  T0 = input() : Float[4]\n  T1 = tanhh(T0) : Float[4]\n}", "f:3:8: there is no op 'tanhh'"},
      {"fusion {\n  T1 = neg(T0) : Float[4]\n}", "f:2:12: T0 is not defined above"},
      {"fusion {\n  T0 = input() : Float[4\n}", "f:2:24: no ']' closes"},
      {"fusion {\n  T0 = input() : Float[4]\n  T0 = neg(T0) : Float[4]\n}", "f:3:3: value number 0 is defined twice"},
      {"fusion {\n  T0 = input() : Float[4] inner_split(0, 2) loop[3, 2]\n}", "f:2:45: the transforms give loop[2, 2]"},
      {"fusion {\n  T0 = input() : Float[4] inner_split(3, 2)\n}", "f:2:27: [split] axis 3"},
      {"fusion {\n  T0 = input() : Float[4] parallelize(0, DIDq)\n}", "f:2:27: there is no axis 'DIDq'"},
      {"fusion {\n  T0 = input() : Float[4 +]\n}", "f:2:24: [expression]"},
      {"fusion {\n  T0 = input() : Float[4]\n  T1 = reduce(T0, by=sum) : Float[r{4}]\n}",
       "f:3:19: reduce has no attribute 'by'; there are op"},
      {"fusion {\n  T0 = input() : Float[4]\n  T1 = reshape(T0) : Float[3]\n}", "f:3:22: [reshape]"},
      {"fusion {\n  T0 = input() : Float[4] mesh M0\n}", "f:2:32: mesh M0 is not defined above"},
      {"fusion {\n  T0 = input() : Float[4]\n  T1 = communicate(T0, kind=gather) : Float[4]\n}",
       "f:3:24: 'gather' is no collective of a program; expected transfer, all_to_all, all_gather, reduce_scatter, "
       "all_reduce, broadcast"},
      {"fusion {\n  T0 = input() : Float[p{4, mean}]\n}", "f:2:26: no reduction is named 'mean'"},
      {"fusion {\n  T0 = input() : Float[r{4, max}]\n}", "f:2:26: '4, max' in the braces of a dim; expected an extent"},
      {"fusion {\n  T0 = input() : Float[4]\n", "f:3:1: expected '}'"},
      {"fusion {\n  planner {bound: 64, forbit: permute}\n}", "f:2:23: the planner has bound, direct, forbid"},
      {"fusion {\n  planner {beta x: high}\n}", "f:2:12: beta x of the planner is 'high'"},
      {"fusion {\n  planner {memory: 80e9}\n}",
       "f:2:12: memory of the planner is '80e9'; expected a whole number of bytes"},
      {"fusion {\n  planner {direct: never}\n}", "f:2:12: direct of the planner is 'never'"},
      {"fusion {\n  output S0\n}", "f:2:10: S0 is not defined above"},
      {"fusion {\n  T99999999 = input() : Float[4]\n}", "f:2:3: value number 99999999 is too large"},
  };
  for (const BadText& bad : cases) {
    try {
      (void)parseFusion(bad.text, "f");
      FAIL() << "accepted:\n" << bad.text;
    } catch (const UserError& e) {
      EXPECT_TRUE(std::string_view(e.what()).starts_with(bad.message)) << e.what() << "\nexpected " << bad.message;
    }
  }
}

TEST(Text, SurvivesDamage) {
  // Any prefix, and any text with one character changed, is accepted or refused by a UserError.
  std::string text = randomFusion(7, {.numExprs = 12})->toString();
  int accepted = 0;
  for (size_t k = 0; k < text.size(); k++) {
    for (char c : {'(', ']', '0', 'T', ' ', ';'}) {
      std::string damaged = text;
      damaged[k] = c;
      try {
        (void)verify(*parseFusion(damaged));
        accepted++;
      } catch (const UserError&) {
      }
    }
    if (k + 1 < text.size()) {  // all but the last newline is a program
      EXPECT_THROW((void)parseFusion(std::string_view(text).substr(0, k)), UserError);
    }
    k += 2;
  }
  EXPECT_GT(accepted, 0);
}

TEST(Text, FactsThatNoValueMeets) {
  try {
    (void)parseFusion(
        "fusion {\n  symbol i0 {lower: 5, upper: 2}\n  T0 = input() : Float[i0] contiguity[t]\n  output T0\n}");
    ADD_FAILURE() << "expected a UserError";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("symbol i0 with lower: 5, upper: 2"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace meshfuse
