// Every builder on every type: the definition is refused with a UserError, or the program passes the verifier, its text reads back, and
// kernels and reference agree.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "base/error.h"
#include "base/ranges.h"
#include "inputs.h"
#include "ir/text.h"
#include "meshfuse/meshfuse.h"
#include "stress/checked_cache.h"
#include "stress/on_ranks.h"

namespace meshfuse {

namespace {

std::vector<DataType> allTypes() { return mapped(kDataTypes, &DataTypeInfo::type); }

// Elements at which ops differ: the ends of the type, zeros, small numbers of both signs.
Tensor oddElements(DataType type) {
  if (type == DataType::Bool) {
    return Tensor::of({0, 1, 1, 0}, {4}, type);
  }
  if (isIntegral(type)) {
    const auto low = static_cast<double>(lowestInteger(type));
    return Tensor::of({low, -7, -2, -1, 0, 1, 3, 10, 40, 100}, {10}, type);
  }
  return Tensor::of({-0.0, 0, 1, -1, 2.5, -2.5, 0.5, -3, 7, 100, kNan, kInf, -kInf, 60000, 6e-5}, {15}, type);
}

// Collects the outputs of builders, and the names of those that refuse the types.
struct Collector {
  Fusion& fusion;
  std::set<std::string> refused;
  int64_t made = 0;

  void operator()(const std::string& name, const std::function<Val*()>& build) {
    const size_t before = fusion.exprs(ExprSet::All).size();
    try {
      Val* out = build();
      made++;
      if (out->isTensor() && !contains(fusion.outputs(), out) && !out->isFusionInput()) {
        fusion.addOutput(out);
      }
    } catch (const UserError& e) {
      refused.insert(name);
      EXPECT_EQ(std::string(e.what()).find('['), 0u) << name << ": " << e.what();
      EXPECT_GE(fusion.exprs(ExprSet::All).size(), before);
    }
  }
};

using DefineAll = std::function<void(Collector&)>;

// The names of the refused builders.
std::set<std::string> check(const std::string& what, const DefineAll& define, const std::vector<Argument>& arguments) {
  std::set<std::string> refused;
  std::string text;
  try {
    CheckedCache checked([&](Fusion& f) {
      Collector collector{f, {}};
      define(collector);
      EXPECT_GT(collector.made, 0);
      refused = collector.refused;
      text = f.toString();
      for (const std::string& violation : verify(f)) {
        ADD_FAILURE() << what << ": " << violation;
      }
      EXPECT_EQ(parseFusion(text)->toString(), text);
    });
    EXPECT_EQ(checked.call(arguments), "") << what << "\n" << text;
  } catch (const Error& e) {
    ADD_FAILURE() << what << ": " << e.what() << "\n" << text;
  }
  return refused;
}

bool needsWhole(const PointOpInfo& row) { return row.types == OpTypes::Integer || row.types == OpTypes::Bits; }

std::set<std::string> namesOf(int64_t arity, bool (*wanted)(const PointOpInfo&)) {
  std::set<std::string> names;
  for (const PointOpInfo& row : kPointOps) {
    if (row.arity == arity && wanted(row) && row.op != PointOp::CheckedIndex) {
      names.insert(std::string(row.name));
    }
  }
  return names;
}

TEST(Types, UnaryOps) {
  for (const DataType type : allTypes()) {
    const auto refused = check(std::string(name(type)),
                               [&](Collector& c) {
                                 TensorView* x = makeContigTensor(1, type);
                                 c.fusion.addInput(x);
                                 for (const PointOpInfo& row : kPointOps) {
                                   if (row.arity == 1) {
                                     c(std::string(row.name), [&] { return point(row.op, x); });
                                   }
                                 }
                               },
                               {oddElements(type)});
    const bool floating = isFloatingPoint(type);
    EXPECT_EQ(refused, floating ? namesOf(1, needsWhole) : std::set<std::string>{}) << name(type);
  }
}

// All pairs of elements.
TEST(Types, BinaryOps) {
  for (const DataType a : allTypes()) {
    for (const DataType b : {a, DataType::Float, DataType::Int, DataType::Bool}) {
      const auto refused = check(fmt::format("{} {}", name(a), name(b)),
                                 [&](Collector& c) {
                                   TensorView* x = makeContigTensor(1, a);
                                   TensorView* y = makeContigTensor(1, b);
                                   c.fusion.addInput(x);
                                   c.fusion.addInput(y);
                                   TensorView* column = unsqueeze(x, 1);
                                   for (const PointOpInfo& row : kPointOps) {
                                     if (row.arity == 2 && row.op != PointOp::CheckedIndex) {
                                       c(std::string(row.name), [&] { return point(row.op, column, y); });
                                     }
                                   }
                                   c("truediv", [&] { return truediv(column, y); });
                                 },
                                 {oddElements(a), oddElements(b)});
      const bool floating = isFloatingPoint(a) || isFloatingPoint(b);
      EXPECT_EQ(refused, floating ? namesOf(2, needsWhole) : std::set<std::string>{}) << name(a) << " " << name(b);
    }
  }
}

// As NumPy and PyTorch have them, but for sign of NaN: PyTorch gives 0, and for division by zero: PyTorch refuses it.
TEST(Types, SpecialValues) {
  const auto expectValues = [](const Tensor& a, const Tensor& b, PointOp op, const std::vector<double>& expected) {
    CheckedCache checked([&](Fusion& f) {
      std::vector<TensorView*> in;
      for (const Tensor& x : {a, b}) {
        in.push_back(makeContigTensor(1, x.dtype()));
        f.addInput(in.back());
      }
      f.addOutput(info(op).arity == 1 ? point(op, in[0]) : point(op, in[0], in[1]));
    });
    EXPECT_EQ(checked.call({a, b}), "") << info(op).name;
    const std::vector<double> got = checked.results()[0].toVector();
    const auto same = [](double x, double y) {
      return (std::isnan(x) && std::isnan(y)) || (x == y && std::signbit(x) == std::signbit(y));
    };
    EXPECT_TRUE(std::ranges::equal(got, expected, same)) << info(op).name << ": " << checked.results()[0].toString();
  };
  for (const DataType type : {DataType::Float, DataType::Double}) {
    const Tensor a = Tensor::of({kNan, -0.0, 0, -kInf, 2.5, -2.5, -0.5}, {7}, type);
    const Tensor b = Tensor::of({1, kNan, 5, 3, 0, 0, kInf}, {7}, type);
    expectValues(a, b, PointOp::Sign, {kNan, 0, 0, -1, 1, -1, -1});
    expectValues(a, b, PointOp::Round, {kNan, -0.0, 0, -kInf, 2, -2, -0.0});
    expectValues(a, b, PointOp::Maximum, {kNan, kNan, 5, 3, 2.5, 0, kInf});
    expectValues(a, b, PointOp::Minimum, {kNan, kNan, 0, -kInf, 0, -2.5, -0.5});
    expectValues(a, b, PointOp::Remainder, {kNan, kNan, 0, kNan, kNan, kNan, kInf});
    expectValues(a, b, PointOp::Div, {kNan, kNan, 0, -kInf, kInf, -kInf, -0.0});
  }
  for (const DataType type : {DataType::Char, DataType::Short, DataType::Int32, DataType::Int}) {
    const auto low = static_cast<double>(lowestInteger(type));
    const auto width = static_cast<double>(bitWidth(type));
    const Tensor a = Tensor::of({low, low, low, -7, 7, -7, 5, -5, -5}, {9}, type);
    const Tensor b = Tensor::of({-1, 0, 6, 2, -2, -2, 0, width, -1}, {9}, type);
    const double sixth = std::trunc(low / 6);
    expectValues(a, b, PointOp::Div, {low, 0, sixth, -3, -3, 3, 0, 0, 5});
    expectValues(a, b, PointOp::Mod, {0, 0, -2, -1, 1, -1, 0, -5, 0});
    expectValues(a, b, PointOp::Remainder, {0, 0, 4, 1, -1, -1, 0, width - 5, 0});
    expectValues(a, b, PointOp::Gcd, {1, low, 2, 1, 1, 1, 5, 1, 1});
    expectValues(a, b, PointOp::Shr, {-1, low, low / 64, -2, 0, -1, 5, -1, -1});
    expectValues(a, b, PointOp::Shl, {0, low, 0, -28, 0, 0, 5, 0, 0});
    expectValues(a, a, PointOp::Abs, {low, low, low, 7, 7, 7, 5, 5, 5});
    expectValues(a, a, PointOp::Sign, {-1, -1, -1, -1, 1, -1, 1, -1, -1});
  }
}

// Rounding integers changes nothing, as in PyTorch: they keep their type, and values that Float does not hold.
TEST(Types, RoundingKeepsIntegers) {
  for (const DataType type : {DataType::Int, DataType::Int32, DataType::Short, DataType::Char}) {
    CheckedCache checked([&](Fusion& f) {
      TensorView* x = makeContigTensor(1, type);
      f.addInput(x);
      for (TensorView* out : {ceil(x), floor(x), round(x), trunc(x)}) {
        EXPECT_EQ(out->dtype(), type);
        f.addOutput(out);
      }
      EXPECT_EQ(frac(x)->dtype(), DataType::Float);
    });
    // of Int the largest that Double holds with all below it
    const auto high = static_cast<double>(std::min(highestInteger(type), (int64_t{1} << 53) - 1));
    const Tensor x = Tensor::of({high, -7, 3}, {3}, type);
    EXPECT_EQ(checked.call({x}), "");
    for (const Tensor& out : checked.results()) {
      EXPECT_EQ(out.toString(), x.toString());
    }
  }
}

std::set<std::string> reductionsThatRefuse(DataType type) {
  std::set<std::string> names;
  for (const ReduceOp op :
       {ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min, ReduceOp::And, ReduceOp::Or, ReduceOp::Xor}) {
    const bool wrong = isBitwise(op) ? isFloatingPoint(type) : type == DataType::Bool;
    if (wrong || isHalfPrecision(type)) {
      names.insert({fmt::format("reductionOp {}", name(op)), fmt::format("scan {}", name(op))});
    }
  }
  if (isFloatingPoint(type)) {
    names.insert({"bitwise_and", "bitwise_or", "bitwise_xor"});
  }
  return names;
}

TEST(Types, ReductionsScansAndSorts) {
  for (const DataType type : allTypes()) {
    const auto refused =
        check(std::string(name(type)),
              [&](Collector& c) {
                TensorView* x = makeContigTensor(2, type);
                c.fusion.addInput(x);
                for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min, ReduceOp::And,
                                          ReduceOp::Or, ReduceOp::Xor}) {
                  c(fmt::format("reductionOp {}", name(op)), [&] { return reductionOp(op, x, {1}); });
                  c(fmt::format("scan {}", name(op)), [&] { return scan(x, 1, op); });
                }
                c("sum", [&] { return sum(x, {1}); });
                c("prod", [&] { return prod(x, {1}); });
                c("max", [&] { return max(x, {1}); });
                c("min", [&] { return min(x, {0}); });
                c("mean", [&] { return mean(x, {0}); });
                c("any", [&] { return any(x, {1}); });
                c("all", [&] { return all(x, {0}); });
                c("bitwise_and", [&] { return bitwise_and(x, {1}); });
                c("bitwise_or", [&] { return bitwise_or(x, {1}); });
                c("bitwise_xor", [&] { return bitwise_xor(x, {0}); });
                c("variance", [&] { return variance(x, {1}); });
                c("standard_deviation", [&] { return standard_deviation(x, {0}); });
                c("argmax", [&] { return argmax(x, 1); });
                c("argmin", [&] { return argmin(x, 0); });
                c("cumsum", [&] { return cumsum(x, 1); });
                c("cumprod", [&] { return cumprod(x, 0); });
                c("argsort", [&] { return argsort(x, 1); });
                c("sort", [&] { return sort(x, 0, true).values; });
                c("topk", [&] { return topk(x, 2, 1).values; });
                for (const DataType to : {DataType::Double, DataType::Half, DataType::Int, DataType::Char}) {
                  c("sum to", [&] { return sum(x, {1}, false, to); });
                  c("prod to", [&] { return prod(x, {1}, false, to); });
                  c("max to", [&] { return max(x, {1}, true, to); });
                }
              },
              {randomTensor({5, 6}, type, 3, -3, 3)});
    EXPECT_EQ(refused, reductionsThatRefuse(type)) << name(type);
  }
}

TEST(Types, ContractionsIndexingAndCopies) {
  for (const DataType type : allTypes()) {
    const auto refused =
        check(std::string(name(type)),
              [&](Collector& c) {
                TensorView* x = makeContigConcreteTensor({4, 4}, type);
                TensorView* index = makeContigConcreteTensor({4}, DataType::Int32);
                c.fusion.addInput(x);
                c.fusion.addInput(index);
                TensorView* positions = expand(unsqueeze(index, 0), {4, 4});
                c("matmul", [&] { return matmul(x, x); });
                c("linear", [&] { return linear(x, x); });
                c("linear with bias", [&] { return linear(x, x, max(x, {0})); });
                c("take", [&] { return takeAlongAxis(x, positions, 1); });
                c("gather", [&] { return gather(x, 0, positions); });
                c("index_select", [&] { return index_select(x, 1, index); });
                c("select", [&] { return select(x, 0, -1); });
                c("embedding", [&] { return embedding_fwd(index, x); });
                c("scatter", [&] { return scatter(x, 1, set(positions), x); });
                c("indexPutAccumulate", [&] { return indexPutAccumulate(x, index, x); });
                c("index of this type", [&] { return index_select(x, 0, select(x, 0, 0)); });
                c("where", [&] { return where(x, x, x); });
                c("where of it", [&] { return where(ne(x, 0), x, neg(x)); });
                c("pad", [&] { return pad(x, {1, -1, 0, 2}, 1); });
                c("cat", [&] { return cat({x, x}, 1); });
                c("slice", [&] { return slice(x, {1, 0}, {4, 3}, {2, 1}); });
                c("full_like", [&] { return full_like(x, 1); });
                c("iota", [&] { return iota(4, 0, 1, type); });
                c("eye", [&] { return eye(4, type); });
                c("rand_like", [&] { return rand_like(x); });
                c("softmax", [&] { return softmax(x, 1); });
                c("relu", [&] { return relu(x); });
                c("gelu", [&] { return gelu(x); });
                c("clamp", [&] { return clamp(x, -1, 1); });
                c("dropout", [&] { return dropout(x, 0.5).mask; });
                for (const DataType to : allTypes()) {
                  c("cast", [&] { return castOp(to, x); });
                  c(fmt::format("bits as {}", name(to)), [&] { return view(x, to); });
                }
              },
              {type == DataType::Bool ? randomTensor({4, 4}, type, 3, 0, 2) : randomTensor({4, 4}, type, 3, 0, 4),
               Tensor::of({2, 0, 3, 0}, {4}, DataType::Int32)});
    std::set<std::string> expected;
    for (const DataType to : allTypes()) {
      if (to != type && (dataTypeSize(to) != dataTypeSize(type) || to == DataType::Bool || type == DataType::Bool)) {
        expected.insert(fmt::format("bits as {}", name(to)));
      }
    }
    if (type == DataType::Bool) {
      expected.insert({"matmul", "linear", "linear with bias", "indexPutAccumulate", "iota", "bits as Bool"});
    } else {
      expected.insert("where");
    }
    if (isHalfPrecision(type)) {
      expected.insert("linear with bias");  // max gives Float
    }
    if (!isIntegral(type)) {
      expected.insert("index of this type");
    }
    if (!isFloatingPoint(type)) {
      expected.insert({"rand_like"});
    }
    EXPECT_EQ(refused, expected) << name(type);
  }
}

// Scalars of every type: computed as the reference computes them, rounded to their type.
TEST(Types, Scalars) {
  for (const DataType type : allTypes()) {
    for (const double value : {0.3, -2.7, 3.0}) {
      (void)check(fmt::format("{} {}", name(type), value),
                  [&](Collector& c) {
                    Val* s = IrBuilder::create<Val>(type);
                    c.fusion.addInput(s);
                    TensorView* x = makeContigConcreteTensor({3}, DataType::Double);
                    c.fusion.addInput(x);
                    const auto seen = [&](Val* v) { return full({2}, v, v->dtype()); };
                    for (const PointOpInfo& row : kPointOps) {
                      if (row.arity == 1) {
                        c(std::string(row.name), [&] { return seen(point(row.op, s)); });
                      } else if (row.arity == 2 && row.op != PointOp::CheckedIndex) {
                        c(std::string(row.name), [&] { return seen(point(row.op, s, s)); });
                      }
                    }
                    for (const DataType to : allTypes()) {
                      c("cast", [&] { return seen(castOp(to, s)); });
                      c("cast back", [&] { return add(x, castOp(DataType::Double, castOp(to, s))); });
                    }
                    // computed integers, where expressions of given ones could stand
                    Val* n = castOp(DataType::Int, s);
                    c("arithmetic", [&] { return seen(maximum(neg(add(mul(n, 3), n)), sub(n, 2))); });
                    c("seed", [&] { return rand({4}, DataType::Float, n, add(n, 1)); });
                    c("iota", [&] { return iota(3, n, sub(n, 1)); });
                    c("fill", [&] { return pad(castOp(DataType::Int, x), {1, 1}, n); });
                    c("index", [&] { return select(x, 0, remainder(n, 3)); });
                    c("compare", [&] { return where(lt(castOp(DataType::Int, x), n), 1, 0); });
                  },
                  {isFloatingPoint(type)    ? Argument(value)
                   : type == DataType::Bool ? Argument(value > 0)
                                            : Argument(static_cast<int64_t>(value)),
                   random({3}, 1, DataType::Double)});
    }
  }
}

// Reductions and reads by index along dims that are cut over ranks: the all-reduce combines what the type combines.
TEST(Types, ReductionsOverRanks) {
  for (const DataType type : allTypes()) {
    expectAgreesOnRanks(
        [&](Fusion& f, int64_t ranks) {
          TensorView* x = makeContigConcreteTensor({8, 4}, type);
          f.addInput(x);
          cut(x, 0, ranks);
          for (TensorView* out : {sum(x, {0}), prod(x, {0}), max(x, {0}), min(x, {0, 1}), any(x, {0}), all(x, {0})}) {
            f.addOutput(out);
          }
          if (!isFloatingPoint(type)) {
            f.addOutput(bitwise_xor(x, {0}));
          }
          TensorView* index = makeContigConcreteTensor({5}, DataType::Int);
          f.addInput(index);
          f.addOutput(index_select(x, 0, index));
          f.addOutput(embedding_fwd(index, x));
          f.addOutput(takeAlongAxis(x, unsqueeze(index, 1), 0));
        },
        {{{randomTensor({8, 4}, type, 5, -2, 2), Tensor::of({7, 0, 3, 3, 4}, {5}, DataType::Int)}}});
  }
}

// Programs in text form may reduce 16-bit elements as they are: ranks exchange products of that type.
TEST(Types, ProductsOfSixteenBitsOverRanks) {
  for (const DataType type : {DataType::Half, DataType::BFloat16}) {
    for (const double far : {2.0, 30.0}) {
      expectAgreesOnRanks(
          [&](Fusion& f, int64_t ranks) {
            TensorView* x = makeContigConcreteTensor({8, 40}, type);
            f.addInput(x);
            cut(x, 0, ranks);
            for (const ReduceOp op : {ReduceOp::Prod, ReduceOp::Sum, ReduceOp::Max}) {
              f.addOutput(f.addOp(ExprKind::Reduce, {x}, type, {{8, IterType::Reduction}, {40}}, {.reduce = op}));
            }
          },
          {{{randomTensor({8, 40}, type, 5, -far, far)}}});
    }
  }
}

}  // namespace

}  // namespace meshfuse
