// Attention on kernels, with rows that see nothing, special values, no columns, and sizes around those of vectors.
#include <gtest/gtest.h>

#include <cmath>

#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "stress/checked_cache.h"
#include "stress/on_ranks.h"

namespace meshfuse {

namespace {

struct Inputs {
  TensorView* q;
  TensorView* k;
  TensorView* v;
};

Inputs operands(Fusion& f, DataType type) {
  std::vector<TensorView*> all;
  for (int i = 0; i < 3; i++) {
    all.push_back(makeContigTensor(4, type));
    f.addInput(all.back());
  }
  return {all[0], all[1], all[2]};
}

TEST(AttentionOnKernels, SizesAroundThoseOfVectors) {
  for (DataType type : {DataType::Float, DataType::Half, DataType::BFloat16, DataType::Double}) {
    std::vector<std::vector<Argument>> calls;
    for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 1}, {3, 7}, {7, 3}, {16, 17}, {5, 64}, {33, 33}, {2, 0}, {0, 4}}) {
      calls.push_back(
          {random({2, 3, rows, 5}, 1, type), random({2, 3, columns, 5}, 2, type), random({2, 3, columns, 4}, 3, type)});
    }
    for (bool causal : {false, true}) {
      expectAgrees(
          [=](Fusion& f) {
            const Inputs x = operands(f, type);
            const SdpfaFwdResult y = sdpfa_fwd(x.q, x.k, x.v, 0.0, causal);
            f.addOutput(y.output);
            f.addOutput(y.log_sumexp);
          },
          calls);
    }
  }
}

// [1, 2, 4, 6]: rows that see all, one, nothing, and the last alone; in half of the calls some scores are -inf by the bias.
TEST(AttentionOnKernels, RowsThatSeeNothingAreZeros) {
  Tensor mask = Tensor::zeros({4, 6}, DataType::Bool);
  for (int64_t j = 0; j < 6; j++) {
    mask.set(std::vector<int64_t>{0, j}, 1);
  }
  mask.set(std::vector<int64_t>{1, 2}, 1);
  mask.set(std::vector<int64_t>{3, 5}, 1);
  for (DataType type : {DataType::Float, DataType::BFloat16}) {
    for (bool infinite : {false, true}) {
      Tensor bias = Tensor::zeros({4, 6}, DataType::Float);
      if (infinite) {
        bias.set(std::vector<int64_t>{1, 2}, -kInf);
        bias.set(std::vector<int64_t>{0, 0}, -kInf);
      }
      CheckedCache checked([=](Fusion& f) {
        const Inputs x = operands(f, type);
        TensorView* b = makeContigTensor(2);
        TensorView* m = makeContigTensor(2, DataType::Bool);
        f.addInput(b);
        f.addInput(m);
        const SdpfaFwdResult y = sdpfa_fwd(x.q, x.k, x.v, b, m);
        f.addOutput(y.output);
        f.addOutput(y.log_sumexp);
        const SdpfaBwdResult d = sdpfa_bwd(y.output, x.q, x.k, x.v, y.output, y.log_sumexp, nullptr, 0.0, false,
                                           static_cast<Val*>(nullptr), b, m);
        f.addOutput(d.grad_query);
        f.addOutput(d.grad_key);
        f.addOutput(d.grad_value);
      });
      ASSERT_EQ(checked.call({random({1, 2, 4, 5}, 1, type), random({1, 2, 6, 5}, 2, type),
                              random({1, 2, 6, 3}, 3, type), bias, mask}),
                "");
      for (int64_t h = 0; h < 2; h++) {
        for (int64_t row : infinite ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{2}) {
          EXPECT_EQ(checked.results()[0].at({0, h, row, 0}), 0);
          EXPECT_EQ(checked.results()[1].at({0, h, row}), -kInf);
          EXPECT_EQ(checked.results()[2].at({0, h, row, 0}), 0);
        }
        EXPECT_TRUE(std::isfinite(checked.results()[1].at({0, h, 3})));
      }
      for (size_t gradient : {3, 4}) {
        for (double value : checked.results()[gradient].toVector()) {
          EXPECT_TRUE(std::isfinite(value));
        }
      }
    }
  }
}

TEST(AttentionOnKernels, NanAndInfinityStayInTheirRows) {
  Tensor q = random({1, 1, 4, 3}, 1);
  q.set(std::vector<int64_t>{0, 0, 1, 2}, kNan);
  q.set(std::vector<int64_t>{0, 0, 3, 0}, kInf);
  CheckedCache checked([=](Fusion& f) {
    const Inputs x = operands(f, DataType::Float);
    f.addOutput(sdpfa_fwd(x.q, x.k, x.v).output);
  });
  ASSERT_EQ(checked.call({q, random({1, 1, 5, 3}, 2), random({1, 1, 5, 2}, 3)}), "");
  for (int64_t row : {0, 2}) {
    EXPECT_TRUE(std::isfinite(checked.results()[0].at({0, 0, row, 0})));
  }
  EXPECT_TRUE(std::isnan(checked.results()[0].at({0, 0, 1, 0})));
}

// Keys cut over ranks: some ranks hold no key that a row sees, and one holds no key at all.
TEST(AttentionOnKernels, PartsThatARowDoesNotSee) {
  for (int64_t columns : {8, 5}) {
    Tensor mask = Tensor::zeros({6, columns}, DataType::Bool);
    for (int64_t i = 0; i < 5; i++) {
      mask.set(std::vector<int64_t>{i, (3 * i) % columns}, 1);
    }
    expectAgreesOnRanks(
        [=](Fusion& f, int64_t ranks) {
          TensorView* q = makeContigConcreteTensor({2, 6, 3});
          TensorView* k = makeContigConcreteTensor({2, columns, 3});
          TensorView* v = makeContigConcreteTensor({2, columns, 4});
          TensorView* m = makeContigConcreteTensor({6, columns}, DataType::Bool);
          for (TensorView* tv : {q, k, v, m}) {
            f.addInput(tv);
          }
          for (bool masked : {true, false}) {
            const SdpfaFwdResult y = sdpfa_fwd(q, k, v, nullptr, masked ? m : nullptr, 0.0, !masked);
            f.addOutput(y.output);
            f.addOutput(y.log_sumexp);
          }
          q->setDeviceMesh(DeviceMesh::createForNumDevices(ranks));
          cut(k, 1, ranks);
          cut(v, 1, ranks);
          cut(m, 1, ranks);
        },
        {{{random({2, 6, 3}, 1), random({2, columns, 3}, 2), random({2, columns, 4}, 3), mask}}});
  }
}

}  // namespace

}  // namespace meshfuse
