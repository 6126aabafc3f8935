// run(inputs, outputs): results in the caller's tensors, without allocation once the plan exists.
// new and delete of this binary are malloc and free; where one of them is inlined the compiler sees only half of the pair.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <set>

#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/transport/loopback/loopback.h"
#include "stress/checked_cache.h"

namespace {

std::atomic<int64_t> allocations{0};

void* counted(size_t bytes, size_t alignment) {
  allocations++;
  void* p = alignment > 16 ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
                           : std::malloc(bytes);
  if (p == nullptr) {
    throw std::bad_alloc();
  }
  return p;
}

}  // namespace

// Of this whole binary: counts every allocation.
void* operator new(size_t bytes) { return counted(bytes, 0); }
void* operator new[](size_t bytes) { return counted(bytes, 0); }
void* operator new(size_t bytes, std::align_val_t alignment) { return counted(bytes, static_cast<size_t>(alignment)); }
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes, 0); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes, 0); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { std::free(p); }

namespace meshfuse {

namespace {

std::unique_ptr<FusionExecutorCache> cacheOf(const BuildFusion& build, ExecutorOptions options = {}) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  build(*fusion);
  return std::make_unique<FusionExecutorCache>(std::move(fusion), options);
}

int64_t allocationsOf(const std::function<void()>& body) {
  int64_t before = allocations;
  body();
  return allocations - before;
}

class SteadyState : public testing::Test {
  void SetUp() override {
    if (defaultDevice() != DeviceId::cpu()) {
      GTEST_SKIP() << "the test device itself allocates";
    }
  }
};

TEST_F(SteadyState, AllocatesNothing) {
  std::vector<std::pair<BuildFusion, std::vector<Argument>>> programs;
  programs.emplace_back(
      [](Fusion& f) {
        TensorView* x = makeContigTensor(2);
        TensorView* y = makeContigTensor(2);
        f.addInput(x);
        f.addInput(y);
        f.addOutput(add(x, y));
      },
      std::vector<Argument>{random({8, 8}), random({8, 8}, 2)});
  programs.emplace_back(
      [](Fusion& f) {  // several kernels, an arena, library calls, scratch
        TensorView* x = makeContigTensor(2);
        TensorView* w = makeContigTensor(2);
        f.addInput(x);
        f.addInput(w);
        TensorView* h = tanh_gelu(linear(layer_norm(x, 1, nullptr, nullptr, 1e-5).output, w));
        f.addOutput(softmax(h, 1));
        f.addOutput(sum(h, {0}));
        f.addOutput(sum(h, {0, 1}));
      },
      std::vector<Argument>{random({200, 300}), random({300, 300}, 2)});
  // 16-bit contractions that are widened: a workspace. Of larger products of BFloat16 the library allocates a table in each call.
  for (const DataType type : {DataType::Half, DataType::BFloat16}) {
    programs.emplace_back(
        [=](Fusion& f) {
          TensorView* x = makeContigTensor(2, type);
          f.addInput(x);
          f.addOutput(matmul(x, transpose(x)));
        },
        std::vector<Argument>{random({15, 20}, 1, type)});
  }
  programs.emplace_back(
      [](Fusion& f) {  // run-time scalars
        TensorView* x = makeContigTensor(1);
        Val* s = IrBuilder::create<Val>(DataType::Double);
        Val* n = IrBuilder::create<Val>(DataType::Int);
        f.addInput(x);
        f.addInput(s);
        f.addInput(n);
        f.addOutput(add(mul(x, s), n));
      },
      std::vector<Argument>{random({1000}), 0.5, int64_t{3}});
  programs.emplace_back(
      [](Fusion& f) {  // updates
        TensorView* w = makeContigTensor(1);
        TensorView* g = makeContigTensor(1);
        f.addInput(w);
        f.addInput(g);
        TensorView* next = sub(w, mul(g, 0.125));
        f.addOutput(next);
        f.aliasOutputToInput(next, w);
        f.addOutput(sum(g, {0}));
      },
      std::vector<Argument>{random({1000}), random({1000}, 2)});
  programs.emplace_back(
      [](Fusion& f) {  // copies: an input that is an output, from other strides, and one result twice
        TensorView* x = makeSymbolicTensor(2);
        f.addInput(x);
        f.addOutput(x);
        TensorView* y = neg(x);
        f.addOutput(y);
        f.addOutput(y);
      },
      std::vector<Argument>{random({30, 20}).transpose(0, 1)});
  for (size_t p = 0; p < programs.size(); p++) {
    auto& [build, inputs] = programs[p];
    for (int threads : {1, 2}) {
      auto cache = cacheOf(build, {.threads = threads});
      std::vector<Tensor> outputs = cache->runFusionWithInputs(inputs);
      auto call = [&, &in = inputs] { cache->run(std::span<const Argument>(in), outputs); };
      call();
      EXPECT_EQ(allocationsOf([&] {
                  for (int i = 0; i < 100; i++) {
                    call();
                  }
                }),
                0)
          << "program " << p << ", threads " << threads;
      std::vector<Tensor> tensors;
      for (const Argument& a : inputs) {
        if (const Tensor* t = std::get_if<Tensor>(&a)) {
          tensors.push_back(*t);
        }
      }
      if (tensors.size() == inputs.size()) {
        auto callTensors = [&] { cache->run(std::span<const Tensor>(tensors), outputs); };
        callTensors();
        callTensors();
        EXPECT_EQ(allocationsOf(callTensors), 0) << "program " << p << ", tensors";
      }
    }
  }
}

TEST_F(SteadyState, AllocatesNothingInAHundredThousandCalls) {
  auto cache = cacheOf([](Fusion& f) {
    TensorView* x = makeContigTensor(2);
    f.addInput(x);
    f.addOutput(add(x, x));
  });
  std::vector<Argument> inputs = {random({8, 8})};
  std::vector<Tensor> outputs = cache->runFusionWithInputs(inputs);
  cache->run(std::span<const Argument>(inputs), outputs);
  EXPECT_EQ(allocationsOf([&] {
              for (int i = 0; i < 100000; i++) {
                cache->run(std::span<const Argument>(inputs), outputs);
              }
            }),
            0);
}

// Plans that take turns: each call finds another one than the call before.
TEST_F(SteadyState, AllocatesNothingForPlansInTurn) {
  auto cache = cacheOf([](Fusion& f) {
    TensorView* x = makeContigTensor(1);
    f.addInput(x);
    f.addOutput(neg(x));
  });
  std::vector<std::vector<Argument>> inputs;
  std::vector<std::vector<Tensor>> outputs;
  for (int64_t n : {10, 20, 30}) {
    inputs.push_back({random({n})});
    outputs.push_back(cache->runFusionWithInputs(inputs.back()));
  }
  auto round = [&] {
    for (size_t i = 0; i < inputs.size(); i++) {
      cache->run(std::span<const Argument>(inputs[i]), outputs[i]);
    }
  };
  round();
  round();
  EXPECT_EQ(allocationsOf([&] {
              for (int i = 0; i < 100; i++) {
                round();
              }
            }),
            0);
}

// A tensor on a mesh, with its first dim or the one given cut over axes of the mesh, the outermost first.
TensorView* place(TensorView* t, const DeviceMesh& mesh, std::vector<ParallelType> over, int dim = 0) {
  t->setDeviceMesh(mesh);
  for (ParallelType p : over) {
    t->outer_split(dim, 2)->axis(dim)->parallelize(p);
    dim++;
  }
  return t;
}

// Of 200 calls on ranks that are threads. Expects these kinds of communication.
int64_t allocationsOnRanks(int ranks, const BuildFusion& build, const std::vector<Argument>& inputs,
                           const std::set<std::string>& kinds) {
  std::atomic<int64_t> allocated{-1};
  runLoopback(ranks, [&](Communicator& world) {
    auto cache = cacheOf(build, {.communicator = &world, .threads = 1});
    std::vector<Tensor> outputs = cache->runFusionWithInputs(inputs);
    std::set<std::string> communicates;
    for (const CommRecord& c : cache->commSteps()) {
      communicates.insert(c.kind);
    }
    EXPECT_EQ(communicates, kinds);
    auto calls = [&](int n) {
      for (int i = 0; i < n; i++) {
        cache->run(std::span<const Argument>(inputs), outputs);
      }
      world.barrier(world.world());
    };
    calls(5);
    const int64_t before = allocations;
    world.barrier(world.world());  // nobody goes on before all have looked
    calls(200);
    if (world.rank() == 0) {
      allocated = allocations - before;
    }
    world.barrier(world.world());
  });
  return allocated;
}

TEST_F(SteadyState, AllocatesNothingOnRanks) {
  const ParallelType x = ParallelType::DIDx;
  const ParallelType y = ParallelType::DIDy;
  auto collectives = [&](Fusion& f) {
    DeviceMesh mesh({0, 1});
    TensorView* rows = makeContigTensor(2);
    TensorView* columns = makeContigTensor(2);
    f.addInput(place(rows, mesh, {x}));
    f.addInput(place(columns, mesh, {x}, 1));
    f.addOutput(place(mul(rows, 2.0), mesh, {}));
    f.addOutput(place(sum(rows, {0}), mesh, {}));
    f.addOutput(place(sum(mul(columns, 3.0), {1}), mesh, {x}));
    f.addOutput(place(add(columns, 1.0), mesh, {x}));
  };
  EXPECT_EQ(allocationsOnRanks(2, collectives, {random({6, 12}), random({12, 6}, 2)},
                               {"all-gather", "all-reduce", "all-to-all", "reduce-scatter"}),
            0);
  auto permute = [&](Fusion& f) {
    DeviceMesh mesh({0, 1, 2, 3}, {2, 2});
    TensorView* rows = makeContigTensor(2);
    f.addInput(place(rows, mesh, {x, y}));
    f.addOutput(place(neg(rows), mesh, {y, x}));
  };
  EXPECT_EQ(allocationsOnRanks(4, permute, {random({3, 5})}, {"permute"}), 0);
}

BuildFusion twoResults() {
  return [](Fusion& f) {
    TensorView* x = makeSymbolicTensor(2);
    f.addInput(x);
    f.addOutput(neg(transpose(x)));
    f.addOutput(sum(x, {0}));
  };
}

class SuppliedOutputs : public ::testing::Test {
 protected:
  void expectResults(const Tensor& input, std::vector<Tensor> outputs) {
    Tensor x = input.clone();
    cache->run(std::vector<Argument>{input}, outputs);
    for (int64_t i = 0; i < 4; i++) {
      double total = 0;
      for (int64_t j = 0; j < 6; j++) {
        EXPECT_EQ(outputs[0].at({i, j}), -x.at({j, i}));
        total += x.at({j, i});
      }
      EXPECT_NEAR(outputs[1].at({i}), total, 1e-5);
    }
  }
  std::unique_ptr<FusionExecutorCache> cache = cacheOf(twoResults());
  Tensor x = random({6, 4});
  Tensor total = Tensor::empty({4}, DataType::Float);
};

TEST_F(SuppliedOutputs, AnyLayoutAndAlignment) {
  Tensor buffer = random({1000}, 2);
  expectResults(x, {Tensor::empty({4, 6}, DataType::Float), total});
  expectResults(x, {buffer.slice(0, 1, 25).view({4, 6}), buffer.slice(0, 503, 507)});
  expectResults(x, {buffer.asStrided({4, 6}, {1, 4}), total});
  expectResults(x, {buffer.asStrided({4, 6}, {50, 3}, 7), buffer.asStrided({4}, {9}, 500)});
}

TEST_F(SuppliedOutputs, InTheMemoryOfAnInput) {
  Tensor in = x.clone();
  expectResults(in, {in.view({24}).view({4, 6}), total});
  in = x.clone();
  expectResults(in, {in.transpose(0, 1), total});
  in = x.clone();
  expectResults(in, {Tensor::empty({4, 6}, DataType::Float), in.view({24}).slice(0, 0, 4)});
  Tensor wide = random({6, 8}, 3);
  expectResults(wide.slice(1, 0, 8, 2), {Tensor::empty({4, 6}, DataType::Float), wide.view({48}).slice(0, 41, 45)});
}

TEST_F(SuppliedOutputs, ThatShareMemoryWithEachOther) {
  Tensor buffer = random({100}, 2);
  std::vector<Tensor> outputs = {buffer.slice(0, 0, 24).view({4, 6}), buffer.slice(0, 23, 27)};
  std::string error = errorOf([&] { cache->run(std::vector<Argument>{x}, outputs); });
  EXPECT_TRUE(error.starts_with("UserError: [run] the tensor for output 0 and the tensor for output 1 share memory"))
      << error;
  outputs = {buffer.asStrided({4, 6}, {0, 1}), total};
  error = errorOf([&] { cache->run(std::vector<Argument>{x}, outputs); });
  EXPECT_TRUE(error.starts_with("UserError: [run] some elements of the tensor for output 0 (T2) share memory"))
      << error;
  expectResults(x, {buffer.asStrided({4, 6}, {16, 2}), buffer.asStrided({4}, {16}, 1)});
}

TEST_F(SuppliedOutputs, OfTheWrongKind) {
  auto errorWith = [&](std::vector<Tensor> outputs) {
    return errorOf([&] { cache->run(std::vector<Argument>{x}, outputs); });
  };
  EXPECT_EQ(errorWith({total}),
            "UserError: [run] the fusion has 2 outputs, got 1 tensors for them; give one for each output, in order");
  const std::string expected = "UserError: [run] output 0 (T2) has type Float and sizes [4, 6], got ";
  EXPECT_EQ(errorWith({Tensor(), total}),
            expected + "an undefined tensor for it; pass a tensor of this type and these sizes");
  EXPECT_EQ(errorWith({Tensor::empty({6, 4}, DataType::Float), total}),
            expected + "Float[6, 4] for it; pass a tensor of this type and these sizes");
  EXPECT_EQ(errorWith({Tensor::empty({4, 6}, DataType::Double), total}),
            expected + "Double[4, 6] for it; pass a tensor of this type and these sizes");
}

TEST(SuppliedOutputsOfUpdates, AResultInTheMemoryOfAnUpdatedInput) {
  auto cache = cacheOf([](Fusion& f) {
    TensorView* w = makeContigTensor(1);
    f.addInput(w);
    TensorView* next = add(w, 1.0);
    f.addOutput(next);
    f.aliasOutputToInput(next, w);
    f.addOutput(mul(w, 2.0));
  });
  Tensor w = random({40});
  std::vector<Tensor> outputs = {Tensor(), w};
  std::string error = errorOf([&] { cache->run(std::vector<Argument>{w}, outputs); });
  EXPECT_TRUE(error.starts_with("UserError: [run]")) << error;
  EXPECT_NE(error.find("share memory"), std::string::npos) << error;
  outputs[1] = Tensor::empty({40}, DataType::Float);
  double before = w.at({7});
  cache->run(std::vector<Argument>{w}, outputs);
  EXPECT_EQ(w.at({7}), static_cast<float>(before) + 1.0f);
  EXPECT_EQ(outputs[1].at({7}), before * 2);
}

}  // namespace

}  // namespace meshfuse
