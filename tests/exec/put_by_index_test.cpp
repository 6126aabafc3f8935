// Elements written and added at positions that are data, compiled: against loops, the interpreter, and on ranks along every dim.
#include <gtest/gtest.h>

#include <algorithm>

#include "meshfuse/meshfuse.h"
#include "stress/checked_cache.h"
#include "stress/on_ranks.h"
#include "tensor/half.h"

namespace meshfuse {
namespace {

using Sizes = std::vector<int64_t>;
using Values = std::vector<double>;

const DataType kTypes[] = {DataType::Double, DataType::Float, DataType::Half,  DataType::BFloat16,
                           DataType::Int,    DataType::Int32, DataType::Short, DataType::Char,
                           DataType::UInt16, DataType::Byte,  DataType::Bool};

int64_t product(const Sizes& sizes) {
  int64_t n = 1;
  for (int64_t size : sizes) {
    n *= size;
  }
  return n;
}

Tensor randomOperand(const Sizes& sizes, DataType type, uint64_t seed = 1) {
  const double limit = isIntegral(type) ? 100 : 2;
  return randomTensor(sizes, type, seed, type == DataType::Bool ? 0 : -limit, limit);
}

// Positions below `extent`, most of them several times.
Tensor positions(const Sizes& sizes, int64_t extent, DataType type = DataType::Int, uint64_t seed = 5) {
  return randomTensor(sizes, type, seed, 0, static_cast<double>(std::min(extent, highestInteger(type))));
}

Sizes withDim(Sizes sizes, int64_t dim, int64_t extent) {
  sizes[dim] = extent;
  return sizes;
}

Values scattered(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  Values out = x.toVector();
  const Values at = index.toVector();
  const Values from = src.toVector();
  const Sizes sizes(x.sizes().begin(), x.sizes().end());
  const int64_t inner = product({sizes.begin() + dim + 1, sizes.end()});
  const int64_t extent = x.size(dim);
  const int64_t count = index.size(dim);
  for (int64_t i = 0; i < index.numel(); i++) {
    const int64_t outer = i / (count * inner);
    const auto row = static_cast<int64_t>(at[i]);
    out[(outer * extent + row) * inner + i % inner] = from[i];
  }
  return out;
}

double rounded(DataType type, double v) {
  return isHalfPrecision(type)     ? float16ToFloat(type, floatToFloat16(type, static_cast<float>(v)))
         : type == DataType::Float ? static_cast<float>(v)
         : isFloatingPoint(type)   ? v
                                   : static_cast<double>(wrapInteger(type, static_cast<int64_t>(v)));
}

Values accumulated(const Tensor& x, const Tensor& index, const Tensor& value) {
  const DataType type = x.dtype();
  Values out = x.toVector();
  const Values at = index.toVector();
  const Values from = value.toVector();
  const int64_t width = x.size(0) == 0 ? 0 : x.numel() / x.size(0);
  for (int64_t i = 0; i < width * index.numel(); i++) {
    const auto row = static_cast<int64_t>(at[i / width]);
    double& sum = out[row * width + i % width];
    sum += from[i];
    sum = isHalfPrecision(type) ? static_cast<float>(sum) : sum;
  }
  for (double& v : out) {
    v = rounded(type, v);
  }
  return out;
}

BuildFusion scatterOf(const std::vector<Tensor>& operands, int64_t dim, bool symbolic) {
  return [=](Fusion& f) {
    std::vector<TensorView*> v;
    for (const Tensor& t : operands) {
      v.push_back(symbolic ? makeSymbolicTensor(t.dim(), t.dtype())
                           : makeConcreteTensor({t.sizes().begin(), t.sizes().end()}, t.dtype()));
      f.addInput(v.back());
    }
    f.addOutput(dim >= 0 ? scatter(v[0], dim, v[1], v[2]) : indexPutAccumulate(v[0], v[1], v[2]));
  };
}
constexpr int64_t kAdds = -1;  // in the place of a dim

Values resultOf(const std::vector<Tensor>& operands, int64_t dim, bool symbolic = true) {
  CheckedCache checked(scatterOf(operands, dim, symbolic));
  EXPECT_EQ(checked.call({operands.begin(), operands.end()}), "");
  return checked.results().at(0).toVector();
}

TEST(Scatter, OfEveryTypeAsALoop) {
  for (DataType type : kTypes) {
    for (DataType indexType :
         {DataType::Int, DataType::Int32, DataType::Short, DataType::Char, DataType::UInt16, DataType::Byte}) {
      const Tensor x = randomOperand({3, 17}, type);
      const Tensor index = positions({3, 40}, 17, indexType);
      const Tensor src = randomOperand({3, 40}, type, 2);
      EXPECT_EQ(resultOf({x, index, src}, 1), scattered(x, 1, index, src)) << name(type) << " " << name(indexType);
    }
  }
}

TEST(Scatter, AlongEveryDimInEveryLayout) {
  for (const Sizes& sizes : std::vector<Sizes>{{7}, {1, 1}, {5, 20, 33}, {4, 1, 9}, {2, 3, 2, 5}, {0, 3}, {3, 0}}) {
    for (int64_t dim = 0; dim < std::ssize(sizes); dim++) {
      for (int64_t count : {0, 1, 13}) {
        const int64_t extent = sizes[dim];
        if (extent == 0 && count > 0) {
          continue;
        }
        const Sizes put = withDim(sizes, dim, count);
        const Tensor x = randomOperand(sizes, DataType::Float);
        const Tensor index = positions(put, extent);
        const Tensor src = randomOperand(put, DataType::Float, 2);
        const Values expected = scattered(x, dim, index, src);
        EXPECT_EQ(resultOf({x, index, src}, dim), expected);
        EXPECT_EQ(resultOf({x, index, src}, dim, false), expected);
        const int64_t last = std::ssize(sizes) - 1;
        const auto turned = [&](const Tensor& t) { return t.transpose(0, last).clone().transpose(0, last); };
        EXPECT_EQ(resultOf({turned(x), turned(index), turned(src)}, dim, false), expected);
      }
    }
  }
}

TEST(Scatter, TheOperandsAreOne) {
  CheckedCache checked([](Fusion& f) {
    TensorView* x = makeContigConcreteTensor({6}, DataType::Int);
    f.addInput(x);
    f.addOutput(scatter(x, 0, x, x));
    f.addOutput(indexPutAccumulate(x, x, x));
  });
  ASSERT_EQ(checked.call({Tensor::of({5, 0, 3, 3, 5, 2}, {6}, DataType::Int)}), "");
  EXPECT_EQ(checked.results()[0].toVector(), (Values{0, 0, 2, 3, 5, 5}));
  EXPECT_EQ(checked.results()[1].toVector(), (Values{5, 0, 5, 9, 5, 12}));
}

// In the order of an argsort no index needs a check; the inverse of an order is one scatter.
TEST(Scatter, InvertsAnOrder) {
  CheckedCache checked([](Fusion& f) {
    TensorView* x = makeContigConcreteTensor({4, 9});
    f.addInput(x);
    TensorView* order = argsort(x, 1);
    TensorView* places = broadcast(iota(9), {true, false});
    f.addOutput(scatter(zeros_like(order), 1, order, expand(places, Sizes{4, 9})));
    f.addOutput(argsort(order, 1));
  });
  ASSERT_EQ(checked.call({randomOperand({4, 9}, DataType::Float)}), "");
  EXPECT_EQ(checked.results()[0].toVector(), checked.results()[1].toVector());
  EXPECT_EQ(checked.cache().planned()->toString().find("checked_index"), std::string::npos);
}

TEST(IndexPutAccumulate, OfEveryTypeAsALoop) {
  for (DataType type : kTypes) {
    if (type == DataType::Bool) {
      continue;
    }
    for (DataType indexType :
         {DataType::Int, DataType::Int32, DataType::Short, DataType::Char, DataType::UInt16, DataType::Byte}) {
      for (const Sizes& row : std::vector<Sizes>{{}, {1}, {5}, {300}, {3, 7}, {2, 1, 4}}) {
        for (const Sizes& counted : std::vector<Sizes>{{}, {0}, {1}, {50}, {6, 4}}) {
          Sizes sizes = {11};
          sizes.insert(sizes.end(), row.begin(), row.end());
          Sizes put = counted;
          put.insert(put.end(), row.begin(), row.end());
          const Tensor x = randomOperand(sizes, type);
          const Tensor index = positions(counted, 11, indexType);
          const Tensor value = randomOperand(put, type, 2);
          EXPECT_EQ(resultOf({x, index, value}, kAdds), accumulated(x, index, value))
              << name(type) << " " << name(indexType);
        }
      }
    }
  }
}

TEST(IndexPutAccumulate, InEveryLayout) {
  const Tensor x = randomOperand({4, 3, 5}, DataType::Float);
  const Tensor index = positions({6, 2}, 4);
  const Tensor value = randomOperand({6, 2, 3, 5}, DataType::Float, 2);
  const Values expected = accumulated(x, index, value);
  const auto turned = [](const Tensor& t, int a, int b) { return t.transpose(a, b).clone().transpose(a, b); };
  for (int a = 0; a < 3; a++) {
    EXPECT_EQ(resultOf({turned(x, a, 2), turned(index, 0, 1), turned(value, a, 3)}, kAdds, false), expected);
  }
  const Tensor wide = randomOperand({6, 2, 3, 10}, DataType::Float, 3);
  const Tensor every = wide.slice(3, 0, 10, 2);
  EXPECT_EQ(resultOf({x, index, every}, kAdds, false), accumulated(x, index, every.clone()));
}

// On a GPU an index of so many elements is sorted in chunks, and these merged.
TEST(IndexPutAccumulate, AtManyPlaces) {
  const Tensor x = randomOperand({30, 3}, DataType::Float);
  const Tensor index = positions({5000}, 30);
  const Tensor value = randomOperand({5000, 3}, DataType::Float, 2);
  EXPECT_EQ(resultOf({x, index, value}, kAdds), accumulated(x, index, value));
}

TEST(IndexPutAccumulate, WithoutRowsOrElements) {
  for (const Sizes& sizes : std::vector<Sizes>{{0, 3}, {4, 0}}) {
    const Tensor x = randomOperand(sizes, DataType::Float);
    const Tensor none = Tensor::zeros({0, sizes[1]}, DataType::Float);
    EXPECT_EQ(resultOf({x, Tensor::zeros({0}, DataType::Int), none}, kAdds), x.toVector());
  }
}

// 16-bit terms that vanish one by one beside a large one, and do not together.
TEST(IndexPutAccumulate, SixteenBitsAreRoundedOnce) {
  for (DataType type : {DataType::Half, DataType::BFloat16}) {
    const Tensor x = Tensor::full({2}, type, 2048);
    const Values sums = resultOf({x, Tensor::zeros({256}, DataType::Int), Tensor::full({256}, type, 0.5)}, kAdds);
    EXPECT_EQ(sums, (Values{2048 + 128, 2048})) << name(type);
  }
}

// The gradient of an embedding.
TEST(IndexPutAccumulate, TurnsAnEmbeddingAround) {
  CheckedCache checked([](Fusion& f) {
    TensorView* index = makeContigTensor(2, DataType::Int);
    TensorView* dy = makeContigTensor(3);
    f.addInput(index);
    f.addInput(dy);
    f.addOutput(indexPutAccumulate(zeros({7, 8}, DataType::Float), index, mul(dy, 2.0)));
  });
  const Tensor index = positions({3, 5}, 7);
  EXPECT_EQ(checked.call({index, randomOperand({3, 5, 8}, DataType::Float)}), "");
  EXPECT_NE(checked.cache().planned()->toString().find("checked_index"), std::string::npos);
}

TEST(PutByIndex, IndicesOutOfRangeFailTheRun) {
  for (int64_t dim : {kAdds, int64_t{0}}) {
    for (DataType type : {DataType::Int, DataType::Int32, DataType::Char}) {
      for (Verify verify : {Verify::Off, Verify::Always}) {
        const std::vector<Tensor> operands = {randomOperand({5}, DataType::Float), positions({8}, 5, type),
                                              randomOperand({8}, DataType::Float)};
        CheckedCache checked(scatterOf(operands, dim, true), {.verify = verify});
        const auto call = [&](int64_t bad, int64_t extent) {
          Tensor index = operands[1].clone();
          index.set(Sizes{6}, static_cast<double>(bad));
          return errorOf([&] {
            (void)checked.cache().runFusionWithInputs({randomOperand({extent}, DataType::Float), index, operands[2]});
          });
        };
        EXPECT_EQ(call(4, 5), "");
        const int64_t huge = std::min(highestInteger(type), int64_t{1} << 40);
        for (int64_t bad : {int64_t{-1}, int64_t{5}, huge, -huge}) {
          const std::string error = call(bad, 5);
          EXPECT_TRUE(error.starts_with("UserError: [")) << error;
          EXPECT_NE(error.find(fmt::format("index {} is out of range for an extent of 5", bad)), std::string::npos)
              << error;
        }
        EXPECT_TRUE(call(0, 0).starts_with("UserError: [")) << call(0, 0);
        EXPECT_EQ(call(0, 5), "");
      }
    }
  }
}

TEST(PutByIndex, SizesOfACallMustFit) {
  const std::vector<std::pair<int64_t, std::vector<Sizes>>> wrong = {{1, {{3, 5}, {2, 4}, {2, 4}}},
                                                                     {1, {{3, 5}, {3, 4}, {3, 5}}},
                                                                     {0, {{3, 5}, {4, 1}, {4, 1}}},
                                                                     {kAdds, {{3, 5}, {4}, {3, 5}}},
                                                                     {kAdds, {{3, 5}, {4}, {4, 1}}}};
  for (const auto& [dim, sizes] : wrong) {
    const std::vector<Tensor> operands = {randomOperand(sizes[0], DataType::Float),
                                          Tensor::zeros(sizes[1], DataType::Int),
                                          randomOperand(sizes[2], DataType::Float)};
    CheckedCache checked(scatterOf(operands, dim, true));
    const std::string error = errorOf([&] {
      (void)checked.cache().runFusionWithInputs({operands.begin(), operands.end()});
    });
    EXPECT_TRUE(error.starts_with("UserError: [")) << error;
  }
}

enum class Cut { Block, Cycle };

void shardDim(TensorView* x, int dim, int64_t ranks, Cut how) {
  if (how == Cut::Block) {
    cut(x, dim, ranks);
    return;
  }
  x->setDeviceMesh(DeviceMesh::createForNumDevices(ranks));
  x->inner_split(dim, ranks);
  x->axis(dim + 1)->parallelize(ParallelType::DIDx);
}

// Each operand, then all, then the result too, are cut along one of its dims, evenly and not.
void onRanks(const Sizes& table, const Sizes& index, const Sizes& put, int64_t dim, DataType type, Cut how) {
  const int64_t extent = table[std::max<int64_t>(dim, 0)];
  const Sizes sizes[] = {table, index, put, table};
  for (int which = 0; which < 4; which++) {
    for (int at = 0; at < std::ssize(sizes[which]); at++) {
      if (how == Cut::Cycle && sizes[which][at] % 4 != 0) {
        continue;
      }
      for (bool all : {false, true}) {
        expectAgreesOnRanks(
            [&](Fusion& f, int64_t ranks) {
              TensorView* v[] = {makeConcreteTensor(table, type), makeConcreteTensor(index, DataType::Int),
                                 makeConcreteTensor(put, type), nullptr};
              for (int k = 0; k < 3; k++) {
                f.addInput(v[k]);
              }
              v[3] = dim >= 0 ? scatter(v[0], dim, v[1], v[2]) : indexPutAccumulate(v[0], v[1], v[2]);
              f.addOutput(v[3]);
              for (int k = 0; k < 4; k++) {
                const bool has = at < std::ssize(sizes[k]);
                const bool even = has && (how == Cut::Block || sizes[k][at] % 4 == 0);
                if (k == which || (all && k < which && even)) {
                  shardDim(v[k], at, ranks, how);
                }
              }
            },
            {{{randomOperand(table, type), positions(index, extent), randomOperand(put, type, 2)}}});
      }
    }
  }
}

TEST(PutByIndex, ScatterOnRanks) {
  for (int64_t dim = 0; dim < 2; dim++) {
    onRanks({8, 12}, withDim({8, 12}, dim, 16), withDim({8, 12}, dim, 16), dim, DataType::Float, Cut::Block);
    onRanks({8, 12}, withDim({8, 12}, dim, 4), withDim({8, 12}, dim, 4), dim, DataType::Half, Cut::Cycle);
    onRanks({7, 5}, withDim({7, 5}, dim, 9), withDim({7, 5}, dim, 9), dim, DataType::Int32, Cut::Block);
  }
}

TEST(PutByIndex, IndexPutAccumulateOnRanks) {
  onRanks({8, 4}, {12}, {12, 4}, kAdds, DataType::Float, Cut::Block);
  onRanks({8, 4, 3}, {4, 5}, {4, 5, 4, 3}, kAdds, DataType::BFloat16, Cut::Block);
  onRanks({8, 4}, {12}, {12, 4}, kAdds, DataType::Double, Cut::Cycle);
  onRanks({5, 3}, {7}, {7, 3}, kAdds, DataType::Int, Cut::Block);
  onRanks({3}, {6, 5}, {6, 5}, kAdds, DataType::Short, Cut::Block);
}

}  // namespace
}  // namespace meshfuse
