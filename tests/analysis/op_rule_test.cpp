#include "ir/op_rule.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <set>

#include "analysis/id_graph.h"
#include "interpret/interpret.h"
#include "ir/fusion.h"
#include "ir/text.h"
#include "programs/random_fusion.h"

namespace meshfuse {
namespace {

// `Same 0, None | Same, Indexed`: of the result's dims, then of the operand's.
std::string mapText(const Expr& e, int64_t operand) {
  OperandDims dims = dimsRead(e, operand);
  std::string text;
  for (const DimLink& link : dims.ofConsumer) {
    text += text.empty() ? "" : ", ";
    text += name(link.how);
    text += link.producer >= 0 ? " " + std::to_string(link.producer) : "";
    text += link.how == DimRead::Window ? " at " + link.offset.toString() : "";
  }
  text += " |";
  for (const DimRead how : dims.ofProducer) {
    text += " ";
    text += name(how);
  }
  return text;
}

struct Case {
  const char* line;
  std::vector<const char*> maps;  // one an operand
};

const Case kCases[] = {
    {"T9 = set(T0) : Float[4, 6]", {"Same 0, Same 1 | Same Same"}},
    {"T9 = add(T0, T6) : Float[4, 6]", {"Same 0, Same 1 | Same Same", "Stretched 0, Same 1 | Stretched Same"}},
    {"T9 = mul(T0, 2.0) : Float[4, 6]", {"Same 0, Same 1 | Same Same", "None, None |"}},
    {"T9 = broadcast(T1, flags=[t, f]) : Float[b{1}, 4]", {"None, Same 0 | Same"}},
    {"T9 = squeeze(T6, flags=[t, f]) : Float[6]", {"Same 1 | None Same"}},
    {"T9 = expand(T6) : Float[3, 6]", {"Stretched 0, Same 1 | Stretched Same"}},
    {"T9 = permute(T0, order=[1, 0]) : Float[6, 4]", {"Same 0, Same 1 | Same Same"}},
    {"T9 = reshape(T0) : Float[24]", {"Same 0, Same 1 | Same Same"}},
    {"T9 = slice(T0, starts=[1, 0], stops=[3, 6], steps=[1, 2]) : Float[2, 3]", {"Same 0, Same 1 | Same Same"}},
    {"T9 = cat(T0, T6, T0, dim=0) : Float[9, 6]",
     {"Window 0 at 0, Same 1 | Window Same", "Window 0 at 4, Same 1 | Window Same",
      "Window 0 at 5, Same 1 | Window Same"}},
    {"T9 = reduce(T0, op=sum) : Float[r{4}, 6]", {"Reduced 0, Same 1 | Reduced Same"}},
    {"T9 = matmul(T0, T5) : Float[4, 5, r{6}]",
     {"Same 0, None, Reduced 1 | Same Reduced", "None, Same 1, Reduced 0 | Reduced Same"}},
    {"T9 = matmul(T7, T5) : Float[2, 4, 5, r{6}]",
     {"Same 0, Same 1, None, Reduced 2 | Same Same Reduced", "None, None, Same 1, Reduced 0 | Reduced Same"}},
    {"T9 = matmul(T1, T0) : Float[6, r{4}]", {"None, Reduced 0 | Reduced", "Same 1, Reduced 0 | Reduced Same"}},
    {"T9 = linear(T7, T0, T1) : Float[2, 4, 4, r{6}]",
     {"Same 0, Same 1, None, Reduced 2 | Same Same Reduced", "None, None, Same 0, Reduced 1 | Same Reduced",
      "None, None, Same 0, None | Same"}},
    {"T9 = full(1.0) : Float[4]", {"None |"}},
    {"T9 = take_along_axis(T0, T2, dim=1) : Float[4, 6]",
     {"Same 0, None | Same Indexed", "Same 0, Same 1 | Same Same"}},
    {"T9 = gather(T0, T3, dim=1) : Float[3, 2]",
     {"Window 0 at 0, None | Window Indexed", "Same 0, Same 1 | Same Same"}},
    {"T9 = index_select(T0, T4, dim=0) : Float[2, 6]", {"None, Same 1 | Indexed Same", "Same 0, None | Same"}},
    {"T9 = embedding(T2, T5, starts=[0], flags=[f]) : Float[4, 6, 5]",
     {"Same 0, Same 1, None | Same Same", "None, None, Same 1 | Indexed Same"}},
    {"T9 = scatter(T0, T2, T0, dim=1, starts=[0], flags=[f]) : Float[4, 6]",
     {"Same 0, Same 1 | Same Same", "Same 0, None | Same Whole", "Same 0, None | Same Whole"}},
    {"T9 = index_put_accumulate(T0, T4, T8, starts=[0], flags=[f]) : Float[4, 6]",
     {"Same 0, Same 1 | Same Same", "None, None | Whole", "None, Same 1 | Whole Same"}},
    {"T10 = reduce(T0, op=sum) : Float[p{2}, r{2}, 6] root[r{4}, 6; outer_split(0, 2)]\n"
     "T9 = redistribute(T10, op=sum, dim=0) : Float[r{2}, 6]",
     {"Reduced 0, Same 1 | Reduced Same"}},
    {"T9 = communicate(T0, kind=all_gather, mesh=M0, axes=[0]) : Float[2, 4, 6]", {"None, Same 0, Same 1 | Same Same"}},
    {"T9 = communicate(T8, kind=reduce_scatter, mesh=M0, axes=[0], op=sum) : Float[6]", {"Same 1 | Whole Same"}},
    {"T9 = communicate(T8, kind=all_to_all, mesh=M0, axes=[0]) : Float[2, 6]", {"Whole 0, Same 1 | Whole Same"}},
};

TEST(OpRule, TableByKind) {
  for (const Case& c : kCases) {
    std::string text = std::string(R"(fusion {
      mesh M0 {x: 2} [0, 1]
      T0 = input() : Float[4, 6]
      T1 = input() : Float[4]
      T2 = input() : Int[4, 6]
      T3 = input() : Int[3, 2]
      T4 = input() : Int[2]
      T5 = input() : Float[6, 5]
      T6 = input() : Float[b{1}, 6]
      T7 = input() : Float[2, 4, 6]
      T8 = input() : Float[2, 6]
      )") + c.line + "\n  output T9\n}";
    std::unique_ptr<Fusion> f = parseFusion(text);
    ASSERT_TRUE(verify(*f).empty()) << c.line << "\n" << verify(*f)[0];
    const Expr* e = f->outputs()[0]->definition();
    ASSERT_EQ(e->inputs().size(), c.maps.size());
    for (size_t k = 0; k < c.maps.size(); k++) {
      EXPECT_EQ(mapText(*e, static_cast<int64_t>(k)), c.maps[k]) << c.line << ", operand " << k;
    }
  }
}

// -- the rule against the interpreter: one element of an operand changes; which elements of the result do? ------------------------

using Index = std::vector<int64_t>;

// Programs of one op with random extents.
class Instance {
 public:
  Instance(int64_t form, uint64_t seed) : random_(seed) { make(form); }

  static constexpr int64_t kForms = 40;
  std::unique_ptr<Fusion> fusion;
  const Expr* e = nullptr;

  int64_t pick(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }

  // Data operands get integers other than 0. An index operand gets legal indices, below `rows`.
  double value(const Val* input, bool isIndex) {
    if (isIndex) {
      return static_cast<double>(pick(0, rows_ - 1));
    }
    return input->dtype() == DataType::Bool ? static_cast<double>(pick(0, 1))
                                            : static_cast<double>(pick(1, 8) * (pick(0, 1) == 0 ? 1 : -1));
  }
  bool isIndex(size_t operand) const { return static_cast<int64_t>(operand) == indexOf(*e); }

 private:
  void make(int64_t form) {
    const int64_t a = pick(2, 4);
    const int64_t b = pick(2, 4);
    const int64_t c = pick(2, 4);
    const int64_t d = pick(2, 4);
    rows_ = b;
    const std::string forms[kForms] = {
        fmt::format("T0 = input() : Float[{0}, {1}] | T9 = set(T0) : Float[{0}, {1}]", a, b),
        fmt::format("T0 = input() : Float[{0}, {1}] | T9 = segment_set(T0) : Float[{0}, {1}]", a, b),
        fmt::format("T0 = input() : Float[{0}, {1}] | T9 = cast(T0) : Double[{0}, {1}]", a, b),
        fmt::format("T0 = input() : Float[{0}, {1}] | T9 = bit_cast(T0) : Int32[{0}, {1}]", a, b),
        fmt::format("T0 = input() : Float[{0}, {1}] | T9 = neg(T0) : Float[{0}, {1}]", a, b),
        fmt::format("T0 = input() : Float[{0}, {1}] | T9 = mul(T0, 3.0) : Float[{0}, {1}]", a, b),
        fmt::format("T0 = input() : Float[{0}, {1}] | T9 = add(T0, 3.0) : Float[{0}, {1}]", a, b),
        fmt::format(
            "T0 = input() : Float[{0}, {1}] T1 = input() : Float[b{{1}}, {1}] | T9 = add(T0, T1) : Float[{0}, {1}]", a,
            b),
        fmt::format(
            "T0 = input() : Float[{0}, {1}] T1 = input() : Float[{0}, {1}] | T9 = sub(T0, T1) : Float[{0}, {1}]", a, b),
        fmt::format(
            "T0 = input() : Float[{0}, {1}] T1 = input() : Float[{0}, {1}] | T9 = mul(T0, T1) : Float[{0}, {1}]", a, b),
        fmt::format(
            "T0 = input() : Float[{0}, {1}] T1 = input() : Float[{0}, b{{1}}] | T9 = div(T0, T1) : Float[{0}, {1}]", a,
            b),
        fmt::format("T0 = input() : Float[{0}, {1}] | T9 = broadcast(T0, flags=[f, t, f]) : Float[{0}, b{{1}}, {1}]", a,
                    b),
        fmt::format("T0 = input() : Float[{0}, b{{1}}, {1}] | T9 = squeeze(T0, flags=[f, t, f]) : Float[{0}, {1}]", a,
                    b),
        fmt::format("T0 = input() : Float[{0}, b{{1}}] | T9 = expand(T0) : Float[{0}, {1}]", a, b),
        fmt::format("T0 = input() : Float[{0}, {1}, {2}] | T9 = permute(T0, order=[2, 0, 1]) : Float[{2}, {0}, {1}]", a,
                    b, c),
        fmt::format("T0 = input() : Float[{0}, {1}, {2}] | T9 = reshape(T0) : Float[{0}, {3}]", a, b, c, b * c),
        fmt::format("T0 = input() : Float[{3}, {2}] | T9 = reshape(T0) : Float[{0}, {1}, {2}]", a, b, c, a * b),
        fmt::format("T0 = input() : Float[{0}, 7] | T9 = slice(T0, starts=[0, 1], stops=[{0}, 6], steps=[1, 2]) : "
                    "Float[{0}, 3]",
                    a),
        fmt::format(
            "T0 = input() : Float[{0}, {1}] | T9 = pad(T0, 1.0, starts=[0, {2}], stops=[0, 1]) : Float[{0}, {3}]", a, b,
            c, b + c + 1),
        fmt::format("T0 = input() : Float[{0}, {1}] T1 = input() : Float[{2}, {1}] T2 = input() : Float[{3}, {1}] | T9 "
                    "= cat(T0, T1, T2, dim=0) : Float[{4}, {1}]",
                    a, b, c, d, a + c + d),
        fmt::format("T0 = input() : Float[{0}, {1}, {2}] | T9 = reduce(T0, op=sum) : Float[{0}, r{{{1}}}, {2}]", a, b,
                    c),
        fmt::format("T0 = input() : Float[{0}, {1}] | T9 = reduce(T0, op=max) : Float[r{{{0}}}, {1}]", a, b),
        fmt::format("T0 = input() : Float[{0}, {1}] T1 = input() : Float[{1}, {2}] | T9 = matmul(T0, T1) : Float[{0}, "
                    "{2}, r{{{1}}}]",
                    a, b, c),
        fmt::format("T0 = input() : Float[{3}, {0}, {1}] T1 = input() : Float[{1}, {2}] | T9 = matmul(T0, T1) : "
                    "Float[{3}, {0}, {2}, r{{{1}}}]",
                    a, b, c, d),
        fmt::format("T0 = input() : Float[{1}] T1 = input() : Float[{3}, {1}, {2}] | T9 = matmul(T0, T1) : Float[{3}, "
                    "{2}, r{{{1}}}]",
                    a, b, c, d),
        fmt::format("T0 = input() : Float[{3}, {0}, {1}] T1 = input() : Float[b{{1}}, {1}, {2}] | T9 = matmul(T0, T1) "
                    ": Float[{3}, {0}, {2}, r{{{1}}}]",
                    a, b, c, d),
        fmt::format("T0 = input() : Float[{3}, {0}, {1}] T1 = input() : Float[{2}, {1}] T2 = input() : Float[{2}] | T9 "
                    "= linear(T0, T1, T2) : Float[{3}, {0}, {2}, r{{{1}}}]",
                    a, b, c, d),
        fmt::format(
            "T0 = input() : Float[{0}, {1}] T1 = input() : Float[{1}] | T9 = linear(T0, T1) : Float[{0}, r{{{1}}}]", a,
            b),
        fmt::format("| T9 = full(2.0) : Float[{0}, {1}]", a, b),
        fmt::format("| T9 = iota(1, 2, starts=[0]) : Int[{0}]", a),
        fmt::format("| T9 = eye(starts=[0, 0]) : Float[{0}, {1}]", a, b),
        fmt::format("T0 = input() : Float[{0}, {1}] T1 = input() : Int[{0}, {2}] | T9 = take_along_axis(T0, T1, dim=1) "
                    ": Float[{0}, {2}]",
                    a, b, c),
        fmt::format("T0 = input() : Float[{3}, {1}] T1 = input() : Int[{0}, {2}] | T9 = gather(T0, T1, dim=1) : "
                    "Float[{0}, {2}]",
                    a, b, c, a + 1),
        fmt::format("T0 = input() : Float[{0}, {1}, {2}] T1 = input() : Int[{3}] | T9 = index_select(T0, T1, dim=1) : "
                    "Float[{0}, {3}, {2}]",
                    a, b, c, d),
        fmt::format("T0 = input() : Int[{0}, {2}] T1 = input() : Float[{1}, {3}] | T9 = embedding(T0, T1, starts=[0], "
                    "flags=[f]) : Float[{0}, {2}, {3}]",
                    a, b, c, d),
        fmt::format("T0 = input() : Float[{0}, {1}, {2}] | T9 = scan(T0, op=sum, dim=1) : Float[{0}, {1}, {2}]", a, b,
                    c),
        fmt::format("T0 = input() : Float[{0}, {1}] | T9 = argsort(T0, dim=0, flags=[f]) : Int[{0}, {1}]", a, b),
        fmt::format(
            "T0 = input() : Float[{0}, {1}, {2}] T1 = input() : Int[{0}, {3}, {2}] T2 = input() : Float[{0}, {3}, "
            "{2}] | T9 = scatter(T0, T1, T2, dim=1, starts=[0], flags=[f]) : Float[{0}, {1}, {2}]",
            a, b, c, d),
        fmt::format("T0 = input() : Float[{1}, {2}] T1 = input() : Int[{0}, {3}] T2 = input() : Float[{0}, {3}, {2}] | "
                    "T9 = index_put_accumulate(T0, T1, T2, starts=[0], flags=[f]) : Float[{1}, {2}]",
                    a, b, c, d),
        // each contribution is one element of the input
        fmt::format("T0 = input() : Float[{0}, {1}] | "
                    "T1 = reduce(T0, op=sum) : Float[p{{{0}}}, r{{1}}, {1}] root[r{{{0}}}, {1}; outer_split(0, {0})]\n"
                    "T9 = redistribute(T1, op=sum, dim=0) : Float[r{{{0}}}, {1}]",
                    a, b),
    };
    const std::string& text = forms[form];
    fusion = parseFusion("fusion {\n" + text.substr(0, text.find('|')) + "\n" + text.substr(text.find('|') + 1) +
                         "\n  output T9\n}");
    e = fusion->outputs()[0]->definition();
  }

  std::mt19937_64 random_;
  int64_t rows_ = 1;
};

std::vector<std::vector<double>> randomOperands(Instance& instance) {
  std::vector<std::vector<double>> operands;
  for (size_t k = 0; k < instance.e->inputs().size(); k++) {
    operands.emplace_back();
    if (instance.e->inputs()[k]->isTensor()) {
      int64_t count = 1;
      for (const int64_t n : instance.e->inputs()[k]->asTensor()->constantShape()) {
        count *= n;
      }
      for (int64_t i = 0; i < count; i++) {
        operands.back().push_back(instance.value(instance.e->inputs()[k], instance.isIndex(k)));
      }
    }
  }
  return operands;
}

std::vector<double> resultOf(const Instance& instance, const std::vector<std::vector<double>>& operands) {
  std::vector<Argument> arguments;
  for (size_t k = 0; k < operands.size(); k++) {
    const Val* v = instance.e->inputs()[k];
    if (v->isTensor()) {
      arguments.emplace_back(Tensor::of(operands[k], v->asTensor()->constantShape(), v->dtype()));
    }
  }
  return interpret(*instance.fusion, arguments)[0].toVector();
}

Index unflatten(int64_t flat, const Index& sizes) {
  Index index(sizes.size());
  for (size_t k = sizes.size(); k-- > 0;) {
    index[k] = flat % sizes[k];
    flat /= sizes[k];
  }
  return index;
}

// Where an element of the result stands in its root dims that are stored; of a slice or pad in the dims of its operand.
Index rootIndex(const Expr& e, int64_t flat) {
  const TensorView* out = e.tensorOutput();
  const ExprAttributes& a = e.attributes();
  Index at = unflatten(flat, out->constantShape());
  Index root(out->getRootDomain().size(), -1);
  if (e.kind() == ExprKind::Reshape) {
    return unflatten(flat, e.tensorInputs()[0]->constantShape());
  }
  for (size_t k = 0, stored = 0; k < root.size(); k++) {
    if (e.kind() == ExprKind::Permute) {
      root[a.order[k]] = at[k];
    } else if (!out->getRootDomain()[k]->isReduction()) {
      root[k] = at[stored++];
    }
    if (e.kind() == ExprKind::Slice) {
      root[k] = a.starts[k].constValue() + root[k] * a.steps[k].constValue();
    } else if (e.kind() == ExprKind::Pad) {
      root[k] -= a.starts[k].constValue();
    }
  }
  return root;
}

struct Dependences {
  std::set<std::pair<int64_t, int64_t>> pairs;  // (element of the operand, element of the result)
};

// Who depends on operand number k, over several sets of values.
std::vector<Dependences> dependences(Instance& instance) {
  std::vector<Dependences> all(instance.e->inputs().size());
  for (int64_t trial = 0; trial < 12; trial++) {
    const std::vector<std::vector<double>> values = randomOperands(instance);
    const std::vector<double> before = resultOf(instance, values);
    for (size_t k = 0; k < values.size(); k++) {
      for (size_t i = 0; i < values[k].size(); i++) {
        std::vector<std::vector<double>> changed = values;
        while (changed[k][i] == values[k][i]) {
          changed[k][i] = instance.value(instance.e->inputs()[k], instance.isIndex(k));
        }
        const std::vector<double> after = resultOf(instance, changed);
        for (size_t j = 0; j < after.size(); j++) {
          if (after[j] != before[j]) {
            all[k].pairs.emplace(i, j);
          }
        }
      }
    }
  }
  return all;
}

// Position along a root dim less position along the operand's dim, if that is the same for all that depend on each other.
std::optional<int64_t> difference(const Expr& e, size_t operand, const Dependences& found, size_t dim, size_t root) {
  std::optional<int64_t> difference;
  const Index sizes = e.input(static_cast<int64_t>(operand))->asTensor()->constantShape();
  for (const auto& [from, to] : found.pairs) {
    const int64_t d = rootIndex(e, to)[root] - unflatten(from, sizes)[dim];
    if (difference.value_or(d) != d) {
      return std::nullopt;
    }
    difference = d;
  }
  return difference;
}

TEST(OpRule, FactorsAreTheDependencesOfTheInterpreter) {
  std::set<ExprKind> seen;
  for (int64_t form = 0; form < Instance::kForms; form++) {
    for (uint64_t seed = 0; seed < 3; seed++) {
      Instance instance(form, seed);
      const Expr& e = *instance.e;
      seen.insert(e.kind());
      ASSERT_TRUE(verify(*instance.fusion).empty()) << instance.fusion->toString() << verify(*instance.fusion)[0];
      const std::vector<Dependences> found = dependences(instance);
      const std::vector<Factor> all = factors(e);
      const std::vector<IterDomain*>& root = e.tensorOutput()->getRootDomain();
      for (size_t operand = 0; operand < found.size(); operand++) {
        if (!e.inputs()[operand]->isTensor()) {
          continue;
        }
        const OperandDims dims = dimsRead(e, static_cast<int64_t>(operand));
        const Index sizes = e.inputs()[operand]->asTensor()->constantShape();
        for (size_t dim = 0; dim < sizes.size(); dim++) {
          if (sizes[dim] == 1) {
            continue;
          }
          const auto factor =
              std::ranges::find(all, static_cast<int64_t>(dim), [&](const Factor& f) { return f.operands[operand]; });
          ASSERT_NE(factor, all.end()) << e.opName() << ", dim " << dim << " of operand " << operand;
          bool moves = false;
          for (size_t k = 0; k < root.size(); k++) {
            if (root[k]->isReduction()) {
              continue;
            }
            const std::optional<int64_t> by = difference(e, operand, found[operand], dim, k);
            const bool together = factor->result == static_cast<int64_t>(k) &&
                                  (factor->kind == FactorKind::Parallel || factor->kind == FactorKind::Window);
            ASSERT_EQ(by.has_value(), together)
                << "dim " << dim << " of operand " << operand << " and dim " << k << " of\n"
                << instance.fusion->toString();
            ASSERT_TRUE(!by || (isWindow(e) ? *by == 0 : IntExpr(*by) == dims.ofConsumer[k].offset))
                << "dim " << dim << " of operand " << operand << " by " << *by << " in\n"
                << instance.fusion->toString();
            moves |= together;
          }
          const bool reduced = factor->result >= 0 && root[factor->result]->isReduction();
          EXPECT_EQ(factor->kind == FactorKind::Summed, reduced) << instance.fusion->toString();
          EXPECT_EQ(factor->kind == FactorKind::Indexed, !moves && isIndexing(e));
          EXPECT_EQ(factor->kind == FactorKind::Whole, !moves && !reduced && !isIndexing(e));
        }
      }
    }
  }
  // All but a collective, which no program of one rank computes, and what has no operands but scalars.
  EXPECT_EQ(seen.size() + 2, static_cast<size_t>(ExprKind::Communicate) + 1);
}

TEST(OpRule, IsLinearWhereSumsOfOperandsGiveSumsOfResults) {
  for (int64_t form = 0; form < Instance::kForms; form++) {
    Instance instance(form, 7);
    const Expr& e = *instance.e;
    for (int64_t subset = 1; subset < 1 << e.inputs().size(); subset++) {
      std::vector<int64_t> operands;
      bool data = true;  // no scalar, no index
      for (size_t k = 0; k < e.inputs().size(); k++) {
        if ((subset >> k & 1) != 0) {
          operands.push_back(static_cast<int64_t>(k));
          data = data && e.inputs()[k]->isTensor() && !instance.isIndex(k);
        }
      }
      if (!data) {
        continue;
      }
      bool linear = true;
      for (int64_t trial = 0; trial < 8; trial++) {
        const std::vector<std::vector<double>> a = randomOperands(instance);
        std::vector<std::vector<double>> b = a;
        std::vector<std::vector<double>> sum = a;
        const std::vector<std::vector<double>> other = randomOperands(instance);
        for (const int64_t k : operands) {
          b[k] = other[k];
          for (size_t i = 0; i < other[k].size(); i++) {
            sum[k][i] += other[k][i];
          }
        }
        const std::vector<double> ofA = resultOf(instance, a);
        const std::vector<double> ofB = resultOf(instance, b);
        const std::vector<double> ofSum = resultOf(instance, sum);
        for (size_t j = 0; j < ofSum.size(); j++) {
          linear = linear && std::abs(ofSum[j] - ofA[j] - ofB[j]) < 1e-4;
        }
      }
      EXPECT_EQ(isLinearIn(e, operands), linear) << "operands " << subset << " of\n" << instance.fusion->toString();
    }
  }
}

TEST(OpRule, LinkedDimsHaveFittingExtents) {
  for (uint64_t seed = 0; seed < 150; seed++) {
    std::unique_ptr<Fusion> f = randomFusion(seed, {.transforms = false});
    for (const Expr* e : f->exprs()) {
      for (const IdLink& link : idLinks(*e)) {
        bool equal = link.producer->extent() == link.consumer->extent();
        bool shorter = provenLessEqual(link.producer->extent() + link.offset, link.consumer->extent());
        ASSERT_TRUE(link.how == DimRead::Stretched ? link.producer->isBroadcast()
                    : link.how == DimRead::Whole   ? provenLessEqual(link.consumer->extent(), link.producer->extent())
                    : link.how == DimRead::Window
                        ? shorter || provenLessEqual(link.consumer->extent(), link.producer->extent())
                        : equal || link.producer->isBroadcast())
            << e->opName() << " in\n"
            << f->toString();
      }
    }
  }
}

}  // namespace
}  // namespace meshfuse
