// The traits of every op that passes ask its OpRule for, spelled out.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <set>

#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "ir/text.h"

namespace meshfuse {
namespace {

struct TraitRow {
  const char* line;
  bool keepsContributions = false;
  Repeat repeat = Repeat::No;
};

const TraitRow kTraitRows[] = {
    {"T9 = set(T0) : Float[4, 6]", true, Repeat::Reader},
    {"T9 = segment_set(T0) : Float[4, 6]"},
    {"T9 = neg(T0) : Float[4, 6]", true, Repeat::Rank},
    {"T9 = exp(T0) : Float[4, 6]", false, Repeat::Rank},
    {"T9 = add(T0, T0) : Float[4, 6]", true, Repeat::Rank},
    {"T9 = add(T0, 1.0) : Float[4, 6]", false, Repeat::Rank},
    {"T9 = sub(1.0, T0) : Float[4, 6]", false, Repeat::Rank},
    {"T9 = mul(T0, T0) : Float[4, 6]", false, Repeat::Rank},
    {"T9 = mul(T0, 2.0) : Float[4, 6]", true, Repeat::Rank},
    {"T9 = mul(2.0, T0) : Float[4, 6]", true, Repeat::Rank},
    {"T9 = div(T0, T0) : Float[4, 6]", false, Repeat::Rank},
    {"T9 = div(T0, 2.0) : Float[4, 6]", true, Repeat::Rank},
    {"T9 = div(2.0, T0) : Float[4, 6]", false, Repeat::Rank},
    {"T9 = where(T3, T0, 0.0) : Float[4, 6]", false, Repeat::Rank},
    {"T9 = cast(T2) : Float[4, 6]", true, Repeat::Reader},
    {"T9 = bit_cast(T0) : Int32[4, 6]", false, Repeat::Rank},
    {"T9 = broadcast(T0, flags=[t, f, f]) : Float[b{1}, 4, 6]", false, Repeat::Reader},
    {"T9 = squeeze(T1, flags=[t, f]) : Float[6]", false, Repeat::Reader},
    {"T9 = expand(T1) : Float[3, 6]", false, Repeat::Reader},
    {"T9 = permute(T0, order=[1, 0]) : Float[6, 4]", true, Repeat::Rank},
    {"T9 = reshape(T0) : Float[24]", true, Repeat::Rank},
    {"T9 = slice(T0, starts=[1, 0], stops=[3, 6], steps=[1, 2]) : Float[2, 3]", true, Repeat::Rank},
    {"T9 = pad(T0, 0.0, starts=[1, 0], stops=[0, 2]) : Float[5, 8]", false, Repeat::Rank},
    {"T9 = cat(T0, T0, dim=0) : Float[8, 6]"},
    {"T9 = reduce(T0, op=sum) : Float[r{4}, 6]", true},
    {"T9 = reduce(T0, op=max) : Float[r{4}, 6]"},
    {"T9 = matmul(T0, T4) : Float[4, 5, r{6}]"},
    {"T9 = linear(T0, T0) : Float[4, 4, r{6}]"},
    {"T9 = full(1.0) : Float[4]", false, Repeat::Reader},
    {"T9 = iota(0, 1, starts=[0]) : Int[4]", false, Repeat::Reader},
    {"T9 = eye(starts=[0, 0]) : Float[4, 4]", false, Repeat::Reader},
    {"T9 = random(0, 0, kind=uniform, ordinal=0, starts=[0], stops=[4]) : Float[4]"},
    {"T9 = take_along_axis(T0, T2, dim=1) : Float[4, 6]"},
    {"T9 = gather(T0, T2, dim=1) : Float[4, 6]"},
    {"T9 = index_select(T0, T5, dim=0) : Float[2, 6]"},
    {"T9 = embedding(T5, T0, starts=[0], flags=[f]) : Float[2, 6]"},
    {"T9 = scan(T0, op=sum, dim=1) : Float[4, 6]"},
    {"T9 = argsort(T0, dim=1, flags=[f]) : Int[4, 6]"},
    {"T9 = scatter(T0, T2, T0, dim=1, starts=[0], flags=[f]) : Float[4, 6]"},
    {"T9 = index_put_accumulate(T0, T5, T6, starts=[0], flags=[f]) : Float[4, 6]"},
    {"T9 = redistribute(T0) : Float[4, 6]"},
    {"T9 = communicate(T0, kind=all_gather, mesh=M0, axes=[0]) : Float[2, 4, 6]"},
};

std::unique_ptr<Fusion> programOf(const std::string& line) {
  return parseFusion(R"(fusion {
    mesh M0 {x: 2} [0, 1]
    T0 = input() : Float[4, 6]
    T1 = input() : Float[b{1}, 6]
    T2 = input() : Int[4, 6]
    T3 = input() : Bool[4, 6]
    T4 = input() : Float[6, 5]
    T5 = input() : Int[2]
    T6 = input() : Float[2, 6]
    )" + line + "\n  output T9\n}");
}

TEST(OpTraits, OfEveryKind) {
  std::set<ExprKind> seen;
  for (const TraitRow& row : kTraitRows) {
    const std::unique_ptr<Fusion> program = programOf(row.line);
    ASSERT_TRUE(verify(*program).empty()) << row.line << "\n" << verify(*program)[0];
    const Expr& e = *program->outputs()[0]->definition();
    seen.insert(e.kind());
    EXPECT_EQ(keepsContributions(e), row.keepsContributions) << row.line;
    EXPECT_EQ(repeatOf(e), row.repeat) << row.line;
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(ExprKind::Communicate) + 1);
}

TEST(OpTraits, OnlyMessagesAndBitCastsReadOnePiece) {
  const std::set<ExprKind> whole = {ExprKind::BitCast, ExprKind::Redistribute, ExprKind::Communicate};
  for (const TraitRow& row : kTraitRows) {
    const std::unique_ptr<Fusion> program = programOf(row.line);
    const Expr& e = *program->outputs()[0]->definition();
    EXPECT_EQ(readsOnePiece(e), whole.contains(e.kind())) << row.line;
  }
}

TEST(OpTraits, OnlyCastsAndNewTensorsChooseTheirType) {
  const std::set<ExprKind> choose = {ExprKind::Cast, ExprKind::Full, ExprKind::Eye, ExprKind::Random};
  for (const TraitRow& row : kTraitRows) {
    std::string line = row.line;
    const size_t type = line.find(" : Float[");
    if (type != std::string::npos) {
      const std::unique_ptr<Fusion> program = programOf(line.replace(type, 9, " : Double["));
      const bool chooses = choose.contains(program->outputs()[0]->definition()->kind());
      EXPECT_EQ(verify(*program).empty(), chooses) << line;
    }
  }
}

TEST(OpTraits, OfEveryPointOpOfTensors) {
  for (const PointOpInfo& op : kPointOps) {
    const bool ofIntegers = op.types == OpTypes::Integer || op.types == OpTypes::Bits;
    const std::string operand = ofIntegers ? "T2" : "T0";
    std::string line = fmt::format("T9 = {}({}", op.name, op.op == PointOp::Where ? "T3" : operand);
    for (int k = 1; k < op.arity; k++) {
      line += ", " + operand;
    }
    line += fmt::format(") : {}[4, 6]", op.givesBool ? "Bool" : ofIntegers ? "Int" : "Float");
    const std::unique_ptr<Fusion> program = programOf(line);
    ASSERT_TRUE(verify(*program).empty()) << line << "\n" << verify(*program)[0];
    const Expr& e = *program->outputs()[0]->definition();
    EXPECT_EQ(keepsContributions(e), op.op == PointOp::Add || op.op == PointOp::Sub || op.op == PointOp::Neg) << line;
    EXPECT_EQ(repeatOf(e), op.op == PointOp::CheckedIndex ? Repeat::Reader : Repeat::Rank) << line;
  }
}

}  // namespace
}  // namespace meshfuse
