#include <fmt/core.h>
#include <gtest/gtest.h>

#include "ir/fusion.h"
#include "ir/text.h"

namespace meshfuse {
namespace {

struct Violation {
  const char* lines;    // between the inputs and the output
  const char* message;  // the list must hold it
};

constexpr const char* kInputs = R"(
  mesh M0 {y: 2, x: 2} [0, 1, 2, 3]
  T0 = input() : Float[4, 6] contiguity[t, t]
  T1 = input() : Float[4] contiguity[t]
  T2 = input() : Int[4, 6] contiguity[t, t]
  T3 = input() : Half[4, 6] contiguity[t, t]
  T4 = input() : Bool[4, 6] contiguity[t, t]
  T5 = input() : Float[6, 5] contiguity[t, t]
)";

const Violation kViolations[] = {
    {"T9 = set(T0) : Float[4, 7]", "T9 = set: dim 1 of operand 0: extents 6 and 7 differ"},
    {"T9 = set(T0) : Int[4, 6]", "T9 = set: operand 0 is Float, the result Int"},
    {"T9 = segment_set(T0) : Float[4, 7]", "T9 = segment_set: dim 1 of operand 0: extents 6 and 7 differ"},
    {"T9 = add(T0, T0) : Float[4, 7]", "T9 = add: dim 1 of operand 1: extents 6 and 7 differ"},
    {"T9 = cast(T0) : Double[4, 7]", "T9 = cast: dim 1 of operand 0: extents 6 and 7 differ"},
    {"T9 = bit_cast(T0) : Int32[4, 7]", "T9 = bit_cast: dim 1 of operand 0: extents 6 and 7 differ"},
    {"T9 = reduce(T0, op=sum) : Float[r{4}, 7]", "T9 = reduce: dim 1 of operand 0: extents 6 and 7 differ"},
    {"T9 = redistribute(T0) : Float[4, 7]", "T9 = redistribute: dim 1 of operand 0: extents 6 and 7 differ"},
    {"T9 = redistribute(T0) : Int[4, 6]", "T9 = redistribute: operand 0 is Float, the result Int"},
    {"T9 = set(T0, T0) : Float[4, 6]", "T9 = set: 2 operands, expected 1"},
    {"T9 = set(1.0) : Float[4, 6]", "T9 = set: operand 0 is 1.0, expected a tensor"},
    {"T9 = set(T0) : Float[4, r{6}]", "T9 = set: the result has a reduction dim"},
    {"T9 = add(T0) : Float[4, 6]", "T9 = add: 1 operands, expected 2"},
    {"T9 = add(T0, T1) : Float[4, 6]", "T9 = add: operand 1 has 1 dims, the result 2"},
    {"T9 = add(T0, T2) : Float[4, 6]", "T9 = add: operands of types Float and Int"},
    {"T9 = add(T0, 1) : Float[4, 6]", "T9 = add: a scalar operand is of another kind of number than the Float tensors"},
    {"T9 = exp(T3) : Half[4, 6]", "T9 = exp: operand 0 is Half, which the op does not accept"},
    {"T9 = eq(T0, T0) : Float[4, 6]", "T9 = eq: the result is Float, expected Bool"},
    {"T9 = where(T0, T0, T0) : Float[4, 6]", "T9 = where: the condition is Float, expected Bool"},
    {"T9 = bit_cast(T0) : Half[4, 6]", "T9 = bit_cast: Float and Half differ in size"},
    {"T9 = broadcast(T1, flags=[f, t]) : Float[4, 3]", "T9 = broadcast: dim 1 is flagged but is 3"},
    {"T9 = broadcast(T1, flags=[f]) : Float[4, b{1}]", "T9 = broadcast: 1 flags, expected 2"},
    {"T9 = squeeze(T0, flags=[t, f]) : Float[6]", "T9 = squeeze: dim 0 is flagged but is 4"},
    {"T9 = expand(T0) : Float[8, 6]", "T9 = expand: dim 0 of operand 0: extents 4 and 8 differ"},
    {"T9 = permute(T0, order=[1, 0]) : Float[4, 6] root[4, 6; ]", "T9 = permute: logical dim 0 is not root dim 1"},
    {"T9 = reshape(T1) : Float[4, 6] root[4; new(1)]", "T9 = reshape: 4 elements, the result has 24"},
    {"T9 = reshape(T1) : Float[s{2}, s{3}]", "T9 = reshape: 4 elements, the result has 6"},
    {"T9 = slice(T1, starts=[1], stops=[3], steps=[1]) : Float[r{2}]", "T9 = slice: the result has a reduction dim"},
    {"T9 = neg(T1) : Float[k]", "T9: dim k depends on k, which occurs in no input"},
    {"T9 = full(1.0) : Float[4, 2*k]", "T9: dim k*2 depends on k, which occurs in no input"},
    {"T9 = iota(k, 1) : Int[4]", "T9 = iota: operand k depends on k, which occurs in no input"},
    {"T9 = matmul(T0, T5) : Float[r{4}, 5, r{6}]", "T9 = matmul: a dim before the contraction is reduced"},
    {"T9 = linear(T0, T0) : Float[4, r{4}, r{6}]", "T9 = linear: a dim before the contraction is reduced"},
    {"T9 = take_along_axis(T5, T2, dim=1) : Float[6, 6]",
     "T9 = take_along_axis: dim 0 of the index: extents 4 and 6 differ"},
    {"T9 = gather(T5, T2, dim=0) : Float[4, 6]",
     "T9 = gather: dim 1 of the index has extent 6, expected at most operand 0's 5"},
    {"T8 = broadcast(T1, flags=[t, f]) : Float[b{1}, 4]\n  T9 = cat(T0, T8, dim=1) : Float[4, 10]",
     "T9 = cat: dim 0 of operand 1: extents 1 and 4 differ"},
    {"T9 = expand(T1) : Float[5]", "T9 = expand: dim 0 of operand 0: extents 4 and 5 differ"},
    {"T9 = slice(T1, starts=[0], stops=[9], steps=[1]) : Float[9]",
     "T9 = slice: the range [0, 9) with step 1 does not fit dim 0 of extent 4"},
    {"T9 = slice(T1, starts=[1], stops=[3], steps=[1]) : Float[2] root[4; resize(0, -1, 0), inner_split(0, 2), "
     "drop(1)]",
     ""},
    {"T9 = pad(T1, 1, starts=[1], stops=[1]) : Float[6]", "T9 = pad: the fill is Int, the tensor Float"},
    {"T9 = cat(T0, T5, dim=0) : Float[10, 6]", "T9 = cat: dim 1 of operand 1: extents 5 and 6 differ"},
    {"T9 = cat(T0, T0, dim=0) : Float[9, 6]", "T9 = cat: dim 0 has extent 9, the operands have 8"},
    {"T9 = cat(T0, T0, dim=2) : Float[8, 6]", "T9 = cat: dim=2 is no dim of 2; expected 0 to 1"},
    {"T9 = reduce(T0, op=sum) : Float[4, 6]", "T9 = reduce: no dim is reduced"},
    {"T9 = reduce(T0, op=xor) : Float[4, r{6}]", "T9 = reduce: xor of Float"},
    {"T9 = matmul(T0, T0) : Float[4, 6, r{6}]", "T9 = matmul: contracted dims: extents 6 and 4 differ"},
    {"T9 = matmul(T0, T5) : Float[4, 6, r{6}]", "T9 = matmul: columns: extents 5 and 6 differ"},
    {"T9 = matmul(T0, T5) : Float[4, 5]", "T9 = matmul: the last dim of the result is not the contracted dim"},
    {"T9 = linear(T0, T0, T1) : Float[4, 3, r{6}]", "T9 = linear: output features: extents 4 and 3 differ"},
    {"T9 = linear(T0, T0, T0) : Float[4, 4, r{6}]", "T9 = linear: a bias of 2 dims, expected 1"},
    {"T9 = full(1) : Float[4]", "T9 = full: the value is Int, the result Float"},
    {"T9 = iota(0, 1) : Int[4, 4]", "T9 = iota: the result has 2 dims, expected 1"},
    {"T9 = random(0, 0, kind=normal, ordinal=0) : Half[4]", "T9 = random: the result is Half"},
    {"T9 = embedding(T0, T5) : Float[4, 6, 5]", "T9 = embedding: the index is Float"},
    {"T9 = take_along_axis(T0, T2, dim=1) : Float[4, 5]", "T9 = take_along_axis: the index: extents 6 and 5 differ"},
    {"T9 = index_select(T0, T2, dim=1) : Float[4, 6]", "T9 = index_select: the index has 2 dims, expected 1"},
    {"T9 = scatter(T0, T2, T0, dim=2, starts=[0], flags=[f]) : Float[4, 6]",
     "T9 = scatter: dim=2 is no dim of 2; expected 0 to 1"},
    {"T9 = scatter(T0, T2, T0, dim=1) : Float[4, 6]", "T9 = scatter: 0 starts and 0 flags, expected one each"},
    {"T9 = scatter(T0, T2, T3, dim=1, starts=[0], flags=[f]) : Float[4, 6]",
     "T9 = scatter: operand 2 is Half, the result Float"},
    {"T9 = scatter(T0, T1, T0, dim=1, starts=[0], flags=[f]) : Float[4, 6]",
     "T9 = scatter: an index of 1 dims and elements of 2, expected 2 of both"},
    {"T9 = scatter(T5, T2, T0, dim=1, starts=[0], flags=[f]) : Float[6, 5]",
     "T9 = scatter: dim 0 of the index: extents 4 and 6 differ"},
    {"T9 = scatter(T0, T2, T5, dim=0, starts=[0], flags=[f]) : Float[4, 6]",
     "T9 = scatter: dim 1 of operand 2 and of the index: extents 5 and 6 differ"},
    {"T9 = index_put_accumulate(T4, T2, T4, starts=[0], flags=[f]) : Bool[4, 6]",
     "T9 = index_put_accumulate: sum of Bool elements; expected numbers: Bools combine by and, or, xor"},
    {"T9 = index_put_accumulate(T0, T1, T0, starts=[0], flags=[f]) : Float[4, 6]",
     "T9 = index_put_accumulate: the index is Float, expected integers"},
    {"T9 = index_put_accumulate(T0, T2, T0, starts=[0], flags=[f]) : Float[4, 6]",
     "T9 = index_put_accumulate: operand 2 has 2 dims, expected 3"},
    {"T9 = index_put_accumulate(T1, T2, T5, starts=[0], flags=[f]) : Float[4]",
     "T9 = index_put_accumulate: dim 0 of operand 2: extents 6 and 4 differ"},
    {"T9 = reduce(T0, op=or) : Float[r{4}, 6]", "T9 = reduce: or of Float elements; expected integers or Bool"},
    {"T9 = reduce(T4, op=max) : Bool[r{4}, 6]", "T9 = reduce: max of Bool elements; expected numbers"},
    {"T9 = scan(T4, op=prod, dim=0) : Bool[4, 6]", "T9 = scan: prod of Bool elements; expected numbers"},
    {"T8 = permute(T4, order=[1, 0]) : Bool[6, 4]\n  T9 = matmul(T4, T8) : Bool[4, 4, r{6}]",
     "T9 = matmul: operands of Bool elements, expected numbers; cast them"},
    {"T9 = linear(T4, T4) : Bool[4, 4, r{6}]", "T9 = linear: operands of Bool elements, expected numbers; cast them"},
    {"T8 = cast(T4) : Char[4, 6]\n  T9 = bit_cast(T8) : Bool[4, 6]", "T9 = bit_cast: Char and Bool: the bits of other"},
    {"T9 = iota(0.5, 1.0, starts=[0]) : Int[4]", "T9 = iota: operand 0 is Double, the result Int; convert it"},
    {"T9 = random(true, 0, kind=normal, ordinal=0, starts=[0], stops=[4]) : Float[4]",
     "T9 = random: operand 0 is Bool, expected Int"},
    {"T9 = add(1.0, 2.0) : Float[4]",
     "T9 = add: no operand is a tensor, but the result is; make one of them with full"},
    {"S8 = bitwise_or(0.5, 1.5) : Double\n  T9 = full(S8) : Float[4]",
     "S8 = bitwise_or: operand 0 is Double, which the op does not accept; cast it"},
    {"S8 = acos(true) : Bool\n  T9 = full(S8) : Bool[4]", "S8 = acos: operand 0 is Bool, which the op does not accept"},
    {"S8 = add(1.5, 2) : Double\n  T9 = full(S8) : Float[4]",
     "S8 = add: operands 0 and 1 are Double and Int; cast one"},
    {"S8 = lt(1.5, 2.5) : Double\n  T9 = full(S8) : Float[4]", "S8 = lt: the result is Double, expected Bool"},
    {"S8 = where(1.5, 2.5, 3.5) : Double\n  T9 = full(S8) : Float[4]", "S8 = where: the condition is Double"},
    {"T9 = communicate(T4, kind=all_reduce, mesh=M0, axes=[1], op=sum) : Bool[4, 6]",
     "T9 = communicate: sum of Bool elements; expected numbers"},
    {"T9 = communicate(T0, kind=all_reduce, mesh=M0, axes=[1], op=or) : Float[4, 6]",
     "T9 = communicate: or of Float elements; expected integers or Bool"},
    {"T8 = reduce(T2, op=sum) : Int[p{2}, r{2}, 6] root[r{4}, 6; outer_split(0, 2)]\n  T9 = cast(T8) : Bool[p{2}, 6]",
     "T9: dim p{2} counts contributions to sum of Bool elements, which cannot be combined; cast them"},
    {"T9 = redistribute(T0, op=sum, dim=0) : Float[r{4}, 6]",
     "T9 = redistribute: dim 0 of the operand is 4, expected contributions to a reduction: p{4}"},
    {"T9 = redistribute(T0, op=sum, dim=1) : Float[r{4}, 6]", "T9 = redistribute: dim=1 is not the reduction dim"},
    {"T9 = communicate(T1, kind=all_gather, mesh=M0, axes=[1]) : Float[3, 4]",
     "T9 = communicate: dim 0 of the result is 3, expected the team's size 2"},
    {"T9 = communicate(T1, kind=all_reduce, mesh=M2, axes=[1], op=sum) : Float[4]",
     "T9 = communicate: mesh M2 does not exist; the fusion has 1 meshes"},
    {"T8 = undefined() : Float[4]\n  T9 = neg(T8) : Float[4]", "T9 = neg: operand T8 is neither computed nor an input"},
    {"T9 = neg(T0) : Float[4, 6] parallelize(0, DIDx)",
     "T9: loop dim 0 is bound to DIDx, but the tensor has no mesh; call setDeviceMesh"},
    {"T9 = neg(T0) : Float[4, 6] mesh M0 parallelize(0, DIDx)",
     "T9: loop dim DIDx{4} is bound to a mesh axis of 2 devices"},
    {"T9 = neg(T0) : Float[4, 6] mesh M0 outer_split(0, 2) outer_split(2, 2) parallelize(0, DIDx) parallelize(2, DIDx)",
     "T9: DIDx, axis x of {y: 2, x: 2}[0, 1, 2, 3], is bound to two loop dims, 0 and 2; an axis owns one digit of a "
     "tensor: "
     "leave one of them serial, or bind it to one that is free: DIDy (y)"},
    {"T9 = neg(T0) : Float[4, 6] mesh M0 outer_split(0, 2) outer_split(2, 2) parallelize(0, DIDx) parallelize(2, DIDx) "
     "parallelize(1, DIDy)",
     "T9: DIDx, axis x of {y: 2, x: 2}[0, 1, 2, 3], is bound to two loop dims, 0 and 2; an axis owns one digit of a "
     "tensor: "
     "leave one of them serial, or give the mesh one more axis"},
    {"T9 = neg(T0) : Float[4, 6] mesh M0 parallelize(0, DIDz)",
     "T9: loop dim 0 is bound to DIDz, but mesh {y: 2, x: 2}[0, 1, 2, 3] has 2 axes; bind it to one of DIDy (y), DIDx "
     "(x)"},
    {"T9 = neg(T0) : Float[4, 6] parallelize(0, Stream) parallelize(1, Stream)", "T9: 2 loop dims are bound to Stream"},
    {"T9 = neg(T0) : Float[b{4}, 6]", "T9: broadcast dim b{4} has an extent other than 1"},
    {"T9 = neg(T0) : Float[4, 6] root[4, 6; drop(1), new(1)]", "T9: logical dims are not derived from the root domain"},
    {"T9 = neg(T1) : Float[2] root[4; inner_split(0, 2), drop(1)]", "T9: 2 of the root domain is in no logical dim"},
    {"T9 = reduce(T0, op=sum) : Float[2, r{2}, 6] root[r{4}, 6; outer_split(0, 2)]",
     "T9: dim 2 is a stored part of a reduced dim; its elements are contributions: mark it p{2}"},
    {"T9 = reduce(T0, op=sum) : Float[p{2}, r{2}, p{3}, r{2}] root[r{4}, r{6}; outer_split(0, 2), outer_split(2, 3)]",
     "T9: 2 dims count contributions, expected one at most"},
    {"T8 = input() : Float[p{4}, 6] contiguity[t, t]\n  T9 = neg(T8) : Float[4, 6]",
     "T8: dim p{4} counts contributions, but is no part of a reduced dim"},
    {"T9 = reshape(T0) : Float[p{24}]", "T9: dim p{24} counts contributions, but is no part of a reduced dim"},
    {"T9 = neg(T0) : Float[p{4}, 6]",
     "T9 = neg: dim 4 of T0 counts no contributions like dim p{4} of the result; expected p{4}"},
    {"T8 = reduce(T0, op=sum) : Float[p{2}, r{2}, 6] root[r{4}, 6; outer_split(0, 2)]\n  T9 = mul(T8, 2.0) : "
     "Float[p{2}, 6]",
     ""},
    {"T8 = reduce(T0, op=sum) : Float[p{2}, r{2}, 6] root[r{4}, 6; outer_split(0, 2)]\n  T9 = neg(T8) : Float[p{2, "
     "max}, 6]",
     "T9 = neg: dim p{2} of T8 counts no contributions like dim p{2, max} of the result; expected p{2, max}"},
    {"T8 = reduce(T0, op=sum) : Float[p{2}, r{2}, 6] root[r{4}, 6; outer_split(0, 2)]\n  T9 = exp(T8) : Float[p{2}, 6]",
     "T9 = exp: dim p{2} of the result counts contributions, which exp does not keep; combine them before it"},
    {"T8 = reduce(T0, op=sum) : Float[p{2}, r{2}, 6] root[r{4}, 6; outer_split(0, 2)]\n  T9 = add(T8, 1.0) : "
     "Float[p{2}, 6]",
     "T9 = add: dim p{2} of the result counts contributions, which add does not keep; combine them before it"},
    {"T8 = reduce(T0, op=max) : Float[p{2, max}, r{2}, 6] root[r{4}, 6; outer_split(0, 2)]\n  T9 = reduce(T8, op=max) "
     ": "
     "Float[r{2}, 6]",
     ""},
    {"T8 = reduce(T0, op=sum) : Float[p{2}, r{2}, 6] root[r{4}, 6; outer_split(0, 2)]\n  T9 = reduce(T8, op=max) : "
     "Float[r{2}, 6]",
     "T9 = reduce: dim p{2} of T8 counts contributions to sum, and is combined by max; expected one op: mark it "
     "p{2, max}"},
    {"T8 = reduce(T0, op=sum) : Float[p{2}, r{2}, 6] root[r{4}, 6; outer_split(0, 2)]\n  T9 = redistribute(T8, op=max, "
     "dim=0) : Float[r{2}, 6]",
     "T9 = redistribute: dim p{2} of T8 counts contributions to sum, and is combined by max"},
};

TEST(Verify, NamesEachViolation) {
  for (const Violation& v : kViolations) {
    const std::string text = fmt::format("fusion {{{}  {}\n  output T9\n}}\n", kInputs, v.lines);
    std::vector<std::string> found;
    ASSERT_NO_THROW(found = verify(*parseFusion(text))) << text;
    if (*v.message == '\0') {
      EXPECT_TRUE(found.empty()) << v.lines << "\n" << found[0];
      continue;
    }
    bool named =
        std::any_of(found.begin(), found.end(), [&](const std::string& f) { return f.starts_with(v.message); });
    std::string list;
    for (const std::string& f : found) {
      list += "  " + f + "\n";
    }
    EXPECT_TRUE(named) << v.lines << "\nexpected " << v.message << "\ngot\n" << list;
  }
}

// An element of an Int input of one dim of constant size is given, one of another tensor is not.
TEST(Verify, SizesMayBeElementsOfAnInput) {
  const auto violations = [](const char* type, const char* size) {
    return verify(*parseFusion(
        fmt::format("fusion {{\n  T0 = input() : {}\n  T1 = full(1.0) : Float[{}]\n  output T1\n}}\n", type, size)));
  };
  EXPECT_TRUE(violations("Int[3]", "T0.2").empty());
  EXPECT_FALSE(violations("Int[3]", "T2.0").empty());
  EXPECT_FALSE(violations("Float[3]", "T0.2").empty());
  EXPECT_FALSE(violations("Int[3, 2]", "T0.2").empty());
}

TEST(Verify, ListsAllViolations) {
  std::unique_ptr<Fusion> f = parseFusion(R"(fusion {
    T0 = input() : Float[4]
    T1 = neg(T0) : Int[4]
    T2 = add(T1, T1) : Int[5]
    output T2
  })");
  EXPECT_EQ(verify(*f), (std::vector<std::string>{"T1 = neg: the result is Int, expected Float",
                                                  "T2 = add: dim 0 of operand 0: extents 4 and 5 differ",
                                                  "T2 = add: dim 0 of operand 1: extents 4 and 5 differ"}));
}

TEST(Verify, SharedDimsAndCycles) {
  Fusion f;
  TensorView* x = f.tensor(DataType::Float, {{4}});
  TensorView* y = f.tensor(DataType::Float, {{4}});
  f.addInput(x);
  TensorView* z = f.tensorFromRoot(DataType::Float, {{4}},
                                   [&](Fusion&, const std::vector<IterDomain*>&) { return x->getLogicalDomain(); });
  f.addExpr(ExprKind::Set, {x}, {z});
  f.addOutput(z);
  std::vector<std::string> found = verify(f);
  EXPECT_TRUE(std::any_of(found.begin(), found.end(),
                          [](const std::string& s) { return s.starts_with("T0 and T2 share a dim"); }));
  Fusion g;
  TensorView* a = g.tensor(DataType::Float, {{4}});
  TensorView* b = g.tensor(DataType::Float, {{4}});
  g.addExpr(ExprKind::Set, {a}, {b});
  g.addExpr(ExprKind::Set, {b}, {a});
  g.addOutput(b);
  ASSERT_EQ(verify(g).size(), 1u);
  EXPECT_NE(verify(g)[0].find("cycle"), std::string::npos);
  (void)y;
}

}  // namespace
}  // namespace meshfuse
