// Which loads of GPU kernels are marked as read once.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/ranges.h"
#include "device/device_info.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"
#include "schedule/kernel_check.h"
#include "schedule/template.h"

namespace meshfuse {
namespace {

using Build = std::function<TensorView*(const std::vector<TensorView*>&)>;

// For each load of the kernel, whether it is marked.
std::vector<bool> marksOf(const std::vector<std::vector<int64_t>>& shapes, const Build& build,
                          const DeviceInfo& device) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  std::vector<TensorView*> inputs;
  for (const std::vector<int64_t>& shape : shapes) {
    inputs.push_back(makeContigConcreteTensor(shape));
    fusion.addInput(inputs.back());
  }
  fusion.addOutput(build(inputs));
  const Verdict verdict = judge(wholeGroup(fusion), device, allTemplates());
  if (verdict.judgement == nullptr) {
    ADD_FAILURE() << verdict.refusal;
    return {};
  }
  const auto plan = std::get<KernelPlan>(verdict.judgement->write());
  std::vector<bool> marks;
  for (const tile::Value& v : plan.program.values) {
    if (v.kind == tile::ValueKind::Load && plan.program.tensors[v.param].memory == tile::Memory::Input) {
      marks.push_back(v.cache == tile::Cache::Once);
    }
  }
  return marks;
}

std::vector<bool> onGpu(const std::vector<std::vector<int64_t>>& shapes, const Build& build) {
  return marksOf(shapes, build, DeviceInfo::hopper());
}

TensorView* sumOfBoth(const std::vector<TensorView*>& in) { return add(in[0], in[1]); }

TEST(StreamedReads, AreOfLargeTensorsWhoseElementsOneThreadReads) {
  EXPECT_EQ(onGpu({{16384, 4096}, {16384, 4096}}, sumOfBoth), (std::vector<bool>{true, true}));
  EXPECT_EQ(onGpu({{16384, 4096}, {4096}}, sumOfBoth), (std::vector<bool>{true, false})) << "a row for all rows";
  EXPECT_EQ(onGpu({{1024, 512}, {1024, 512}}, sumOfBoth), (std::vector<bool>{false, false})) << "fit in the last cache";
}

TEST(StreamedReads, AreNotOfElementsAtSeveralPositions) {
  const Build repeated = [](const auto& in) {
    return reshape(expand(unsqueeze(in[0], 1), {8192, 2, 4096}), {16384, 4096});
  };
  EXPECT_EQ(onGpu({{8192, 4096}}, repeated), (std::vector<bool>{false})) << "each row twice";
  const Build batch = [](const auto& in) { return add(permute(in[0], {0, 2, 1}), in[1]); };
  EXPECT_EQ(onGpu({{4, 4096, 4096}, {4096, 4096}}, batch), (std::vector<bool>{true, false}))
      << "a matrix for each of a batch";
}

TEST(StreamedReads, AreOfRowsThatStayInRegisters) {
  const Build rows = [](const auto& in) { return softmax(in[0], 1); };
  EXPECT_EQ(onGpu({{16384, 4096}}, rows), (std::vector<bool>{true}));
  for (const bool once : onGpu({{512, 131072}}, rows)) {
    EXPECT_FALSE(once) << "rows that are read again";
  }
}

TEST(StreamedReads, AreOfTransposedAndReducedTensors) {
  EXPECT_EQ(onGpu({{16384, 4096}}, [](const auto& in) { return transpose(in[0], 0, 1); }), (std::vector<bool>{true}));
  EXPECT_EQ(onGpu({{16384, 4096}}, [](const auto& in) { return sum(in[0], {0}); }), (std::vector<bool>{true}));
}

TEST(StreamedReads, AreOnGpusAlone) {
  EXPECT_EQ(marksOf({{16384, 4096}, {16384, 4096}}, sumOfBoth, DeviceInfo{}), (std::vector<bool>{false, false}));
}

}  // namespace
}  // namespace meshfuse
