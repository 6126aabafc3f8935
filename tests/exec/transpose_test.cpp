// Transposes on this machine's processor against the reference interpreter: blocks, rests of blocks, types, strides, streaming stores.
#include <gtest/gtest.h>

#include "exec/fusion_executor_cache.h"
#include "interpret/interpret.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {

namespace {

using Tensors = std::vector<TensorView*>;
using Turn = std::function<TensorView*(const Tensors&)>;

// The results are equal, bit for bit: the fusions move elements, or compute them exactly.
void expectEqual(const std::vector<Tensor>& inputs, const Turn& turn) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    Tensors ins;
    for (const Tensor& t : inputs) {
      ins.push_back(makeSymbolicTensor(t.dim(), t.dtype()));
      fusion->addInput(ins.back());
    }
    fusion->addOutput(turn(ins));
  }
  const std::vector<Argument> arguments(inputs.begin(), inputs.end());
  const std::vector<Tensor> expected = interpret(*fusion, arguments);
  FusionExecutorCache cache(std::move(fusion), {.threads = 2});
  EXPECT_EQ(cache.runFusionWithInputs(arguments)[0].toVector(), expected[0].toVector())
      << inputs[0].sizes()[0] << " x " << inputs[0].sizes()[1] << " " << name(inputs[0].dtype()) << "\n"
      << cache.planText();
}

TensorView* turned(const Tensors& t) { return permute(t[0], {1, 0}); }

TEST(Transpose, BlocksAndTheirRests) {
  for (int64_t m : {8, 15, 16, 17, 63, 64, 65, 130, 300}) {
    for (int64_t n : {9, 16, 33, 64, 127, 129, 520}) {
      expectEqual({randomTensor({m, n}, DataType::Float, 1)}, turned);
    }
  }
}

TEST(Transpose, Types) {
  for (DataType type : {DataType::BFloat16, DataType::Half, DataType::Double, DataType::Int, DataType::Int32,
                        DataType::Short, DataType::Char, DataType::UInt16, DataType::Byte, DataType::Bool}) {
    expectEqual({randomTensor({150, 210}, type, 1)}, turned);
    expectEqual({randomTensor({256, 512}, type, 1)}, turned);
  }
}

// Results larger than the caches are stored past them.
TEST(Transpose, LargeMatrices) {
  for (const auto& [m, n] : {std::pair{int64_t{2112}, int64_t{1024}}, {2047, 1031}, {70000, 33}}) {
    expectEqual({randomTensor({m, n}, DataType::Float, 1)}, turned);
  }
  expectEqual({randomTensor({16, 304, 480}, DataType::Float, 1)}, [](const Tensors& t) {
    return permute(t[0], {2, 0, 1});
  });
}

TEST(Transpose, OfStridedTensors) {
  const Tensor part = randomTensor({300, 200}, DataType::Float, 1).slice(0, 3, 290).slice(1, 5, 190);
  const Tensor other = randomTensor({185, 287}, DataType::Float, 2);
  expectEqual({part}, turned);
  expectEqual({part, other}, [](const Tensors& t) { return add(permute(t[0], {1, 0}), t[1]); });
  expectEqual({part.transpose(0, 1), other}, [](const Tensors& t) { return sub(t[0], t[1]); });
  expectEqual({randomTensor({300, 200}, DataType::Float, 1).slice(1, 0, 200, 2)}, turned);
}

TEST(Transpose, WithNeighbours) {
  const Tensor x = randomTensor({200, 300}, DataType::Float, 1);
  const Tensor y = randomTensor({300, 200}, DataType::Float, 2);
  expectEqual({x, y}, [](const Tensors& t) {
    return castOp(DataType::BFloat16, add(permute(neg(t[0]), {1, 0}), t[1]));
  });
  expectEqual({x}, [](const Tensors& t) { return permute(pad(t[0], {2, 3, 1, 0}, 7.0), {1, 0}); });
  expectEqual({x}, [](const Tensors& t) { return slice(permute(t[0], {1, 0}), {5, 3}, {296, 183}); });
  expectEqual({randomTensor({2, 48, 13, 11}, DataType::Float, 3)}, [](const Tensors& t) {
    return permute(t[0], {0, 2, 3, 1});
  });
}

}  // namespace

}  // namespace meshfuse
