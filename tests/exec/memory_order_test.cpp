// Results lie in memory in the order of their allocation domain: values against the reference, places against the order itself.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <numeric>

#include "exec/explain.h"
#include "fuzz/random.h"
#include "host/program.h"
#include "inputs.h"
#include "interpret/bounds.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/loopback/loopback.h"
#include "stress/checked_cache.h"

namespace meshfuse {

namespace {

using Order = std::vector<int64_t>;
using Sizes = std::vector<int64_t>;
using fuzz::Random;

TensorView* ordered(TensorView* tv, const Order& order) {
  const std::vector<IterDomain*> stored = tv->noReductions();
  std::vector<IterDomain*> ids;
  for (int64_t k : order) {
    ids.push_back(stored[k]);
  }
  tv->setAllocationDomain(ids, std::vector<bool>(ids.size(), true));
  return tv;
}

Order randomOrder(Random& random, size_t rank) {
  Order order(rank);
  std::iota(order.begin(), order.end(), 0);
  random.shuffle(order);
  return order;
}

// Every dim has the stride of an array without gaps in the order of the fusion's output.
void expectInOrder(const Fusion& fusion, const std::vector<Tensor>& results) {
  for (size_t i = 0; i < results.size(); i++) {
    const TensorView* tv = fusion.outputs()[i]->asTensor();
    EXPECT_TRUE(results[i].permute(tv->memoryOrder()).isContiguous())
        << "output " << i << " in the order " << fmt::format("{}", tv->memoryOrder()) << " of sizes "
        << fmt::format("{} has strides {}", results[i].sizes(), results[i].strides());
  }
}

// As fresh memory in the order of the results, filled with something else.
std::vector<Tensor> like(const std::vector<Tensor>& results) {
  std::vector<Tensor> fresh;
  for (const Tensor& t : results) {
    Sizes sizes(t.sizes().begin(), t.sizes().end());
    fresh.push_back(Tensor::full({std::max<int64_t>(1, t.numel())}, t.dtype(), 7)
                        .asStrided(sizes, {t.strides().begin(), t.strides().end()}));
  }
  return fresh;
}

int64_t copies(const HostProgram& host) {
  return static_cast<int64_t>(std::ranges::count(host.steps, HostStepKind::Copy, &Step::kind));
}

// Results of the cache's own and in the caller's memory, both in order and right, every step verified. A result that views another
// one is copied.
void expectOrdered(const BuildFusion& build, const std::vector<Argument>& inputs, int64_t views = 0) {
  CheckedCache checked(build);
  ASSERT_EQ(checked.call(inputs), "");
  FusionExecutorCache& cache = checked.cache();
  expectInOrder(cache.fusion(), checked.results());
  EXPECT_LE(copies(*cache.hostProgram()), views) << cache.hostProgram()->toString();
  std::vector<Tensor> supplied = like(checked.results());
  cache.run(inputs, supplied);
  const std::vector<BoundedTensor> expected = interpretWithBounds(cache.fusion(), inputs);
  for (size_t i = 0; i < supplied.size(); i++) {
    EXPECT_EQ(compare(supplied[i], expected[i]), std::nullopt) << "supplied output " << i;
  }
}

constexpr int64_t kKinds = 13;

// The results of one of some programs of x, each in a random order.
void addResults(Fusion& f, Random& random, int64_t kind, TensorView* x) {
  const int64_t rank = std::ssize(x->shape());
  const int64_t axis = random.below(rank);
  auto mixed = [&](TensorView* tv) { return ordered(tv, randomOrder(random, tv->shape().size())); };
  auto out = [&](TensorView* tv) { f.addOutput(mixed(tv)); };
  switch (kind) {
    case 0:
      out(add(x, 1.0));
      break;
    case 1: {  // two orders of one kernel
      TensorView* y = relu(x);
      out(y);
      out(exp(y));
      break;
    }
    case 2:
      out(sum(x, {axis}));
      break;
    case 3:
      out(softmax(x, axis));
      break;
    case 4: {
      std::vector<int64_t> order(rank);
      std::iota(order.begin(), order.end(), 0);
      random.shuffle(order);
      out(permute(x, order));
      break;
    }
    case 5: {  // a dim that is broadcast, also in the result
      out(add(x, sum(x, {axis}, true)));
      out(unsqueeze(neg(x), axis));
      break;
    }
    case 6:
      out(cat({x, neg(x)}, axis));
      break;
    case 7:  // the input itself, and it again
      out(set(x));
      f.addOutput(x);
      break;
    case 8:  // an order of its own on the way
      out(sum(segment_set(mixed(exp(x))), {axis}));
      break;
    case 11: {  // line by line, by no kernel
      TensorView* y = mixed(neg(x));
      out(cumsum(y, axis));
      out(argsort(y, axis));
      break;
    }
    case 9:
      out(reshape(x, {-1}));
      out(reshape(mixed(abs(x)), {-1, 1}));
      break;
    case 10: {  // read in another order by what follows
      TensorView* y = mixed(neg(x));
      f.addOutput(y);
      out(bitCastOp(DataType::Int32, y));
      out(segment_set(neg(segment_set(y))));
      break;
    }
    default: {  // by a library, and read by one
      TensorView* y = mixed(sin(x));
      TensorView* a = reshape(y, {-1, x->shape().back()});
      TensorView* c = matmul(a, transpose(a));
      out(c);
      out(matmul(c, a));
      f.addOutput(y);
      break;
    }
  }
}

TEST(MemoryOrder, RandomOrdersOfRandomPrograms) {
  for (uint64_t seed = 0; seed < 12 * kKinds; seed++) {
    Random numbers(seed);
    const int64_t kind = static_cast<int64_t>(seed % kKinds);
    Sizes sizes;  // small where the result is of their square
    for (int64_t k = numbers.between(1, 4); k > 0; k--) {
      sizes.push_back(kind == kKinds - 1 ? numbers.between(1, 5) : numbers.of<int64_t>({1, 2, 3, 5, 8, 17}));
    }
    Tensor x = random(sizes, seed);
    if (numbers.chance(50)) {  // strided
      Order order = randomOrder(numbers, sizes.size());
      Tensor other = Tensor::empty({x.numel()}, DataType::Float).asStrided(sizes, contiguousStrides(sizes, order));
      other.copyFrom(x);
      x = other;
    }
    SCOPED_TRACE(fmt::format("seed {}, sizes {}", seed, sizes));
    expectOrdered([&](Fusion& f) { addResults(f, numbers, kind, stridedInput(f, sizes)); }, {x}, kind == 10 ? 1 : 0);
    if (testing::Test::HasFailure()) {
      return;
    }
  }
}

TEST(MemoryOrder, EveryPermutationOfFourDims) {
  Order order = {0, 1, 2, 3};
  do {
    SCOPED_TRACE(fmt::format("{}", order));
    expectOrdered(
        [&](Fusion& f) {
          TensorView* x = stridedInput(f, {3, 4, 2, 40});
          f.addOutput(ordered(add(x, 1.0), order));
          f.addOutput(ordered(softmax(x, 3), order));
        },
        {random({3, 4, 2, 40})});
  } while (std::ranges::next_permutation(order).found);
}

TEST(MemoryOrder, DimsOfOneElementAndWithout) {
  for (const Sizes& sizes : {Sizes{1, 1, 1}, Sizes{1, 7, 1}, Sizes{4, 1, 3}, Sizes{0, 3, 2}, Sizes{3, 0, 1}}) {
    for (const Order& order : {Order{2, 1, 0}, Order{1, 2, 0}, Order{0, 2, 1}}) {
      SCOPED_TRACE(fmt::format("sizes {}, order {}", sizes, order));
      expectOrdered(
          [&](Fusion& f) {
            TensorView* x = stridedInput(f, sizes);
            f.addOutput(ordered(add(x, 1.0), order));
            f.addOutput(ordered(sum(x, {0}, true), order));
            f.addOutput(ordered(matmul(x, transpose(x, 1, 2)), order));
            f.addOutput(ordered(expand(sum(x, {0}, true), {4, sizes[1], sizes[2]}), order));
          },
          {random(sizes)});
    }
  }
}

TEST(MemoryOrder, RunTimeSizes) {
  CheckedCache checked([](Fusion& f) {
    TensorView* x = makeContigTensor(2);
    f.addInput(x);
    f.addOutput(ordered(add(x, 1.0), {1, 0}));
  });
  for (const Sizes& sizes : {Sizes{5, 33}, Sizes{33, 5}, Sizes{1, 9}, Sizes{0, 9}}) {
    ASSERT_EQ(checked.call({random(sizes)}), "");
    expectInOrder(checked.cache().fusion(), checked.results());
  }
}

// The kernel runs along the memory of what it reads and writes, as it does with row-major tensors.
TEST(MemoryOrder, KernelsRunAlongMemory) {
  auto kernelOf = [](const Tensor& x, const Order& order) {
    CheckedCache checked([&](Fusion& f) {
      TensorView* in = stridedInput(f, {64, 48});
      f.addOutput(ordered(add(in, 1.0), order));
    });
    EXPECT_EQ(checked.call({x}), "");
    return checked.cache().hostProgram()->steps.at(0).launch.program;
  };
  const std::string plain = kernelOf(random({64, 48}), {0, 1});
  const std::string turned = kernelOf(random({48, 64}).transpose(0, 1), {1, 0});
  auto bodyOf = [](const std::string& text) { return std::ranges::count(text, '\n'); };
  EXPECT_EQ(bodyOf(plain), bodyOf(turned)) << plain << turned;
  for (const std::string& text : {plain, turned}) {
    EXPECT_NE(text.find("n < 3072"), std::string::npos) << text;  // one axis through all elements
  }
}

TEST(MemoryOrder, SuppliedResultsLieInIt) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    fusion->addOutput(ordered(add(stridedInput(*fusion, {3, 4}), 1.0), {1, 0}));
  }
  FusionExecutorCache cache(std::move(fusion));
  const Tensor x = random({3, 4});
  const std::vector<Argument> inputs = {x};
  std::vector<Tensor> wrong = {Tensor::zeros({3, 4}, DataType::Float)};
  const std::string error = errorOf([&] { cache.run(inputs, wrong); });
  EXPECT_EQ(error,
            "UserError: [run] output 0 (T2) has the memory order [1, 0] with strides [1, 3], got a tensor with "
            "strides [4, 1]; allocate it in that order, or set no memory order for the output");
  EXPECT_EQ(wrong[0].at({2, 3}), 0);
  // with gaps
  std::vector<Tensor> padded = {Tensor::zeros({4, 5}, DataType::Float).transpose(0, 1).slice(0, 0, 3)};
  cache.run(inputs, padded);
  EXPECT_EQ(padded[0].at({2, 3}), x.at({2, 3}) + 1);
  // several times, without a difference
  std::vector<Tensor> right = {Tensor::zeros({4, 3}, DataType::Float).transpose(0, 1)};
  cache.run(inputs, right);
  cache.run(inputs, right);
  EXPECT_EQ(right[0].at({2, 3}), x.at({2, 3}) + 1);
}

TEST(MemoryOrder, OfResultsThatTakeAnInputsPlace) {
  auto build = [](Fusion& f) {
    TensorView* x = stridedInput(f, {6, 4});
    TensorView* y = add(x, 1.0);
    f.addOutput(ordered(y, {1, 0}));
    f.aliasOutputToInput(y, x);
  };
  CheckedCache checked(build);
  EXPECT_EQ(errorOf([&] {
              checked.call({random({6, 4})});
            }),
            "UserError: [run] the result T2 is written into input 0 (T0) in the memory order [1, 0], but the "
            "argument has "
            "strides [4, 1] for sizes [6, 4]; pass a tensor in that order, or set no memory order for the result");
  const Tensor turned = random({4, 6}).transpose(0, 1);
  ASSERT_EQ(checked.call({turned}), "");
  EXPECT_EQ(checked.results()[0].data(), turned.data());
  EXPECT_EQ(copies(*checked.cache().hostProgram()), 0);
  const Tensor gaps = random({4, 9}).transpose(0, 1).slice(0, 1, 7);
  ASSERT_EQ(checked.call({gaps}), "");
  EXPECT_EQ(checked.results()[0].data(), gaps.data());
  // without an order the result lies as the argument does
  CheckedCache any([](Fusion& f) {
    TensorView* x = stridedInput(f, {6, 4});
    TensorView* y = add(x, 1.0);
    f.addOutput(y);
    f.aliasOutputToInput(y, x);
  });
  ASSERT_EQ(any.call({random({6, 4})}), "");
  ASSERT_EQ(any.call({random({4, 6}).transpose(0, 1)}), "");
}

TEST(MemoryOrder, IsExplained) {
  CheckedCache checked([](Fusion& f) {
    TensorView* x = stridedInput(f, {6, 4});
    TensorView* y = add(x, 1.0);
    f.addOutput(ordered(y, {1, 0}));
    f.addOutput(ordered(matmul(y, transpose(y)), {1, 0}));
  });
  ASSERT_EQ(checked.call({random({6, 4})}), "");
  const Explanation e = checked.cache().explain();
  ASSERT_EQ(e.tensors.size(), 4u);
  EXPECT_EQ(e.tensors[1].memoryOrder, (Order{1, 0}));
  EXPECT_EQ(e.tensors[0].memoryOrder, Order{});
}

// -- on ranks ---------------------------------------------------------------------------------------------------------------

TensorView* placed(TensorView* tv, const DeviceMesh& mesh, std::optional<int64_t> cutDim) {
  tv->setDeviceMesh(mesh);
  if (cutDim) {
    tv->outer_split(*cutDim, 2);
    tv->axis(*cutDim)->parallelize(ParallelType::DIDx);
  }
  return tv;
}

// x cut in dim 0 over two ranks; results that stay where they are, are gathered, exchanged, reduced.
void addPlacedResults(Fusion& f, Random& random, TensorView* x, const DeviceMesh& mesh) {
  auto out = [&](TensorView* tv, std::optional<int64_t> cutDim) {
    f.addOutput(ordered(placed(tv, mesh, cutDim), randomOrder(random, tv->noReductions().size())));
  };
  out(add(x, 1.0), 0);
  out(set(x), std::nullopt);
  out(neg(x), 1);
  out(sum(x, {0}), std::nullopt);
  out(set(sum(exp(x), {2})), std::nullopt);
  out(softmax(x, 2), 0);
  out(ordered(relu(x), randomOrder(random, 3)), random.chance(50) ? 0 : 2);
}

TEST(MemoryOrder, OfShardsAndOfWhatCollectivesMake) {
  for (uint64_t seed = 0; seed < 12; seed++) {
    SCOPED_TRACE(seed);
    const DeviceMesh mesh = DeviceMesh::createForNumDevices(2);
    Random drawn(seed);
    const Sizes sizes = {drawn.of<int64_t>({2, 4, 6}), drawn.of<int64_t>({2, 4}), drawn.of<int64_t>({2, 10})};
    const Tensor whole = random(sizes, seed);
    runLoopback(2, [&](Communicator& comm) {
      auto fusion = std::make_unique<Fusion>();
      {
        FusionGuard guard(fusion.get());
        Random numbers(seed);
        TensorView* x = placed(stridedInput(*fusion, sizes), mesh, 0);
        addPlacedResults(*fusion, numbers, x, mesh);
      }
      FusionExecutorCache cache(std::move(fusion), {.communicator = &comm, .verify = Verify::Always});
      const Tensor mine = shardTensor(whole, cache.fusion().inputs()[0]->asTensor(), comm.rank());
      const std::vector<Tensor> got = cache.runFusionWithInputs({mine});
      std::vector<Tensor> supplied = like(got);
      const std::vector<Argument> arguments = {mine};
      cache.run(arguments, supplied);
      const std::vector<BoundedTensor> expected =
          interpretWithBounds(cache.fusion(), std::vector<Argument>{whole}, {.partials = 2});
      expectInOrder(cache.fusion(), got);
      for (size_t i = 0; i < got.size(); i++) {
        const TensorView* tv = cache.planned()->outputs()[i]->asTensor();
        const BoundedTensor part{shardTensor(expected[i].value, tv, comm.rank()),
                                 shardTensor(expected[i].error, tv, comm.rank()), expected[i].uncertain};
        EXPECT_EQ(compare(got[i], part), std::nullopt) << "output " << i << " of rank " << comm.rank();
        EXPECT_EQ(compare(supplied[i], part), std::nullopt) << "supplied output " << i << " of rank " << comm.rank();
      }
    });
  }
}

}  // namespace

}  // namespace meshfuse
