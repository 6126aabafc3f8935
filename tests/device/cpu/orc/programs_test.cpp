// Every example program against the tile interpreter, over sizes around the vectors and parts, with guards around outputs.
#include <gtest/gtest.h>

#include <map>

#include "base/thread_pool.h"
#include "device/cpu/orc/cpu_compiler.h"
#include "device/cpu/orc/run_program.h"
#include "tile/interpreter.h"
#include "tile/programs.h"

namespace meshfuse {
namespace {

using tile::Example;
using tile::Target;

// Widths of vectors to cut a program for: this machine's, and those of older ones.
std::vector<int> widths() {
  std::vector<int> list{16};
  for (int bytes : {32, 64}) {
    if (hostTarget().vectorBytes >= bytes) {
      list.push_back(bytes);
    }
  }
  return list;
}

CpuCompiler& compilerOf(int bytes) {
  static std::map<int, std::unique_ptr<CpuCompiler>> compilers;
  std::unique_ptr<CpuCompiler>& c = compilers[bytes];
  if (!c) {
    CpuTarget host = hostTarget();
    c = std::make_unique<CpuCompiler>(
        CpuCompilerOptions{.target = bytes == host.vectorBytes ? host : narrowerTarget(host, bytes)});
  }
  return *c;
}

// `steps`: how many roundings of the element type a result may be off.
void compareAll(const std::vector<Example>& examples, double steps) {
  for (int bytes : widths()) {
    std::vector<tile::Program> programs;
    for (const Example& e : examples) {
      ASSERT_EQ(tile::verify(e.program), std::vector<std::string>{}) << tile::toString(e.program);
      programs.push_back(e.program);
    }
    std::vector<std::shared_ptr<const CpuKernel>> kernels = compilerOf(bytes).compile(programs);
    for (size_t i = 0; i < examples.size(); i++) {
      SCOPED_TRACE(examples[i].program.name + " " + ::testing::PrintToString(examples[i].sizes) + " vector bytes " +
                   std::to_string(bytes));
      compareWithInterpreter(examples[i], *kernels[i], steps);
      if (::testing::Test::HasFailure()) {
        return;
      }
    }
  }
}

constexpr DataType kFloats[] = {DataType::Float, DataType::Double, DataType::Half, DataType::BFloat16};

TEST(CpuPrograms, Add) {
  std::vector<Example> examples;
  for (DataType d : kFloats) {
    for (int64_t n : {1, 15, 16, 17, 63, 64, 65, 511, 512, 513, 1600, 4099}) {
      examples.push_back(tile::addProgram(Target::Cpu, d, n));
    }
  }
  compareAll(examples, 0);
}

TEST(CpuPrograms, BiasGelu) {
  std::vector<Example> examples;
  for (DataType d : kFloats) {
    for (auto [m, n] : {std::pair{1, 1}, {3, 17}, {17, 64}, {5, 129}, {33, 200}}) {
      examples.push_back(tile::biasGeluProgram(Target::Cpu, d, m, n));
    }
  }
  compareAll(examples, 64);  // 1 + erf cancels for negative inputs
}

TEST(CpuPrograms, Softmax) {
  std::vector<Example> examples;
  for (DataType d : kFloats) {
    for (auto [m, n] : {std::pair{1, 1}, {3, 17}, {17, 64}, {5, 129}, {33, 200}, {2, 1000}}) {
      examples.push_back(tile::softmaxProgram(Target::Cpu, d, m, n));
    }
  }
  compareAll(examples, 16);
}

TEST(CpuPrograms, LayerNorm) {
  std::vector<Example> examples;
  for (DataType d : kFloats) {
    for (auto [m, n] : {std::pair{1, 1}, {3, 17}, {17, 64}, {5, 129}, {33, 200}, {2, 1000}}) {
      examples.push_back(tile::layerNormProgram(Target::Cpu, d, m, n));
    }
  }
  compareAll(examples, 64);
}

TEST(CpuPrograms, Sums) {
  std::vector<Example> examples;
  for (DataType d : kFloats) {
    for (auto [m, n] : {std::pair{1, 1}, {3, 17}, {17, 64}, {5, 129}, {33, 200}, {2, 1000}, {100, 7}}) {
      examples.push_back(tile::innerSumProgram(Target::Cpu, d, m, n));
      examples.push_back(tile::outerSumProgram(Target::Cpu, d, m, n));
    }
  }
  compareAll(examples, 64);
}

TEST(CpuPrograms, Movement) {
  std::vector<Example> examples;
  for (DataType d : kFloats) {
    for (auto [m, n] : {std::pair{1, 1}, {3, 17}, {17, 64}, {5, 129}, {33, 200}}) {
      examples.push_back(tile::transposeProgram(Target::Cpu, d, m, n));
      examples.push_back(tile::padCatProgram(Target::Cpu, d, m, n, 5));
      examples.push_back(tile::gatherProgram(Target::Cpu, d, 11, m, n));
    }
  }
  compareAll(examples, 0);
}

TEST(CpuPrograms, Shifts) {
  std::vector<Example> examples;
  for (DataType d : kFloats) {
    for (auto [m, n] : {std::pair{1, 16}, {3, 64}, {33, 128}}) {
      examples.push_back(tile::shiftProgram(d, m, n));
    }
  }
  compareAll(examples, 0);
}

TEST(CpuPrograms, Dropout) {
  std::vector<Example> examples;
  for (DataType d : kFloats) {
    for (int64_t n : {1, 17, 64, 1000}) {
      examples.push_back(tile::dropoutProgram(Target::Cpu, d, n));
    }
  }
  compareAll(examples, 1);
}

TEST(CpuPrograms, Representative) {
  std::vector<Example> examples;
  for (const tile::NamedExample& e : tile::representativePrograms()) {
    if (e.example.program.target == Target::Cpu) {
      examples.push_back(e.example);
    }
  }
  ASSERT_FALSE(examples.empty());
  compareAll(examples, 64);
}

}  // namespace
}  // namespace meshfuse
