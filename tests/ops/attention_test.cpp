#include "ops/attention.h"

#include <cmath>

#include "base/error.h"
#include "ops/built.h"

namespace meshfuse {
namespace {

struct Shape {
  int64_t batch, heads, groups, rows, columns, features, width;
};

using Score = std::function<double(int64_t b, int64_t h, int64_t i, int64_t j, double score)>;

struct Reference {
  std::vector<double> output;
  std::vector<double> logSum;
};

// Row by row; `change` makes of a scaled score what counts.
Reference reference(const Shape& s, const Tensor& q, const Tensor& k, const Tensor& v, double scale,
                    const Score& change) {
  Reference r;
  for (int64_t b = 0; b < s.batch; b++) {
    for (int64_t h = 0; h < s.heads; h++) {
      const int64_t g = h / (s.heads / s.groups);
      for (int64_t i = 0; i < s.rows; i++) {
        std::vector<double> e;
        double total = 0;
        for (int64_t j = 0; j < s.columns; j++) {
          double dot = 0;
          for (int64_t f = 0; f < s.features; f++) {
            dot += q.at({b, h, i, f}) * k.at({b, g, j, f});
          }
          e.push_back(std::exp(change(b, h, i, j, dot * scale)));
          total += e.back();
        }
        r.logSum.push_back(std::log(total));
        for (int64_t w = 0; w < s.width; w++) {
          double mixed = 0;
          for (int64_t j = 0; j < s.columns && total > 0; j++) {
            mixed += e[j] / total * v.at({b, g, j, w});
          }
          r.output.push_back(mixed);
        }
      }
    }
  }
  return r;
}

std::vector<Tensor> operands(const Shape& s, DataType type = DataType::Double) {
  return {randomTensor({s.batch, s.heads, s.rows, s.features}, type, 1, -2, 2),
          randomTensor({s.batch, s.groups, s.columns, s.features}, type, 2, -2, 2),
          randomTensor({s.batch, s.groups, s.columns, s.width}, type, 3, -2, 2)};
}

void expectAttention(const Shape& s, const std::vector<Tensor>& tensors,
                     const std::function<SdpfaFwdResult(const Views&)>& attend, double scale, const Score& change,
                     double tolerance = 1e-12) {
  // extents of heads decide about groups, so those are constants
  const std::vector<Tensor> got = runAs(Extents::Concrete, tensors, [&](const Views& x) {
    const SdpfaFwdResult r = attend(x);
    return Views{r.output, r.log_sumexp};
  });
  const Reference expected = reference(s, tensors[0], tensors[1], tensors[2], scale, change);
  EXPECT_EQ(sizesOf(got[0]), (std::vector<int64_t>{s.batch, s.heads, s.rows, s.width}));
  EXPECT_EQ(sizesOf(got[1]), (std::vector<int64_t>{s.batch, s.heads, s.rows}));
  EXPECT_EQ(got[0].dtype(), tensors[0].dtype());
  expectNear(got[0], expected.output, tolerance);
  expectNear(got[1], expected.logSum, tolerance);
}

double unchanged(int64_t, int64_t, int64_t, int64_t, double score) { return score; }
double causal(int64_t, int64_t, int64_t i, int64_t j, double score) { return j <= i ? score : -kInf; }

constexpr Shape kPlain{2, 3, 3, 4, 5, 2, 3};
constexpr Shape kGrouped{2, 6, 2, 4, 5, 2, 3};

TEST(Attention, IsSoftmaxBetweenTwoProducts) {
  for (const Shape& s : {kPlain, kGrouped, Shape{1, 4, 2, 1, 1, 1, 1}, Shape{1, 4, 1, 3, 2, 2, 2}}) {
    expectAttention(
        s, operands(s), [](const Views& x) { return sdpfa_fwd(x[0], x[1], x[2]); },
        1 / std::sqrt(static_cast<double>(s.features)), unchanged);
    expectAttention(
        s, operands(s), [](const Views& x) { return sdpfa_fwd(x[0], x[1], x[2], 0.0, true, 0.25); }, 0.25, causal);
  }
}

TEST(Attention, OfSixteenBitsAndFloatIsComputedInFloat) {
  for (DataType type : {DataType::Float, DataType::Half, DataType::BFloat16}) {
    const double tolerance = type == DataType::Float ? 1e-5 : type == DataType::Half ? 0.01 : 0.1;
    expectAttention(
        kPlain, operands(kPlain, type), [](const Views& x) { return sdpfa_fwd(x[0], x[1], x[2]); }, 1 / std::sqrt(2.0),
        unchanged, tolerance);
  }
}

TEST(Attention, SymbolicSizesAndScalarsOfTheCall) {
  for (bool causalOne : {false, true}) {
    Fusion fusion;
    FusionGuard guard(&fusion);
    Views x;
    for (int k = 0; k < 3; k++) {
      x.push_back(makeContigTensor(4, DataType::Double));
      fusion.addInput(x.back());
    }
    Val* flag = IrBuilder::create<Val>(DataType::Bool);
    Val* drop = IrBuilder::create<Val>(DataType::Double);
    fusion.addInput(flag);
    fusion.addInput(drop);
    const SdpfaFwdResult r = sdpfa_fwd(x[0], x[1], x[2], drop, flag);
    fusion.addOutput(r.output);
    EXPECT_EQ(verify(fusion), std::vector<std::string>());
    const std::vector<Tensor> in = operands(kPlain);
    const std::vector<Tensor> got = interpret(fusion, std::vector<Argument>{in[0], in[1], in[2], causalOne, 0.0});
    expectNear(got[0],
               reference(kPlain, in[0], in[1], in[2], 1 / std::sqrt(2.0), causalOne ? causal : unchanged).output,
               1e-12);
  }
}

// A bias for each head, and one for each column alone.
TEST(Attention, BiasStretchesToTheScores) {
  for (const Shape& s : {kPlain, kGrouped}) {
    std::vector<Tensor> in = operands(s);
    in.push_back(randomTensor({s.heads, s.rows, s.columns}, DataType::Double, 4, -3, 3));
    expectAttention(
        s, in, [](const Views& x) { return sdpfa_fwd(x[0], x[1], x[2], x[3], nullptr); }, 1 / std::sqrt(2.0),
        [&](int64_t, int64_t h, int64_t i, int64_t j, double score) {
          return score + in[3].at({h, i, j});
        });
    in[3] = randomTensor({s.columns}, DataType::Double, 4, -3, 3);
    expectAttention(
        s, in, [](const Views& x) { return sdpfa_fwd(x[0], x[1], x[2], x[3], nullptr); }, 1 / std::sqrt(2.0),
        [&](int64_t, int64_t, int64_t, int64_t j, double score) { return score + in[3].at({j}); });
  }
}

TEST(Attention, RowsWithoutAnythingAreZerosNotNan) {
  for (const Shape& s : {kPlain, kGrouped}) {
    for (bool alsoCausal : {false, true}) {
      std::vector<Tensor> in = operands(s);
      in.push_back(Tensor::zeros({s.batch, 1, s.rows, s.columns}, DataType::Bool));
      for (int64_t i = 0; i < s.rows - 1; i++) {  // nothing of the last row of the first batch
        in[3].set(std::vector<int64_t>{0, 0, i, (2 * i) % s.columns}, 1);
        in[3].set(std::vector<int64_t>{1, 0, i, 0}, 1);
      }
      const auto seen = [&](int64_t b, int64_t, int64_t i, int64_t j, double score) {
        return in[3].at({b, 0, i, j}) != 0 && (!alsoCausal || j <= i) ? score : -kInf;
      };
      expectAttention(
          s, in, [=](const Views& x) { return sdpfa_fwd(x[0], x[1], x[2], nullptr, x[3], 0.0, alsoCausal); },
          1 / std::sqrt(2.0), seen);
    }
  }
}

TEST(Attention, OfNoColumnsIsZero) {
  const Shape none{1, 2, 2, 3, 0, 2, 3};
  expectAttention(
      none, operands(none), [](const Views& x) { return sdpfa_fwd(x[0], x[1], x[2]); }, 1, unchanged);
}

// What the mask keeps is divided by 0.75, what it drops is not there.
TEST(Attention, DropoutActsBetweenSoftmaxAndProduct) {
  for (const Shape& s : {kPlain, kGrouped}) {
    const std::vector<Tensor> in = operands(s);
    const std::vector<Tensor> got = runAs(Extents::Concrete, in, [](const Views& x) {
      const SdpfaFwdResult r = sdpfa_fwd(x[0], x[1], x[2], 0.25);
      return Views{r.output, r.dropout_mask};
    });
    const std::vector<double> kept = got[1].toVector();
    ASSERT_EQ(std::ssize(kept), s.batch * s.heads * s.rows * s.columns);
    double total = 0;
    std::vector<double> expected;
    for (int64_t b = 0; b < s.batch; b++) {
      for (int64_t h = 0; h < s.heads; h++) {
        const int64_t g = h / (s.heads / s.groups);
        for (int64_t i = 0; i < s.rows; i++) {
          std::vector<double> e;
          double sumOfRow = 0;
          for (int64_t j = 0; j < s.columns; j++) {
            double dot = 0;
            for (int64_t f = 0; f < s.features; f++) {
              dot += in[0].at({b, h, i, f}) * in[1].at({b, g, j, f});
            }
            e.push_back(std::exp(dot / std::sqrt(2.0)));
            sumOfRow += e.back();
          }
          for (int64_t w = 0; w < s.width; w++) {
            double mixed = 0;
            for (int64_t j = 0; j < s.columns; j++) {
              const auto at = static_cast<size_t>(((b * s.heads + h) * s.rows + i) * s.columns + j);
              mixed += kept[at] * e[j] / sumOfRow / 0.75 * in[2].at({b, g, j, w});
            }
            expected.push_back(mixed);
          }
        }
      }
    }
    for (double k : kept) {
      total += k;
    }
    EXPECT_GT(total, 0);
    EXPECT_LT(total, static_cast<double>(kept.size()));
    expectNear(got[0], expected, 1e-12);
  }
}

// No batch at all, and a key that all batches share.
TEST(Attention, LeadingDimsStretch) {
  const std::vector<Tensor> in = {randomTensor({2, 3, 4, 2}, DataType::Double, 1, -2, 2),
                                  randomTensor({5, 2}, DataType::Double, 2, -2, 2),
                                  randomTensor({1, 3, 5, 3}, DataType::Double, 3, -2, 2)};
  const std::vector<Tensor> got = runAs(Extents::Concrete, in, [](const Views& x) {
    TensorView* scores = mul(matmul(x[0], transpose(x[1], 0, 1)), 1 / std::sqrt(2.0));
    return Views{sdpfa_fwd(x[0], x[1], x[2]).output, matmul(softmax(scores, -1), x[2])};
  });
  expectNear(got[0], got[1].toVector(), 1e-14);
}

// The slope of sum(dy * output) along each element of the operands, by central differences.
std::vector<double> slopesOf(const Shape& s, std::vector<Tensor> in, const Tensor& dy, size_t operand,
                             const Score& change) {
  const std::vector<double> weights = dy.toVector();
  const auto value = [&] {
    const std::vector<double> y = reference(s, in[0], in[1], in[2], 0.75, change).output;
    double total = 0;
    for (size_t k = 0; k < y.size(); k++) {
      total += weights[k] * y[k];
    }
    return total;
  };
  const std::vector<int64_t> sizes = sizesOf(in[operand]);
  const std::vector<double> at = in[operand].toVector();
  std::vector<double> slopes;
  for (size_t k = 0; k < at.size(); k++) {
    double difference = 0;
    for (double sign : {1.0, -1.0}) {
      std::vector<double> moved = at;
      moved[k] += sign * 1e-5;
      in[operand] = Tensor::of(moved, sizes, DataType::Double);
      difference += sign * value();
    }
    slopes.push_back(difference / 2e-5);
  }
  return slopes;
}

TEST(Attention, BackwardGivesTheSlopes) {
  for (const Shape& s : {Shape{2, 2, 2, 3, 4, 2, 3}, Shape{1, 4, 2, 3, 4, 2, 3}}) {
    std::vector<Tensor> in = operands(s);
    const Tensor dy = randomTensor({s.batch, s.heads, s.rows, s.width}, DataType::Double, 7, -1, 1);
    const Tensor bias = randomTensor({s.heads, s.rows, s.columns}, DataType::Double, 8, -1, 1);
    Tensor mask = Tensor::full({1, s.columns}, DataType::Bool, 1);
    mask.set(std::vector<int64_t>{0, 1}, 0);
    const std::vector<Tensor> got = runAs(Extents::Concrete, {in[0], in[1], in[2], dy, bias, mask}, [](const Views& x) {
      const SdpfaFwdResult y = sdpfa_fwd(x[0], x[1], x[2], x[4], x[5], 0.0, true, 0.75);
      const SdpfaBwdResult d =
          sdpfa_bwd(x[3], x[0], x[1], x[2], y.output, y.log_sumexp, nullptr, 0.0, true, 0.75, x[4], x[5]);
      return Views{d.grad_query, d.grad_key, d.grad_value};
    });
    const auto seen = [&](int64_t, int64_t h, int64_t i, int64_t j, double score) {
      return j <= i && j != 1 ? score + bias.at({h, i, j}) : -kInf;
    };
    for (size_t k = 0; k < 3; k++) {
      EXPECT_EQ(sizesOf(got[k]), sizesOf(in[k]));
      expectNear(got[k], slopesOf(s, in, dy, k, seen), 1e-6);
    }
  }
}

// Keys and values that all batches and heads share get the sum over them.
TEST(Attention, BackwardSumsWhatIsStretched) {
  const Shape s{2, 3, 1, 3, 4, 2, 3};
  const std::vector<Tensor> in = operands({2, 3, 1, 3, 4, 2, 3});
  const Tensor dy = randomTensor({s.batch, s.heads, s.rows, s.width}, DataType::Double, 7, -1, 1);
  const std::vector<Tensor> got = runAs(Extents::Concrete, {in[0], in[1], in[2], dy}, [](const Views& x) {
    const SdpfaFwdResult y = sdpfa_fwd(x[0], x[1], x[2], 0.0, false, 0.75);
    const SdpfaBwdResult d = sdpfa_bwd(x[3], x[0], x[1], x[2], y.output, y.log_sumexp, nullptr, 0.0, false, 0.75);
    return Views{d.grad_query, d.grad_key, d.grad_value};
  });
  for (size_t k = 0; k < 3; k++) {
    EXPECT_EQ(sizesOf(got[k]), sizesOf(in[k]));
    expectNear(got[k], slopesOf(s, in, dy, k, unchanged), 1e-6);
  }
}

// A row that sees nothing has no slope, not NaN; what dropout left out has none either.
TEST(Attention, BackwardOfEmptyRowsAndDropout) {
  const Shape s{1, 2, 2, 3, 4, 2, 3};
  const std::vector<Tensor> in = operands(s);
  const Tensor dy = randomTensor({s.batch, s.heads, s.rows, s.width}, DataType::Double, 7, -1, 1);
  const Tensor nothing = Tensor::zeros({3, 4}, DataType::Bool);
  const std::vector<Tensor> empty = runAs(Extents::Concrete, {in[0], in[1], in[2], dy, nothing}, [](const Views& x) {
    const SdpfaFwdResult y = sdpfa_fwd(x[0], x[1], x[2], nullptr, x[4]);
    const SdpfaBwdResult d = sdpfa_bwd(x[3], x[0], x[1], x[2], y.output, y.log_sumexp, nullptr, 0.0, false,
                                       static_cast<Val*>(nullptr), nullptr, x[4]);
    return Views{d.grad_query, d.grad_key, d.grad_value};
  });
  for (const Tensor& t : empty) {
    expectNear(t, std::vector<double>(t.numel(), 0), 0);
  }
  const std::vector<Tensor> got = runAs(Extents::Concrete, {in[0], in[1], in[2], dy}, [](const Views& x) {
    const SdpfaFwdResult y = sdpfa_fwd(x[0], x[1], x[2], 0.25, false, 0.75);
    const SdpfaBwdResult d =
        sdpfa_bwd(x[3], x[0], x[1], x[2], y.output, y.log_sumexp, y.dropout_mask, 0.25, false, 0.75);
    // the same slopes through softmax and dropout, op by op
    TensorView* p = softmax(mul(matmul(x[0], transpose(x[1], 2, 3)), 0.75), -1);
    TensorView* dp = dropout_backward(matmul(x[3], transpose(x[2], 2, 3)), y.dropout_mask, 1 / 0.75);
    TensorView* ds = mul(softmax_backward(dp, p, -1), 0.75);
    TensorView* used = dropout_backward(p, y.dropout_mask, 1 / 0.75);
    return Views{d.grad_query,
                 d.grad_key,
                 d.grad_value,
                 matmul(ds, x[1]),
                 matmul(transpose(ds, 2, 3), x[0]),
                 matmul(transpose(used, 2, 3), x[3])};
  });
  for (size_t k = 0; k < 3; k++) {
    expectNear(got[k], got[k + 3].toVector(), 1e-12);
  }
}

std::string refusal(const std::function<void()>& define) {
  try {
    define();
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(Attention, RefusesWhatDoesNotFit) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  const auto tensor = [](std::vector<int64_t> shape, DataType type = DataType::Float) {
    return makeContigConcreteTensor(shape, type);
  };
  TensorView* q = tensor({2, 6, 4, 8});
  TensorView* k = tensor({2, 4, 5, 8});
  TensorView* same = tensor({2, 6, 5, 8});
  const auto says = [](const std::string& text, const std::string& phrase) {
    EXPECT_TRUE(text.starts_with("[sdpfa]")) << text;
    EXPECT_NE(text.find(phrase), std::string::npos) << text;
  };
  says(refusal([&] { (void)sdpfa_fwd(q, k, k); }), "has 6 heads");
  says(refusal([&] { (void)sdpfa_fwd(q, same, tensor({2, 6, 7, 8})); }), "equal lengths");
  says(refusal([&] { (void)sdpfa_fwd(q, tensor({2, 6, 5, 7}), same); }), "8 features");
  says(refusal([&] { (void)sdpfa_fwd(q, tensor({2, 6, 5, 8}, DataType::Half), same); }), "castOp");
  says(refusal([&] { (void)sdpfa_fwd(q, tensor({8}), same); }), "unsqueeze");
  says(refusal([&] { (void)sdpfa_fwd(q, same, same, 1.5); }), "dropout_p is 1.5");
  says(refusal([&] { (void)sdpfa_fwd(q, same, same, nullptr, q); }), "expected Bool");
  says(refusal([&] { (void)sdpfa_fwd(q, same, same, 0.0, 3.0); }), "is_causal");
  says(refusal([&] { (void)sdpfa_fwd(q, nullptr, same); }), "key");
}

}  // namespace
}  // namespace meshfuse
