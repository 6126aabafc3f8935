// Groups whose tensors lie along two dims: which the template takes, its tile programs, and their results.
#include "schedule/transpose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "ops/activation.h"
#include "ops/indexing.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"
#include "sanitized.h"
#include "schedule/kernel_check.h"

namespace meshfuse {

namespace {

using Tensors = std::vector<TensorView*>;
using Shape = std::vector<int64_t>;
using BuildAll = std::function<Tensors(const Tensors&)>;

TensorView* turned(TensorView* x) { return permute(x, {1, 0}); }

class Transpose : public ::testing::TestWithParam<tile::Target> {
 protected:
  static DeviceInfo device() { return GetParam() == tile::Target::Cpu ? DeviceInfo{} : DeviceInfo::hopper(); }

  // `build` over contiguous inputs of these shapes, as one kernel.
  static KernelCheck run(const std::vector<Shape>& shapes, const BuildAll& build, DataType type = DataType::Float,
                         const DeviceInfo& device = Transpose::device()) {
    Fusion fusion;
    FusionGuard guard(&fusion);
    Tensors ins;
    std::vector<Argument> arguments;
    for (size_t i = 0; i < shapes.size(); i++) {
      ins.push_back(makeContigConcreteTensor(shapes[i], type));
      fusion.addInput(ins.back());
      arguments.emplace_back(randomTensor(shapes[i], type, i + 1, -2, 2));
    }
    for (TensorView* out : build(ins)) {
      fusion.addOutput(out);
    }
    KernelCheck result = checkKernel(fusion, device, arguments);
    EXPECT_EQ(result.difference, "");
    return result;
  }
  // The same, and it is a transpose that reads each element of its whole inputs once and writes each of its outputs once.
  static KernelCheck runOnce(const std::vector<Shape>& shapes, const BuildAll& build, DataType type = DataType::Float) {
    KernelCheck c = run(shapes, build, type);
    EXPECT_EQ(c.plan.kind, "transpose");
    for (size_t i = 0; i < c.plan.program.tensors.size(); i++) {
      const tile::TensorParam& tensor = c.plan.program.tensors[i];
      const tile::Traffic& t = c.traffic.tensors[i];
      const bool isWhole = tensor.extents.size() > 1 && tensor.memory == tile::Memory::Input;
      EXPECT_TRUE(!isWhole || t.readBytes == t.distinctReadBytes)
          << "tensor " << i << ": " << t.readBytes << " bytes read, " << t.distinctReadBytes << " of them distinct\n"
          << tile::toString(c.plan.program);
      EXPECT_TRUE(tensor.memory != tile::Memory::Output || t.writtenBytes == t.distinctWrittenBytes);
    }
    return c;
  }
};

INSTANTIATE_TEST_SUITE_P(Device, Transpose, ::testing::Values(tile::Target::Cpu, tile::Target::Gpu),
                         [](const auto& p) { return p.param == tile::Target::Cpu ? "Cpu" : "Gpu"; });

Tensors onlyTurned(const Tensors& t) { return {turned(t[0])}; }

TEST_P(Transpose, Matrices) {
  for (const Shape& shape : {Shape{64, 64}, {128, 256}, {33, 129}, {8, 1024}, {1024, 8}, {67, 513}, {255, 17}}) {
    runOnce({shape}, onlyTurned);
  }
}

TEST_P(Transpose, AllSmallShapes) {
  for (int64_t m = 1; m <= 20; m++) {
    for (int64_t n : {1, 2, 7, 8, 15, 16, 17, 31, 33}) {
      run({{m, n}}, onlyTurned);
      run({{16, m, n}}, [](const Tensors& t) { return Tensors{permute(t[0], {0, 2, 1})}; });
    }
  }
}

TEST_P(Transpose, Types) {
  for (DataType type : {DataType::Half, DataType::BFloat16, DataType::Double, DataType::Int, DataType::Int32,
                        DataType::Short, DataType::Char, DataType::Bool}) {
    runOnce({{70, 90}}, onlyTurned, type);
    runOnce({{128, 64}}, onlyTurned, type);
  }
}

TEST_P(Transpose, Permutes) {
  runOnce({{4, 32, 40}}, [](const Tensors& t) { return Tensors{permute(t[0], {2, 0, 1})}; });
  runOnce({{4, 32, 40}}, [](const Tensors& t) { return Tensors{permute(t[0], {0, 2, 1})}; });
  runOnce({{9, 32, 40}}, [](const Tensors& t) { return Tensors{permute(t[0], {2, 1, 0})}; });
  runOnce({{2, 24, 10, 11}}, [](const Tensors& t) { return Tensors{permute(t[0], {0, 2, 3, 1})}; });
  runOnce({{2, 10, 11, 24}}, [](const Tensors& t) { return Tensors{permute(t[0], {0, 3, 1, 2})}; });
}

// The dims that follow one another in the memory of all tensors are one axis: 2 x 3 blocks, not 8.
TEST_P(Transpose, NeighboursAreOneAxis) {
  const KernelCheck c = runOnce({{8, 16, 256}}, [](const Tensors& t) { return Tensors{permute(t[0], {2, 0, 1})}; });
  EXPECT_NE(tile::toString(c.plan.program).find("m < 128 = "), std::string::npos) << tile::toString(c.plan.program);
}

TEST_P(Transpose, WithPointwiseNeighbours) {
  runOnce({{70, 90}, {90}}, [](const Tensors& t) { return Tensors{turned(tanh(add(t[0], t[1])))}; });
  runOnce({{70, 90}, {70}}, [](const Tensors& t) { return Tensors{mul(turned(t[0]), t[1])}; });
  runOnce({{70, 90}, {90, 70}}, [](const Tensors& t) { return Tensors{add(exp(turned(t[0])), t[1])}; });
  runOnce({{70, 90}, {70, 90}, {90, 70}}, [](const Tensors& t) { return Tensors{mul(t[2], turned(sub(t[0], t[1])))}; });
  run({{70, 70}}, [](const Tensors& t) { return Tensors{add(t[0], turned(t[0]))}; });
}

TEST_P(Transpose, OutputsInBothOrders) {
  runOnce({{70, 90}}, [](const Tensors& t) {
    TensorView* y = neg(t[0]);
    return Tensors{y, turned(y)};
  });
  runOnce({{70, 90}}, [](const Tensors& t) { return Tensors{turned(t[0]), exp(t[0]), turned(neg(t[0]))}; });
}

// The exchanged values have the narrower of the two types.
TEST_P(Transpose, Casts) {
  const KernelCheck wider = runOnce(
      {{70, 90}}, [](const Tensors& t) { return Tensors{castOp(DataType::Float, turned(t[0]))}; }, DataType::BFloat16);
  const KernelCheck narrower =
      runOnce({{70, 90}}, [](const Tensors& t) { return Tensors{turned(castOp(DataType::BFloat16, t[0]))}; });
  for (const KernelCheck* c : {&wider, &narrower}) {
    const std::vector<tile::Value>& values = c->plan.program.values;
    const auto convert = std::ranges::find(values, tile::ValueKind::Convert, &tile::Value::kind);
    ASSERT_NE(convert, values.end());
    EXPECT_EQ(convert->dtype, DataType::BFloat16);
  }
}

TEST_P(Transpose, SlicesAndPads) {
  runOnce({{90, 100}}, [](const Tensors& t) { return Tensors{turned(slice(t[0], {3, 5}, {83, 96}))}; });
  runOnce({{90, 100}}, [](const Tensors& t) { return Tensors{slice(turned(t[0]), {5, 3}, {96, 83})}; });
  runOnce({{70, 80}}, [](const Tensors& t) { return Tensors{turned(pad(t[0], {2, 3, 1, 0}, 7.0))}; });
  runOnce({{70, 80}}, [](const Tensors& t) { return Tensors{pad(turned(t[0]), {2, 3, 1, 0}, 7.0)}; });
  runOnce({{70, 40}, {70, 30}}, [](const Tensors& t) { return Tensors{turned(cat({t[0], t[1]}, 1))}; });
  run({{70, 80}, {30, 70}}, [](const Tensors& t) { return Tensors{cat({turned(t[0]), t[1]}, 0)}; });
}

TEST_P(Transpose, StridedTensors) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeConcreteTensor({70, 90});
  TensorView* z = makeConcreteTensor({70, 90});
  fusion.addInput(x);
  fusion.addInput(z);
  fusion.addOutput(add(x, z));
  const Tensor columns = randomTensor({90, 70}, DataType::Float, 3).transpose(0, 1);
  const Tensor part = randomTensor({100, 80}, DataType::Float, 4).slice(0, 3, 93).slice(1, 5, 75).transpose(0, 1);
  const Tensor everyOther = randomTensor({90, 140}, DataType::Float, 5).slice(1, 0, 140, 2).transpose(0, 1);
  const Tensor rows = randomTensor({70, 90}, DataType::Float, 6);
  for (const Tensor& t : {columns, part, everyOther}) {
    for (const auto& [a, b] : {std::pair{t, rows}, {rows, t}, {t, t}}) {
      const KernelCheck c = checkKernel(fusion, device(), {a, b});
      EXPECT_EQ(c.difference, "");
      EXPECT_EQ(c.plan.kind, "transpose");
    }
  }
}

// A result that is stored past the caches is written by whole lines, which begin before a block: in all but the first and the last
// lines of a row no lane is masked.
TEST_P(Transpose, RowsThatBeginWithinLines) {
  const bool onCpu = GetParam() == tile::Target::Cpu;  // a GPU writes by sectors
  DeviceInfo small = device();
  small.lastCacheBytes = 64 << 10;
  const auto check = [&](const std::vector<Shape>& shapes, const BuildAll& build, DataType type = DataType::Float) {
    const KernelCheck c = run(shapes, build, type, small);
    const tile::Traffic& written = c.traffic.tensors[shapes.size()];
    EXPECT_EQ(c.plan.program.tensors[shapes.size()].extents.size() == 1, onCpu) << tile::toString(c.plan.program);
    EXPECT_EQ(written.writtenBytes, written.distinctWrittenBytes);
  };
  check({{257, 300}}, onlyTurned);
  check({{300, 150}}, onlyTurned, DataType::Double);
  if (!kSanitized) {
    for (const Shape& shape : {Shape{700, 256}, {600, 321}, {447, 259}}) {
      check({shape}, onlyTurned);
    }
    check({{520, 530}}, onlyTurned, DataType::BFloat16);
    check({{1100, 1030}}, onlyTurned, DataType::Char);
  }
  check({{2, 301, 270}}, [](const Tensors& t) { return Tensors{permute(t[0], {0, 2, 1})}; });
  check({{7, 61, 259}}, [](const Tensors& t) { return Tensors{permute(t[0], {2, 0, 1})}; });
  check({{301, 270}, {270, 301}, {301}},
        [](const Tensors& t) { return Tensors{mul(add(turned(exp(t[0])), t[1]), t[2])}; });
}

// Rows that the processor follows by itself are not fetched by instructions; lines of an input along m, one in each of many rows, are.
TEST_P(Transpose, FetchesWhatTheProcessorDoesNotFollow) {
  if (GetParam() == tile::Target::Gpu) {
    GTEST_SKIP() << "GPUs have no prefetches";
  }
  const auto fetched = [](const std::vector<Shape>& shapes, const BuildAll& build, int64_t streams, DataType type) {
    DeviceInfo small;
    small.lastCacheBytes = 64 << 10;
    small.followedStreams = streams;
    const std::string text = tile::toString(run(shapes, build, type, small).plan.program);
    std::string tensors;
    for (const char* tensor : {"x0", "x1"}) {
      tensors += text.find(std::string("prefetch ") + tensor + "[") != std::string::npos ? tensor : "";
    }
    return tensors;
  };
  const auto added = [](const Tensors& t) { return Tensors{add(t[0], turned(t[1]))}; };
  EXPECT_EQ(fetched({{256, 512}}, onlyTurned, 0, DataType::Float), "x0");
  EXPECT_EQ(fetched({{256, 512}}, onlyTurned, 32, DataType::Float), "");
  EXPECT_EQ(fetched({{1024, 128}}, onlyTurned, 32, DataType::BFloat16), "x0") << "blocks of 64 rows";
  EXPECT_EQ(fetched({{512, 256}, {256, 512}}, added, 0, DataType::Float), "x0x1");
  EXPECT_EQ(fetched({{512, 256}, {256, 512}}, added, 32, DataType::Float), "x0");
}

TEST_P(Transpose, LeavesOthersToRows) {
  const auto kindOf = [](const std::vector<Shape>& shapes, const BuildAll& build) {
    return std::string(run(shapes, build).plan.kind);
  };
  const auto rows = [](const Tensors& t) { return Tensors{permute(t[0], {0, 2, 1, 3})}; };
  EXPECT_EQ(kindOf({{64, 80}}, [](const Tensors& t) { return Tensors{neg(t[0])}; }), "pointwise");
  EXPECT_EQ(kindOf({{4, 16, 8, 64}}, rows), "pointwise");
  EXPECT_EQ(kindOf({{3, 4096}}, onlyTurned), "pointwise");
  EXPECT_EQ(kindOf({{16, 16}}, onlyTurned), "pointwise");
  EXPECT_EQ(kindOf({{64, 80}}, [](const Tensors& t) { return Tensors{sum(turned(t[0]), {0})}; }), "reduction");
}

// What it cannot exchange: values along m that a result along n needs, and data of an index.
TEST_P(Transpose, RefusesWhatItCannotExchange) {
  EXPECT_EQ(run({{70, 90}, {90, 70}},
                [](const Tensors& t) {
                  return Tensors{add(t[0], turned(t[1])), add(turned(t[0]), t[1])};
                })
                .plan.kind,
            "pointwise");
}

// MESHFUSE_UPDATE_GOLDEN=1 writes the files instead of comparing with them.
TEST_P(Transpose, TilePrograms) {
  const std::string suffix = GetParam() == tile::Target::Cpu ? "cpu" : "gpu";
  const auto expectGolden = [&](const std::string& name, const KernelCheck& c) {
    const std::string path =
        std::string(MESHFUSE_SOURCE_DIR) + "/tests/schedule/golden/" + name + "_" + suffix + ".tile";
    const std::string text = tile::toString(c.plan.program);
    if (std::getenv("MESHFUSE_UPDATE_GOLDEN") != nullptr) {
      std::ofstream(path) << text;
      return;
    }
    std::ifstream file(path);
    ASSERT_TRUE(file.good()) << path << " is missing";
    std::stringstream expected;
    expected << file.rdbuf();
    EXPECT_EQ(text, expected.str()) << name;
  };
  expectGolden("transpose", run({{256, 512}}, onlyTurned));
  expectGolden("transpose_odd", run({{257, 255}}, onlyTurned));
  if (GetParam() == tile::Target::Cpu) {
    DeviceInfo small;
    small.lastCacheBytes = 64 << 10;
    expectGolden("transpose_shifted", run({{301, 270}}, onlyTurned, DataType::Float, small));
    expectGolden("transpose_lines", run({{301, 270}}, onlyTurned, DataType::BFloat16, small));
    small.l2Bytes = 64 << 10;
    expectGolden("transpose_streamed", run({{256, 512}}, onlyTurned, DataType::Float, small));
  }
  expectGolden("channels_last", run({{2, 24, 10, 11}, {24}}, [](const Tensors& t) {
                 return Tensors{castOp(DataType::BFloat16, add(permute(t[0], {0, 2, 3, 1}), t[1]))};
               }));
}

}  // namespace

}  // namespace meshfuse
