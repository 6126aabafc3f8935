// Sums of rows and of columns in one program, compiled: against the interpreter.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/ranges.h"
#include "exec/explain.h"
#include "fuzz/random.h"
#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "stress/checked_cache.h"

namespace meshfuse {
namespace {

using Tensors = std::vector<TensorView*>;
using BuildOutputs = std::function<Tensors(const Tensors&)>;

bool isReduction(const ExplainedStep& step) { return contains(step.ops, "reduce"); }

int64_t reductionKernels(CheckedCache& checked) {
  return std::ranges::count_if(checked.cache().explain().steps, isReduction);
}

TEST(RowsAndColumns, FormsOfPrograms) {
  struct Form {
    const char* name;
    std::vector<std::vector<int64_t>> shapes;
    int64_t kernels;  // that reduce
    BuildOutputs build;
  };
  const std::vector<std::vector<int64_t>> ofARow = {{300, 200}, {200}};
  const std::vector<Form> forms = {
      {"times the sum of one row", ofARow, 2,
       [](const auto& t) -> Tensors { return {mul(sum(mul(t[0], t[1]), {0}), sum(mul(t[1], t[1]), {0}))}; }},
      {"divided by the norm of one row", ofARow, 2,
       [](const auto& t) -> Tensors { return {div(sum(mul(t[0], t[1]), {0}), sqrt(sum(mul(t[1], t[1]), {0})))}; }},
      {"times one row of shares", ofARow, 2,
       [](const auto& t) -> Tensors {
         TensorView* p = div(exp(t[1]), sum(exp(t[1]), {0}));
         return {mul(sum(mul(t[0], p), {0}), p)};
       }},
      {"late columns beside an early output",
       {{300, 200}},
       1,
       [](const auto& t) -> Tensors {
         TensorView* centered = sub(t[0], max(t[0], {1}, true));
         return {add(t[0], 1.0), sum(div(centered, sum(mul(centered, centered), {1}, true)), {0})};
       }},
      {"rows and columns of a square",
       {{300, 300}},
       2,
       [](const auto& t) -> Tensors { return {add(sum(t[0], {1}), sum(t[0], {0}))}; }},
      {"a sum of sums of rows",
       {{300, 200}},
       3,
       [](const auto& t) -> Tensors { return {add(sum(t[0], {0}), sum(sum(t[0], {1}), {0}))}; }},
  };
  for (const Form& form : forms) {
    SCOPED_TRACE(form.name);
    CheckedCache checked([&](Fusion& f) {
      for (TensorView* out : form.build(mapped(form.shapes, [&](const auto& shape) { return input(f, shape); }))) {
        f.addOutput(out);
      }
    });
    EXPECT_EQ(checked.call(mapped<Argument>(form.shapes, [](const auto& shape) { return random(shape); })), "");
    EXPECT_EQ(reductionKernels(checked), form.kernels);
  }
}

// So many that they occupy every GPU, whose blocks then sum the columns of their rows too.
TEST(RowsAndColumns, ManyRowsAreOneKernel) {
  constexpr int64_t kRows = 4800;
  constexpr int64_t kColumns = 132;
  const std::vector<std::vector<int64_t>> shapes = {
      {kRows, kColumns}, {kRows, kColumns}, {kRows, 1}, {kRows, 1}, {kColumns}};
  CheckedCache checked([&](Fusion& f) {
    const Tensors t = mapped(shapes, [&](const auto& shape) { return input(f, shape); });
    const BackwardNormResult g = layer_norm_backward(t[0], t[1], {kColumns}, t[2], t[3], t[4], t[4]);
    for (TensorView* out : {g.grad_input, g.grad_weight, g.grad_bias, max(t[1], {0})}) {
      f.addOutput(out);
    }
  });
  for (int64_t call = 0; call < 2; call++) {
    EXPECT_EQ(checked.call(mapped<Argument>(shapes, [&](const auto& shape) { return random(shape, call); })), "");
  }
  EXPECT_EQ(reductionKernels(checked), 1);
}

// The first call has constant sizes in its plan. The next sizes share a plan with symbols: it must be right also for few rows and columns.
TEST(RowsAndColumns, SizesThatVary) {
  const auto build = [](Fusion& f) {
    TensorView* x = makeContigTensor(2);
    f.addInput(x);
    f.addOutput(sum(x, {1}));
    f.addOutput(sum(x, {0}));
  };
  std::vector<std::vector<Argument>> calls;
  for (const auto& [m, n] : std::vector<std::pair<int64_t, int64_t>>{{300, 200}, {301, 203}, {2, 20'001}, {9000, 3}}) {
    calls.push_back({random({m, n})});
  }
  expectAgrees(build, calls);
}

TEST(RowsAndColumns, NanAndInfinityInTheLargest) {
  Tensor x = random({300, 200});
  x.set(std::vector<int64_t>{299, 0}, kNan);
  x.set(std::vector<int64_t>{7, 199}, kInf);
  for (int64_t row = 0; row < 300; row++) {
    x.set(std::vector<int64_t>{row, 5}, -kInf);
  }
  const auto build = [](Fusion& f) {
    TensorView* in = input(f, {300, 200});
    for (int64_t dim : {0, 1}) {
      f.addOutput(max(in, {dim}));
      f.addOutput(min(in, {dim}));
    }
  };
  expectAgrees(build, {{x}});
}

// A result of columns is written into an input that rows are computed from.
TEST(RowsAndColumns, UpdateInPlace) {
  CheckedCache checked([](Fusion& f) {
    TensorView* x = input(f, {300, 200});
    TensorView* w = input(f, {200});
    f.addOutput(mul(mul(x, w), sum(mul(x, w), {1}, true)));
    TensorView* next = sub(w, mul(sum(x, {0}), 0.125));
    f.addOutput(next);
    f.aliasOutputToInput(next, w);
    f.addOutput(mul(w, sum(mul(x, x), {0})));
  });
  const Tensor w = random({200});
  EXPECT_EQ(checked.call({random({300, 200}), w}), "");
  EXPECT_EQ(checked.results()[1].data(), w.data());
}

// Ops between sums of rows and of columns, of elements at most 2.
Tensors randomProgram(fuzz::Random& r, Fusion& f, int64_t m, int64_t n) {
  Tensors items = {input(f, {m, n}), input(f, {m, n}), input(f, {m, 1}), input(f, {1, n})};
  const size_t inputs = items.size();
  const auto unary = [&](TensorView* x) -> TensorView* {
    switch (r.below(6)) {
      case 0:
        return tanh(x);
      case 1:
        return mul(exp(x), 0.25);
      case 2:
        return neg(x);
      case 3:
        return castOp(DataType::Float, castOp(DataType::BFloat16, x));
      case 4:
        return div(x, add(abs(x), 1.0));
      default:
        return relu(x);
    }
  };
  const auto binary = [&](TensorView* a, TensorView* b) -> TensorView* {
    switch (r.below(4)) {
      case 0:
        return mul(mul(a, b), 0.5);
      case 1:
        return mul(sub(a, b), 0.5);
      case 2:
        return maximum(a, b);
      default:
        return mul(add(a, b), 0.5);
    }
  };
  const auto reduced = [&](TensorView* x, int64_t dim) -> TensorView* {
    switch (r.below(4)) {
      case 0:
        return max(x, {dim}, true);
      case 1:
        return min(x, {dim}, true);
      default:
        return mul(sum(x, {dim}, true), 1.0 / static_cast<double>(dim == 0 ? m : n));
    }
  };
  for (int64_t ops = r.between(5, 12); ops > 0; ops--) {
    TensorView* x = r.of(items);
    const int64_t kind = r.below(3);
    items.push_back(kind == 0 ? unary(x) : kind == 1 ? binary(x, r.of(items)) : reduced(x, r.below(2)));
  }
  TensorView* other = r.of(items);
  TensorView* ofAllDims = binary(items.back(), items[0]);
  TensorView* whole = binary(ofAllDims, other);
  TensorView* column = reduced(whole, 0);
  append(items, Tensors{whole, column, reduced(whole, 1)});
  other = r.of(items);
  items.push_back(binary(unary(column), other));
  Tensors outputs = {items.back(), items[items.size() - 2]};
  for (size_t i = inputs; i + 2 < items.size(); i++) {
    if (r.chance(30)) {
      outputs.push_back(items[i]);
    }
  }
  return outputs;
}

// Some kernel reduces [m, n] along both dims.
bool reducesBoth(CheckedCache& checked, int64_t m, int64_t n) {
  return std::ranges::any_of(checked.cache().explain().steps, [&](const ExplainedStep& step) {
    const std::string text = joined(step.text, "\n");
    return text.find(fmt::format("[r{{{}}}, {}]", m, n)) != std::string::npos &&
           text.find(fmt::format("[{}, r{{{}}}]", m, n)) != std::string::npos;
  });
}

TEST(RowsAndColumns, RandomPrograms) {
  int64_t together = 0;
  for (uint64_t seed = 1; seed <= 15; seed++) {
    SCOPED_TRACE(seed);
    fuzz::Random r(seed);
    const int64_t m = r.between(256, 400);
    const int64_t n = r.between(129, 300);
    CheckedCache checked([&](Fusion& f) {
      for (TensorView* out : randomProgram(r, f, m, n)) {
        f.addOutput(out);
      }
    });
    EXPECT_EQ(checked.call({random({m, n}, 1), random({m, n}, 2), random({m, 1}, 3), random({1, n}, 4)}), "")
        << checked.cache().fusion().toString();
    together += reducesBoth(checked, m, n) ? 1 : 0;
  }
  EXPECT_GT(together, 10);
}

}  // namespace
}  // namespace meshfuse
