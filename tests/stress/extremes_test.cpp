// Where the largest and the smallest element of a row is, whatever the row holds, on one rank and on several.
#include <gtest/gtest.h>

#include <cmath>

#include "meshfuse/meshfuse.h"
#include "multidevice/transport/loopback/loopback.h"
#include "stress/checked_cache.h"
#include "stress/on_ranks.h"
#include "stress/special_values.h"

namespace meshfuse {

namespace {

// The first NaN, else the first of the extreme ones.
double firstExtreme(const std::vector<double>& row, bool largest) {
  size_t best = 0;
  for (size_t k = 0; k < row.size(); k++) {
    if (std::isnan(row[k])) {
      return static_cast<double>(k);
    }
    if (largest ? row[k] > row[best] : row[k] < row[best]) {
      best = k;
    }
  }
  return static_cast<double>(best);
}

std::vector<double> firstExtremes(const Tensor& rows, bool largest) {
  std::vector<double> result;
  for (int64_t r = 0; r < rows.size(0); r++) {
    std::vector<double> row;
    for (int64_t k = 0; k < rows.size(1); k++) {
      row.push_back(rows.at({r, k}));
    }
    result.push_back(firstExtreme(row, largest));
  }
  return result;
}

class Extremes : public ::testing::TestWithParam<DataType> {};

INSTANTIATE_TEST_SUITE_P(Type, Extremes,
                         ::testing::Values(DataType::Float, DataType::Double, DataType::Half, DataType::BFloat16),
                         [](const auto& p) { return std::string(name(p.param)); });

TEST_P(Extremes, OfStressRows) {
  CheckedCache checked([](Fusion& f) {
    TensorView* x = makeContigTensor(2, GetParam());
    f.addInput(x);
    f.addOutput(argmax(x, 1));
    f.addOutput(argmin(x, 1));
    f.addOutput(argmax(transpose(x), 0));
    f.addOutput(argmax(x));
  });
  for (int64_t n : {1, 2, 5, 16, 33, 100, 1000}) {
    const Tensor x = stressRows(n, GetParam());
    ASSERT_EQ(checked.call({x}), "") << n;
    EXPECT_EQ(checked.results()[0].toVector(), firstExtremes(x, true)) << n;
    EXPECT_EQ(checked.results()[1].toVector(), firstExtremes(x, false)) << n;
    EXPECT_EQ(checked.results()[2].toVector(), firstExtremes(x, true)) << n;
    EXPECT_EQ(checked.results()[3].item(), firstExtreme(x.toVector(), true)) << n;
  }
}

TEST_P(Extremes, OfStressRowsCutOverRanks) {
  const DataType type = GetParam();
  for (int64_t length : {4, 20, 101}) {  // 101 elements do not divide by the ranks
    const Tensor rows = stressRows(length, type);
    for (int ranks : {2, 4}) {
      runLoopback(ranks,
                  [&](Communicator& comm) {
                    auto fusion = std::make_unique<Fusion>();
                    {
                      FusionGuard guard(fusion.get());
                      TensorView* x = makeContigConcreteTensor({stressRowCount(), length}, type);
                      fusion->addInput(x);
                      cut(x, 1, ranks);
                      for (TensorView* y : {argmax(x, 1), argmin(x, 1), argmax(x)}) {
                        y->setDeviceMesh(DeviceMesh::createForNumDevices(ranks));
                        fusion->addOutput(y);
                      }
                    }
                    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm, .verify = Verify::Always});
                    const Tensor mine = shardTensor(rows, cache.fusion().inputs()[0]->asTensor(), comm.rank());
                    for (int call = 0; call < 2; call++) {
                      const std::vector<Tensor> got = cache.runFusionWithInputs({mine});
                      EXPECT_EQ(got[0].toVector(), firstExtremes(rows, true)) << length << " on " << ranks;
                      EXPECT_EQ(got[1].toVector(), firstExtremes(rows, false)) << length << " on " << ranks;
                      EXPECT_EQ(got[2].item(), firstExtreme(rows.toVector(), true)) << length << " on " << ranks;
                    }
                  },
                  {.deadline = std::chrono::milliseconds(60'000)});
    }
  }
}

// Rounding in the middle makes equal ones of those that are not: then the first counts, not the one that was the largest.
TEST(ExtremesOfRounded, AreThoseOfTheRoundedValues) {
  for (DataType narrow : {DataType::BFloat16, DataType::Half}) {
    for (bool forced : {false, true}) {
      CheckedCache checked([=](Fusion& f) {
        TensorView* x = makeContigTensor(2);
        f.addInput(x);
        TensorView* rounded = castOp(narrow, x);
        rounded = castOp(DataType::Float, forced ? segment_set(rounded) : rounded);
        f.addOutput(argmax(rounded, 1));
        f.addOutput(argmax(x, 1));
        f.addOutput(index_select(transpose(x), 0, argmax(rounded, 1)));
      });
      Tensor x = Tensor::empty({5, 40}, DataType::Float);
      for (int64_t r = 0; r < 5; r++) {
        for (int64_t k = 0; k < 40; k++) {  // steps far smaller than a rounding
          x.set(std::vector<int64_t>{r, k}, 1 + static_cast<double>((k * (r + 3)) % 40) * 1e-6);
        }
      }
      ASSERT_EQ(checked.call({x}), "");
      EXPECT_EQ(checked.results()[0].toVector(), std::vector<double>(5, 0)) << name(narrow);
      EXPECT_EQ(checked.results()[1].toVector(), firstExtremes(x, true));
    }
  }
}

TEST(ExtremesOfRounded, OnRanksToo) {
  for (int64_t n : {8, 10}) {
    Tensor x = Tensor::empty({n, 3}, DataType::Float);
    for (int64_t k = 0; k < n * 3; k++) {
      x.set(std::vector<int64_t>{k / 3, k % 3}, 1 + static_cast<double>((k * 7) % 30) * 1e-6);
    }
    expectAgreesOnRanks(
        [=](Fusion& f, int64_t ranks) {
          TensorView* in = makeContigConcreteTensor({n, 3});
          f.addInput(in);
          TensorView* rounded = castOp(DataType::Float, castOp(DataType::BFloat16, in));
          f.addOutput(argmax(rounded, 0));
          f.addOutput(argmin(rounded, 0));
          f.addOutput(argmax(in, 0));
          f.addOutput(eq(rounded, in));
          f.addOutput(floor(sub(in, rounded)));
          cut(in, 0, ranks);
        },
        {{{x}}});
  }
}

}  // namespace

}  // namespace meshfuse
