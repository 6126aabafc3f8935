// Long chains of ops that ask for their operands at other positions or in many sweeps: planned in time and text about linear in
// their length, and right.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <numeric>
#include <random>

#include "device/open.h"
#include "exec/compile.h"
#include "host/program.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/transport/communicator.h"
#include "segment/local_context.h"
#include "segment/segment.h"
#include "stress/checked_cache.h"

namespace meshfuse {

namespace {

// Planning is one thread's work: its processor time says what it costs, however busy the machine is.
double cpuSecondsOf(const std::function<void()>& call) {
  const auto now = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double start = now();
  call();
  return now() - start;
}

using Layer = std::function<TensorView*(TensorView*, std::mt19937&)>;

BuildFusion chainOf(std::vector<int64_t> shape, int layers, const Layer& layer) {
  return [=](Fusion& f) {
    std::mt19937 rng(7);
    TensorView* x = makeContigConcreteTensor(shape);
    f.addInput(x);
    for (int i = 0; i < layers; i++) {
      x = add(mul(layer(x, rng), 0.5), 0.25);
    }
    f.addOutput(x);
  };
}

struct Planned {
  double seconds = 0;
  size_t text = 0;  // of all kernels
  size_t kernels = 0;
};

Planned plan(const BuildFusion& build, const std::vector<Argument>& inputs) {
  Fusion fusion;
  {
    FusionGuard guard(&fusion);
    build(fusion);
  }
  Planned result;
  const std::shared_ptr<Device> device = openDevice(DeviceId::cpu(), {.threads = 1, .compiles = false});
  std::unique_ptr<Communicator> alone = makeSelfCommunicator();
  CompiledProgram compiled;
  result.seconds = cpuSecondsOf([&] { compiled = compile(fusion, inputs, Agreement(*alone).call(), device); });
  for (const Step& step : compiled.host->steps) {
    if (step.kind == HostStepKind::Launch) {
      result.kernels++;
      result.text += step.launch.program.size();
    }
  }
  return result;
}

// Chains of 10 and of 40 layers; a layer's share of the text may not grow.
void checkGrowth(const std::vector<int64_t>& shape, const Layer& layer) {
  const std::vector<Argument> inputs = {randomTensor(shape, DataType::Float, 1)};
  const Planned few = plan(chainOf(shape, 10, layer), inputs);
  const Planned many = plan(chainOf(shape, 40, layer), inputs);
  EXPECT_LT(many.seconds, 16 * few.seconds);  // four times the layers: less than squared
  EXPECT_LT(many.text, 8 * few.text);
  EXPECT_LT(many.text, size_t{200000});
  CheckedCache checked(chainOf(shape, 40, layer), {.verify = Verify::Off});
  EXPECT_EQ(checked.call(inputs), "");
}

// The product of the primes written with a random number of random dims.
std::vector<int64_t> factoring(std::vector<int64_t> primes, std::mt19937& rng) {
  std::shuffle(primes.begin(), primes.end(), rng);
  std::vector<int64_t> dims(2 + rng() % 4, 1);
  for (size_t i = 0; i < primes.size(); i++) {
    dims[i < dims.size() ? i : rng() % dims.size()] *= primes[i];
  }
  return dims;
}

Layer permuteAndReshape(const std::vector<int64_t>& primes) {
  return [=](TensorView* x, std::mt19937& rng) {
    std::vector<int64_t> order(x->shape().size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), rng);
    return reshape(permute(x, order), factoring(primes, rng));
  };
}

TEST(ShapeChain, ReshapesToUnrelatedFactors) { checkGrowth({4, 3, 10, 21}, permuteAndReshape({2, 2, 2, 3, 3, 5, 7})); }

TEST(ShapeChain, ReshapesToPowersOfTwo) { checkGrowth({16, 4, 4, 8}, permuteAndReshape(std::vector<int64_t>(11, 2))); }

TEST(ShapeChain, TransposedAndReadAnew) {
  checkGrowth({12, 10}, [](TensorView* x, std::mt19937&) {
    return reshape(transpose(x), x->shape()[0].isConst(12) ? IntList{15, 8} : IntList{12, 10});
  });
}

TEST(ShapeChain, Rolls) {
  checkGrowth({12, 10}, [](TensorView* x, std::mt19937&) {
    return cat({slice(x, {3, 0}, {12, 10}), slice(x, {0, 0}, {3, 10})}, 0);
  });
}

TEST(ShapeChain, SumsWithTheNextElement) {
  checkGrowth({6, 50}, [](TensorView* x, std::mt19937&) { return add(x, pad(slice(x, {0, 1}, {6, 50}), {0, 1})); });
}

TEST(ShapeChain, SumsOverAllOrdersOfDims) {
  checkGrowth({5, 5, 5, 5}, [](TensorView* x, std::mt19937& rng) {
    std::vector<int64_t> order = {0, 1, 2, 3};
    std::shuffle(order.begin(), order.end(), rng);
    return add(x, permute(x, order));
  });
}

// Each layer is a sweep more over the rows of all layers before it, unless these are kept or the kernel ends.
Layer lessItsMean(std::vector<int64_t> dims) {
  return [=](TensorView* x, std::mt19937&) { return sub(x, mul(mean(x, dims, true), 0.5)); };
}

TEST(ReductionChain, OverRows) { checkGrowth({5, 700}, lessItsMean({1})); }

TEST(ReductionChain, OverManyRows) { checkGrowth({70, 520}, lessItsMean({1})); }

TEST(ReductionChain, OverColumns) { checkGrowth({40, 50}, lessItsMean({0})); }

TEST(ReductionChain, OverOuterAndInnerDims) { checkGrowth({6, 5, 150}, lessItsMean({0, 2})); }

TEST(ReductionChain, OfSoftmaxes) {
  checkGrowth({260, 520}, [](TensorView* x, std::mt19937&) { return softmax(x, 1); });
}

TEST(ReductionChain, EndsAKernelThatWouldComputeTooMuchAgain) {
  Fusion fusion;
  {
    FusionGuard guard(&fusion);
    chainOf({40, 50}, 100, lessItsMean({0}))(fusion);
  }
  const std::vector<Segment> segments = segment(fusion, {});
  EXPECT_LT(segments.size(), 20u);
  EXPECT_NE(segments[0].boundary.find("reductions follow one another: their sweeps would compute"), std::string::npos)
      << segments[0].boundary;
}

// Sizes that are not known: the segments and their kernels are over symbols.
TEST(ShapeChain, OfSymbolicSizes) {
  Fusion fusion;
  {
    FusionGuard guard(&fusion);
    TensorView* x = makeContigTensor(3);
    fusion.addInput(x);
    const std::vector<IntExpr> shape = x->shape();
    for (int i = 0; i < 40; i++) {
      x = neg(reshape(permute(x, {2, 0, 1}), {shape[0], shape[1], shape[2]}));
    }
    fusion.addOutput(x);
  }
  std::vector<Segment> segments;
  size_t text = 0;
  const double seconds = cpuSecondsOf([&] {
    segments = segment(fusion, {});
    for (const Segment& s : segments) {
      text += s.judgement == nullptr ? 0 : tile::toString(std::get<KernelPlan>(s.judgement->write()).program).size();
    }
  });
  EXPECT_LT(seconds, 20);  // an index that grows with every layer takes minutes
  EXPECT_LT(text, size_t{80000});
  EXPECT_NE(segments[0].boundary.find("is a reshape of T1 whose index cannot be simplified"), std::string::npos)
      << segments[0].boundary;
}

}  // namespace

}  // namespace meshfuse
