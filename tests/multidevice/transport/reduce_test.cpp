#include "multidevice/transport/reduce.h"

#include <gtest/gtest.h>

#include <cstring>

#include "multidevice/transport/reduce_target.h"
#include "multidevice/transport/reference.h"
#include "tensor/half.h"

namespace meshfuse {
namespace {

using ReduceKernel = void (*)(const ReduceRange&, DataType, ReduceOp);

std::vector<ReduceKernel> kernelsOfThisMachine() {
  std::vector<ReduceKernel> kernels = {kBaselineKernels.reduce};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) {
    kernels.push_back(kAvx2Kernels.reduce);
  }
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    kernels.push_back(kAvx512Kernels.reduce);
  }
  return kernels;
}

TEST(ReduceTest, EveryTypeAndOperationAgreesWithThePlainLoop) {
  for (ReduceKernel kernel : kernelsOfThisMachine()) {
    for (const DataTypeInfo& type : kDataTypes) {
      for (ReduceOp op : kReduceOps) {
        for (int ranks : {2, 3, 5}) {
          for (int64_t count : {0, 1, 7, 16, 33, 64, 127, 131, 1000}) {
            std::vector<Bytes> inputs;
            std::vector<const void*> pointers;
            for (int r = 0; r < ranks; ++r) {
              inputs.push_back(testData(type.type, count, r, 42, true));
            }
            for (const Bytes& in : inputs) {
              pointers.push_back(in.data());
            }
            Bytes out(inputs[0].size());
            kernel({pointers, out.data(), count}, type.type, op);
            const Bytes expected = referenceReduce(inputs, type.type, op);
            ASSERT_EQ(firstDifference(out, expected, type.type), -1)
                << type.name << " " << name(op) << " of " << ranks << " x " << count;
          }
        }
      }
    }
  }
}

TEST(ReduceTest, TheResultMayReplaceAnInput) {
  for (int where : {0, 1, 2}) {
    std::vector<Bytes> inputs;
    for (int r = 0; r < 3; ++r) {
      inputs.push_back(testData(DataType::Float, 777, r, 1));
    }
    const Bytes expected = referenceReduce(inputs, DataType::Float, ReduceOp::Sum);
    const void* pointers[] = {inputs[0].data(), inputs[1].data(), inputs[2].data()};
    Bytes& out = inputs[where];
    reduceInRankOrder(pointers, out.data(), 777, DataType::Float, ReduceOp::Sum);
    EXPECT_EQ(out, expected);
  }
}

TEST(ReduceTest, UnalignedBuffersWork) {
  std::vector<Bytes> inputs = {testData(DataType::Half, 101, 0, 1), testData(DataType::Half, 101, 1, 1)};
  const Bytes expected = referenceReduce(inputs, DataType::Half, ReduceOp::Sum);
  Bytes shifted(2 + inputs[0].size());
  std::memcpy(shifted.data() + 2, inputs[0].data(), inputs[0].size());
  Bytes out(2 + inputs[0].size());
  const void* pointers[] = {shifted.data() + 2, inputs[1].data()};
  reduceInRankOrder(pointers, out.data() + 2, 101, DataType::Half, ReduceOp::Sum);
  EXPECT_EQ(Bytes(out.begin() + 2, out.end()), expected);
}

// One rounding at the end: 1 + 8/256 is 1.03125 in bfloat16, while rounding at each step would stay at 1.
TEST(ReduceTest, SixteenBitSumsRoundOnce) {
  const uint16_t one = floatToBFloat16(1.0f);
  const uint16_t small = floatToBFloat16(1.0f / 256);
  std::vector<const void*> pointers = {&one};
  pointers.resize(9, &small);
  uint16_t out = 0;
  reduceInRankOrder(pointers, &out, 1, DataType::BFloat16, ReduceOp::Sum);
  EXPECT_EQ(bfloat16ToFloat(out), 1.03125f);
}

// (1e8 + 1) - 1e8 is 0 in float, from the left; any other order gives 1.
TEST(ReduceTest, SumsAreLeftToRight) {
  const float values[] = {1e8f, 1.0f, -1e8f};
  const void* pointers[] = {&values[0], &values[1], &values[2]};
  float out = -1;
  reduceInRankOrder(pointers, &out, 1, DataType::Float, ReduceOp::Sum);
  EXPECT_EQ(out, 0.0f);
}

}  // namespace
}  // namespace meshfuse
