// Scans, orders and selections, compiled: against the standard library, the interpreter, and on ranks along the dim that is shared.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <span>

#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "stress/checked_cache.h"
#include "stress/on_ranks.h"

namespace meshfuse {
namespace {

// Few different values, and some NaN.
Tensor repeating(const std::vector<int64_t>& sizes, DataType type) {
  Tensor x = randomTensor(sizes, DataType::Double, 7, -20, 20);
  std::vector<double> values = x.toVector();
  for (size_t k = 0; k < values.size(); k++) {
    values[k] = isFloatingPoint(type) && k % 11 == 3 ? kNan : std::round(values[k]) / 2;
  }
  return Tensor::of(values, sizes, type);
}

bool less(double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; }

TEST(ScanOrSort, AsTheStandardLibraryOrders) {
  for (DataType type :
       {DataType::Float, DataType::Double, DataType::Half, DataType::Int, DataType::Int32, DataType::Bool}) {
    for (bool descending : {false, true}) {
      for (auto [n, k] :
           {std::pair<int64_t, int64_t>{1, 1}, {7, 2}, {1000, 200}, {1000, 3}, {4099, 40}, {20000, 9000}}) {
        Tensor x = repeating({3, n}, type);
        CheckedCache checked([&, k = k](Fusion& f) {
          TensorView* t = makeContigTensor(2, type);
          f.addInput(t);
          SortResult all = sort(t, 1, descending);
          TopKResult few = topk(t, k, 1, descending);
          for (TensorView* out : {all.indices, all.values, few.indices, few.values}) {
            f.addOutput(out);
          }
        });
        ASSERT_EQ(checked.call({x}), "");
        std::vector<double> values = x.toVector();
        std::vector<double> first;
        std::vector<double> order;
        for (int64_t row = 0; row < 3; row++) {
          const double* line = values.data() + row * n;
          std::vector<int64_t> places(n);
          std::iota(places.begin(), places.end(), 0);
          std::stable_sort(places.begin(), places.end(), [&](int64_t a, int64_t b) {
            return descending ? less(line[b], line[a]) : less(line[a], line[b]);
          });
          order.insert(order.end(), places.begin(), places.end());
          first.insert(first.end(), places.begin(), places.begin() + k);
        }
        EXPECT_EQ(checked.results()[0].toVector(), order);
        EXPECT_EQ(checked.results()[2].toVector(), first);
      }
    }
  }
}

// Few candidates for the first places, all different: along lines of neighbours and across them, in whole vectors and not, up to more of
// them than are placed by their ranks. The other lines hold the same values in another order.
TEST(ScanOrSort, FirstOfDifferentElements) {
  constexpr int64_t kLines = 3;
  for (DataType type : {DataType::Float, DataType::Double, DataType::Int32}) {
    for (auto [n, k] :
         {std::pair<int64_t, int64_t>{256, 1}, {1024, 15}, {4096, 32}, {4111, 33}, {20000, 100}, {20000, 130}}) {
      for (int64_t dim : {0, 1}) {
        for (bool largest : {false, true}) {
          std::vector<double> rows;
          for (int64_t j = 0; j < kLines * n; j++) {
            rows.push_back(static_cast<double>((j * 7919 + 13 * (j / n)) % n - n / 2));
          }
          Tensor x = Tensor::of(rows, {kLines, n}, type);
          CheckedCache checked([&, k = k](Fusion& f) {
            TensorView* t = makeContigTensor(2, type);
            f.addInput(t);
            f.addOutput(topk(t, k, dim, largest).values);
          });
          ASSERT_EQ(checked.call({dim == 1 ? x : x.transpose(0, 1).contiguous()}), "");
          std::vector<double> first(rows.begin(), rows.begin() + n);
          std::ranges::sort(first);
          if (largest) {
            std::ranges::reverse(first);
          }
          first.resize(k);
          std::vector<double> expected;
          for (int64_t j = 0; j < k * kLines; j++) {
            expected.push_back(first[dim == 1 ? j % k : j / kLines]);
          }
          EXPECT_EQ(checked.results()[0].toVector(), expected) << n << " " << k << " " << dim << " " << largest;
        }
      }
    }
  }
}

// A line is scanned with others or alone, by the number of lines and threads.
TEST(ScanOrSort, SumsDoNotDependOnOtherLinesOrThreads) {
  constexpr int64_t kLength = 1003;
  const auto sums = [](const Tensor& x, int64_t threads) {
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      TensorView* t = makeContigTensor(2);
      fusion->addInput(t);
      fusion->addOutput(cumsum(t, 1));
    }
    FusionExecutorCache cache(std::move(fusion), {.threads = threads});
    return cache.runFusionWithInputs({x})[0].toVector();
  };
  const std::vector<double> all = randomTensor({19, kLength}, DataType::Float, 3, -1e6, 1e6).toVector();
  const std::vector<double> expected = sums(Tensor::of(all, {19, kLength}, DataType::Float), 1);
  double largest = 0;
  for (int64_t j = 0; j < std::ssize(all); j++) {
    const int64_t line = j / kLength;
    const double exact = std::accumulate(all.begin() + line * kLength, all.begin() + j + 1, 0.0);
    largest = std::max(largest, std::fabs(expected[j] - exact) / std::max(1.0, std::fabs(exact)));
  }
  EXPECT_LE(largest, 0x1p-24 * 1.0001);
  for (const int64_t lines : {1, 2, 3, 9, 19}) {
    for (const int64_t threads : {1, 2, 3}) {
      const std::vector<double> some(all.begin(), all.begin() + lines * kLength);
      const std::vector<double> got = sums(Tensor::of(some, {lines, kLength}, DataType::Float), threads);
      EXPECT_TRUE(std::ranges::equal(got, std::span(expected).first(got.size()))) << lines << " on " << threads;
    }
  }
}

// Lines with NaN of both signs, zeros of both signs, infinities and equal elements, in numbers that change the way in which the first ones
// are found: few of a kind, many, only these.
TEST(ScanOrSort, FirstOfSpecialElements) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  const std::vector<float> special = {std::nanf(""), -std::nanf(""), 0.0F,   -0.0F,
                                      kInfinite,     -kInfinite,     1e-40F, -1e-40F};
  for (auto [n, k] : {std::pair<int64_t, int64_t>{1029, 5}, {4096, 32}, {4111, 33}}) {
    for (const int64_t every : {1, 3, 40, 4000}) {
      const auto lines = std::ssize(special) + 1;
      std::vector<double> values = randomTensor({lines, n}, DataType::Float, every, -1, 1).toVector();
      for (int64_t j = 0; j < lines * n; j += every) {
        const int64_t line = j / n;  // the last one has all kinds
        values[j] = special[line < std::ssize(special) ? line : j / every % std::ssize(special)];
      }
      const Tensor x = Tensor::of(values, {lines, n});
      for (const bool largest : {false, true}) {
        CheckedCache checked([&, k = k](Fusion& f) {
          TensorView* t = makeContigTensor(2);
          f.addInput(t);
          f.addOutput(topk(t, k, 1, largest).indices);
        });
        ASSERT_EQ(checked.call({x}), "");
        std::vector<double> expected;
        for (int64_t line = 0; line < lines; line++) {
          const double* at = values.data() + line * n;
          std::vector<int64_t> places(n);
          std::iota(places.begin(), places.end(), 0);
          std::ranges::stable_sort(
              places, [&](int64_t a, int64_t b) { return largest ? less(at[b], at[a]) : less(at[a], at[b]); });
          expected.insert(expected.end(), places.begin(), places.begin() + k);
        }
        EXPECT_EQ(checked.results()[0].toVector(), expected) << n << " " << every << " " << largest;
      }
    }
  }
}

// Lines around the lengths at which another way of sorting begins, of values that use all digits of their keys.
TEST(ScanOrSort, LengthsAtWhichTheWayChanges) {
  for (DataType type : {DataType::Float, DataType::Int32}) {
    for (int64_t n : {128, 129, 255, 256, 2047, 2048, 16384, 16385}) {
      std::vector<double> values = randomTensor({n}, DataType::Double, n, -1, 1).toVector();
      const bool isFloat = type == DataType::Float;
      for (double& v : values) {
        v = isFloat ? static_cast<float>(std::exp2(v * 100) * v) : std::round(v * std::numeric_limits<int32_t>::max());
      }
      values[n / 2] = isFloat ? -std::numeric_limits<double>::infinity() : std::numeric_limits<int32_t>::min();
      values[n / 3] = isFloat ? std::numeric_limits<double>::infinity() : std::numeric_limits<int32_t>::max();
      values[n / 4] = values[n / 3];
      CheckedCache checked([&](Fusion& f) {
        TensorView* t = makeContigTensor(1, type);
        f.addInput(t);
        f.addOutput(argsort(t, 0, false));
      });
      ASSERT_EQ(checked.call({Tensor::of(values, {n}, type)}), "");
      std::vector<double> places(n);
      std::iota(places.begin(), places.end(), 0);
      std::ranges::stable_sort(places, {}, [&](double k) { return values[static_cast<int64_t>(k)]; });
      EXPECT_EQ(checked.results()[0].toVector(), places) << n;
    }
  }
}

// On a GPU lines of so many elements are sorted in three chunks, and these merged twice.
TEST(ScanOrSort, LinesOfSeveralChunks) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* all = makeContigTensor(2, DataType::Double);
        TensorView* few = makeContigTensor(2, DataType::Float);
        f.addInput(all);
        f.addInput(few);
        f.addOutput(argsort(all, 1, false));
        f.addOutput(topk(few, 10, 1, true).indices);
      },
      {{repeating({1, 4100}, DataType::Double), repeating({1, 8200}, DataType::Float)}});
}

TEST(ScanOrSort, OfEveryDimAndLayout) {
  for (DataType type : {DataType::Float, DataType::Double, DataType::Int, DataType::Int32}) {
    Tensor x = repeating({5, 20, 33}, type);
    Tensor turned = repeating({33, 20, 5}, type).transpose(0, 2);
    for (int dim = 0; dim < 3; dim++) {
      expectAgrees(
          [&](Fusion& f) {
            TensorView* t = makeSymbolicTensor(3, type);
            f.addInput(t);
            f.addOutput(cumsum(where(ne(t, t), 1, t), dim));
            f.addOutput(scan(t, dim, ReduceOp::Max));
            f.addOutput(scan(t, dim, ReduceOp::Min));
            f.addOutput(sort(t, dim, true).values);
            f.addOutput(select(topk(add(t, 1), 3, dim).indices, dim, 1));
          },
          {{x}, {turned}});
    }
  }
}

// Scans with elementwise ops before and after them, which a GPU computes in one kernel where it can: along any dim, with dims of one element
// and without elements, of 16 bits, and of operands that lie in memory as the ops before or as no row-major tensor does.
TEST(ScanOrSort, ScansWithNeighbors) {
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{3, 1, 40}, {2, 35, 1}, {0, 3, 4}, {3, 0, 4}, {2, 17, 19}}) {
    for (const DataType type : {DataType::Float, DataType::BFloat16, DataType::Int32}) {
      for (const bool isTurned : {false, true}) {
        Tensor x = randomTensor(sizes, type, 3, -2, 2);
        x = isTurned ? x.transpose(0, 2).contiguous().transpose(0, 2) : x;
        expectAgrees(
            [&](Fusion& f) {
              TensorView* t = makeSymbolicTensor(3, type);
              f.addInput(t);
              for (int dim = 0; dim < 3; dim++) {
                TensorView* z = cumsum(where(gt(t, 0), t, 1), dim);
                f.addOutput(maybeCastOp(type, mul(z, 2)));
                f.addOutput(cumsum(neg(z), (dim + 1) % 3));
              }
            },
            {{x}});
      }
    }
  }
}

// Results that are stored past the caches where rows are whole cache lines, and all but the rest of a single row. Rows of 17 elements are not.
TEST(ScanOrSort, LargeResults) {
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{17, 500'000}, {500'000, 17}, {1, 8'500'003}}) {
    const Tensor x = randomTensor(sizes, DataType::Float, 3, -1, 1);
    for (int64_t dim : {0, 1}) {
      auto fusion = std::make_unique<Fusion>();
      {
        FusionGuard guard(fusion.get());
        TensorView* t = makeContigConcreteTensor(sizes);
        fusion->addInput(t);
        fusion->addOutput(cumsum(t, dim));
      }
      FusionExecutorCache cache(std::move(fusion), {.threads = 2});
      const std::vector<Tensor> out = cache.runFusionWithInputs({x});
      const std::vector<double> in = x.toVector();
      const std::vector<double> scanned = out[0].toVector();
      std::vector<double> sums(sizes[1 - dim], 0.0);
      int64_t wrong = 0;
      for (int64_t i = 0; i < sizes[0] * sizes[1]; i++) {
        double& sum = sums[dim == 0 ? i % sizes[1] : i / sizes[1]];
        sum += in[i];
        wrong += std::abs(scanned[i] - sum) <= std::abs(sum) * 0x1p-24 ? 0 : 1;  // rounded once
      }
      EXPECT_EQ(wrong, 0) << sizes[0] << " x " << sizes[1] << " along " << dim;
    }
  }
}

TEST(ScanOrSort, AllReductionsOfIntegers) {
  Tensor x = repeating({70, 40}, DataType::Int);
  Tensor narrow = repeating({70, 40}, DataType::Int32);
  expectAgrees(
      [&](Fusion& f) {
        TensorView* t = makeContigTensor(2, DataType::Int);
        TensorView* n = makeContigTensor(2, DataType::Int32);
        f.addInput(t);
        f.addInput(n);
        for (ReduceOp op : {ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min, ReduceOp::And, ReduceOp::Or,
                            ReduceOp::Xor}) {
          f.addOutput(scan(t, 0, op));
          f.addOutput(scan(n, 1, op));
        }
        f.addOutput(scan(gt(t, 3), 1, ReduceOp::Or));
        f.addOutput(scan(lt(t, 5), 0, ReduceOp::And));
        f.addOutput(scan(lt(t, 5), 0, ReduceOp::Xor));
      },
      {{x, narrow}});
}

TEST(ScanOrSort, SmallAndEmpty) {
  for (std::vector<int64_t> sizes : {std::vector<int64_t>{1, 1}, {4, 1}, {1, 6}, {0, 3}, {3, 0}}) {
    expectAgrees(
        [&](Fusion& f) {
          TensorView* t = makeSymbolicTensor(2);
          f.addInput(t);
          f.addOutput(cumsum(t, 0));
          f.addOutput(cumprod(t, 1));
          f.addOutput(sort(t, 0).values);
          f.addOutput(argsort(t, 1, true));
        },
        {{randomTensor(sizes, DataType::Float, 3, -2, 2)}});
  }
}

// k and the chosen position are numbers of the call.
TEST(ScanOrSort, NumbersOfTheCall) {
  CheckedCache checked([](Fusion& f) {
    TensorView* x = makeSymbolicTensor(2);
    Val* k = f.inputScalar(DataType::Int);
    Val* at = f.inputScalar(DataType::Int);
    f.addInput(x);
    f.addInput(k);
    f.addInput(at);
    TopKResult r = topk(x, k, 1);
    f.addOutput(r.values);
    f.addOutput(select(x, 0, at));
  });
  Tensor x = randomTensor({4, 9}, DataType::Float, 3, -2, 2);
  for (int64_t k : {1, 4, 9}) {
    EXPECT_EQ(checked.call({x, k, k % 4 - 1}), "");
    EXPECT_EQ(checked.results()[0].sizes()[1], k);
  }
  for (auto [k, at] : {std::pair<int64_t, int64_t>{10, 0}, {2, 4}, {2, -5}}) {
    EXPECT_EQ(errorOf([&, k = k, at = at] {
                (void)checked.cache().runFusionWithInputs({x, k, at});
              }).substr(0, 11),
              "UserError: ");
  }
}

// Each rank has a part of the dim, or of another one; results are wanted in parts, or wherever they fall.
TEST(ScanOrSort, OnRanks) {
  const Tensor x = repeating({8, 4, 12}, DataType::Float);
  for (int shared = 0; shared < 3; shared++) {
    for (int dim = 0; dim < 3; dim++) {
      for (bool inParts : {false, true}) {
        expectAgreesOnRanks(
            [=](Fusion& f, int64_t ranks) {
              TensorView* t = makeConcreteTensor({8, 4, 12});
              f.addInput(t);
              TensorView* clean = where(ne(t, t), 1, t);
              TensorView* y = cumsum(clean, dim);
              SortResult s = sort(t, dim, true);
              TopKResult k = topk(t, 4, dim);
              f.addOutput(y);
              f.addOutput(s.values);
              f.addOutput(s.indices);
              f.addOutput(k.values);
              f.addOutput(select(t, dim, 3));
              f.addOutput(select(t, dim, -1));
              cut(t, shared, ranks);
              if (inParts) {
                cut(y, dim, ranks);
                cut(s.indices, dim, ranks);
                cut(s.values, shared, ranks);
                cut(k.values, dim, ranks);
              }
            },
            {{{x}}});
      }
    }
  }
}

}  // namespace
}  // namespace meshfuse
