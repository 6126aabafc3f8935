// One host program for all sizes: bound to several shapes, compared with the interpreter.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/error.h"
#include "base/ranges.h"
#include "device/open.h"
#include "host/arena_pool.h"
#include "host/build.h"
#include "host/executor.h"
#include "host/order_steps.h"
#include "interpret/bounds.h"
#include "ir/text.h"
#include "multidevice/transport/loopback/loopback.h"
#include "ops/contraction.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"
#include "preseg_passes/concretize.h"
#include "segment/local_context.h"
#include "segment/table.h"

namespace meshfuse {
namespace {

using Shapes = std::vector<std::vector<int64_t>>;  // of the inputs

// The program of a local fusion. With Reference steps only the interpreter and collectives run.
enum class Steps : uint8_t { Kernels, Reference };
std::shared_ptr<const HostProgram> programOf(const std::shared_ptr<Fusion>& local, const Communicator& comm,
                                             Steps steps = Steps::Kernels) {
  const std::shared_ptr<Device> device = openDevice(DeviceId::cpu(), {.threads = 1});
  LocalContext context{.device = device->info()};
  runLocalPasses(*local, context);
  std::vector<Segment> segments = segment(*local, context);
  if (steps == Steps::Kernels) {
    writeSteps(segments);
  }
  for (Segment& s : segments) {
    const bool computes = s.kind == SegmentKind::Kernel || s.kind == SegmentKind::Library;
    s.kind = steps == Steps::Reference && computes ? SegmentKind::Reference : s.kind;
  }
  return buildHostProgram(local, segments,
                          {.device = device,
                           .layouts = context.layouts,
                           .rank = comm.rank(),
                           .ranks = comm.size(),
                           .communicates = comm.size() > 1});
}

std::vector<std::string> kindsOf(const HostProgram& program) {
  return mapped(program.steps, [](const Step& s) { return s.name.substr(0, s.name.find(' ')); });
}

std::vector<Argument> randomInputs(const Shapes& shapes, uint64_t seed = 1) {
  return mapped<Argument>(shapes,
                          [&](const std::vector<int64_t>& s) { return randomTensor(s, DataType::Float, seed++); });
}

// Runs the program twice for these inputs, the second time with verification.
std::vector<Tensor> runBound(const std::shared_ptr<const HostProgram>& program, Communicator& comm,
                             const std::vector<Argument>& inputs, const Shapes& shapes) {
  Binding binding(program, comm, bindSymbols(*program->fusion, shapes));
  std::vector<Tensor> outputs = mapped(program->outputs, [&](int64_t t) {
    return Tensor::empty(binding.sizes().tensors[t].sizes, program->tensors[t].dtype);
  });
  binding.run(comm, inputs, outputs);
  binding.run(comm, inputs, outputs, {.verify = true});
  return outputs;
}

std::unique_ptr<Fusion> built(const std::function<void(Fusion&)>& build) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  build(*fusion);
  return fusion;
}

void expectAsInterpreted(const Fusion& fusion, const std::vector<Shapes>& calls,
                         const std::vector<std::string>& kinds) {
  const std::unique_ptr<Communicator> self = makeSelfCommunicator();
  for (const Steps steps : {Steps::Reference, Steps::Kernels}) {
    const std::shared_ptr<const HostProgram> program = programOf(fusion.clone(), *self, steps);
    EXPECT_EQ(program->constant, nullptr);
    if (steps == Steps::Kernels) {
      EXPECT_EQ(kindsOf(*program), kinds);
    }
    for (const Shapes& shapes : calls) {
      const std::vector<Argument> inputs = randomInputs(shapes);
      const std::vector<BoundedTensor> expected = interpretWithBounds(fusion, inputs);
      const std::vector<Tensor> got = runBound(program, *self, inputs, shapes);
      for (const int64_t i : indices(got)) {
        EXPECT_EQ(compare(got[i], expected[i]), std::nullopt)
            << "output " << i << " of " << program->toString() << " for " << shapes[0][0] << " x " << shapes[0][1];
      }
    }
  }
}

void expectAsInterpreted(const std::function<void(Fusion&)>& build, const std::vector<Shapes>& calls,
                         const std::vector<std::string>& kinds) {
  expectAsInterpreted(*built(build), calls, kinds);
}

TensorView* matrix(Fusion& fusion) {
  TensorView* tv = makeContigTensor(2);
  fusion.addInput(tv);
  return tv;
}

const std::vector<Shapes> kMatrices = {{{5, 7}},    {{64, 1000}}, {{1, 1}}, {{3, 33}},
                                       {{1000, 3}}, {{17, 4096}}, {{0, 7}}, {{3, 0}}};

TEST(AnySize, Pointwise) {
  const auto build = [](Fusion& f) {
    TensorView* x = matrix(f);
    TensorView* row = makeContigTensor(1);
    f.addInput(row);
    f.addOutput(tanh(add(mul(x, 2.0), broadcast(row, {true, false}))));
  };
  expectAsInterpreted(build, {{{5, 7}, {7}}, {{64, 1000}, {1000}}, {{1, 1}, {1}}, {{33, 3}, {3}}}, {"pointwise"});
}

TEST(AnySize, ReductionsAndANormalization) {
  expectAsInterpreted([](Fusion& f) { f.addOutput(sum(matrix(f), {0})); }, kMatrices, {"reduction"});
  expectAsInterpreted([](Fusion& f) { f.addOutput(sum(matrix(f), {1})); }, kMatrices, {"reduction"});
  expectAsInterpreted([](Fusion& f) { f.addOutput(softmax(matrix(f), 1)); }, kMatrices, {"normalization"});
}

const std::vector<Shapes> kArrays = {{{5, 7, 9}},     {{2, 64, 100}}, {{1, 1, 1}},   {{3, 33, 17}}, {{100, 3, 40}},
                                     {{7, 300, 270}}, {{0, 7, 3}},    {{3, 0, 256}}, {{2, 5, 0}}};

// Permuted operands are views, whose strides are expressions.
TEST(AnySize, ProductsOfPermutedOperands) {
  const auto inputs = [](Fusion& f, int64_t first, int64_t second) {
    const std::pair operands{makeContigTensor(first), makeContigTensor(second)};
    f.addInput(operands.first);
    f.addInput(operands.second);
    return operands;
  };
  const auto expectOneCall = [](const std::function<void(Fusion&)>& build, const std::vector<std::string>& symbols,
                                const std::vector<Shapes>& calls, const std::string& kind) {
    SymbolSizes sizes;
    for (const int64_t i : indices(symbols)) {
      sizes[fmt::format("i{}", i)] = IntExpr::symbol(symbols[i], {.lower = 1});
    }
    expectAsInterpreted(*concretize(*built(build), sizes), calls, {kind});
  };
  expectOneCall(
      [&](Fusion& f) {
        const auto [a, b] = inputs(f, 2, 2);
        f.addOutput(matmul(a, transpose(b, 0, 1)));
      },
      {"M", "K", "N", "K"}, {{{5, 7}, {3, 7}}, {{64, 100}, {33, 100}}, {{1, 1}, {1, 1}}, {{2, 1}, {4, 1}}}, "matmul");
  expectOneCall(
      [&](Fusion& f) {
        const auto [a, b] = inputs(f, 2, 2);
        f.addOutput(linear(transpose(a, 0, 1), transpose(b, 0, 1)));
      },
      {"K", "M", "K", "N"}, {{{7, 5}, {7, 3}}, {{100, 64}, {100, 33}}, {{1, 1}, {1, 1}}, {{1, 2}, {1, 4}}}, "linear");
  expectOneCall(  // [B, S, H, D]: attention
      [&](Fusion& f) {
        const auto [a, b] = inputs(f, 4, 4);
        f.addOutput(matmul(permute(a, {0, 2, 1, 3}), permute(b, {0, 2, 3, 1})));
      },
      {"B", "S", "H", "D", "B", "R", "H", "D"},
      {{{2, 5, 3, 4}, {2, 6, 3, 4}}, {{3, 17, 2, 40}, {3, 70, 2, 40}}, {{1, 4, 1, 3}, {1, 2, 1, 3}}}, "matmul");
}

TEST(AnySize, Transposes) {
  const auto permuted = [](std::vector<int64_t> order) {
    return [order](Fusion& f) {
      TensorView* x = makeContigTensor(static_cast<int64_t>(order.size()));
      f.addInput(x);
      f.addOutput(permute(x, order));
    };
  };
  const std::vector<std::string> kind = {"transpose"};
  expectAsInterpreted(permuted({1, 0}), kMatrices, kind);
  expectAsInterpreted(permuted({0, 2, 1}), kArrays, kind);
  expectAsInterpreted(permuted({2, 0, 1}), kArrays, kind);
  expectAsInterpreted(permuted({1, 2, 0}), kArrays, kind);
  expectAsInterpreted(permuted({2, 1, 0}), kArrays, kind);
  expectAsInterpreted(
      [](Fusion& f) {
        TensorView* x = matrix(f);
        TensorView* row = makeContigTensor(1);
        f.addInput(row);
        f.addOutput(castOp(DataType::BFloat16, add(transpose(exp(x), 0, 1), row)));
        f.addOutput(neg(x));
      },
      {{{5, 7}, {5}}, {{64, 1000}, {64}}, {{1, 1}, {1}}, {{301, 270}, {301}}, {{0, 7}, {0}}}, kind);
}

// Dims that follow one another in the memory of all tensors are one axis, also if the outermost one is a symbol.
TEST(AnySize, TransposesWithOneSymbol) {
  for (const std::vector<int64_t>& constants : {std::vector<int64_t>{-1, 24, 40}, {8, -1, 40}, {8, 24, -1}}) {
    for (const std::vector<int64_t>& order : {std::vector<int64_t>{2, 0, 1}, {0, 2, 1}, {2, 1, 0}, {1, 2, 0}}) {
      std::vector<Shapes> calls;
      for (const int64_t n : {1, 2, 16, 37, 300}) {
        calls.push_back({mapped(constants, [n](int64_t c) { return c < 0 ? n : c; })});
      }
      expectAsInterpreted(
          [&](Fusion& f) {
            TensorView* x = TensorViewBuilder().shape(constants).contiguity(true).dtype(DataType::Float).build();
            f.addInput(x);
            f.addOutput(permute(x, order));
          },
          calls, {"transpose"});
    }
  }
}

// The softmax is kept in the arena.
void threeKernels(Fusion& f) {
  TensorView* x = softmax(matrix(f), 1);
  TensorView* columns = sum(x, {0});
  f.addOutput(sum(mul(x, broadcast(columns, {true, false})), {1}));
  f.addOutput(neg(columns));
}

TEST(AnySize, TensorsInTheArena) {
  expectAsInterpreted(threeKernels, kMatrices, {"normalization", "normalization", "reduction"});
}

// A symbol of the program may have a name that kernels use for their own dims, axes, digits or sizes.
TEST(AnySize, DimsNamedAsThoseOfKernels) {
  const std::unique_ptr<Communicator> self = makeSelfCommunicator();
  constexpr const char* kProgram = R"(fusion {{
  T0 = input() : Float[{0}, {1}] contiguity[t, t]
  T1 = permute(T0, order=[1, 0]) : Float[{1}, {0}]
  T2 = exp(T1) : Float[{1}, {0}]
  T3 = reduce(T2, op=sum) : Float[{1}, r{{{0}}}]
  T4 = broadcast(T3, flags=[f, t]) : Float[{1}, b{{1}}]
  T5 = mul(T2, T4) : Float[{1}, {0}]
  T6 = reshape(T5) : Float[{1}*{0}]
  T7 = neg(T0) : Float[{0}, {1}]
  output T6
  output T7
}}
)";
  for (const auto& [rows, columns] : {std::pair("d0", "d1"),
                                      {"d1", "d0"},
                                      {"m", "k"},
                                      {"M", "K"},
                                      {"K", "N"},
                                      {"s0", "s1"},
                                      {"s1", "s0"},
                                      {"p0", "p1"},
                                      {"i", "n"},
                                      {"n", "i"},
                                      {"p0", "s1"}}) {
    const std::string text = fmt::format(kProgram, rows, columns);
    const std::shared_ptr<const HostProgram> program = programOf(parseFusion(text), *self);
    for (const Shapes& shapes : {Shapes{{5, 7}}, Shapes{{64, 1000}}, Shapes{{300, 3}}}) {
      const std::vector<Argument> inputs = randomInputs(shapes);
      const std::vector<BoundedTensor> expected = interpretWithBounds(*parseFusion(text), inputs);
      const std::vector<Tensor> got = runBound(program, *self, inputs, shapes);
      for (const int64_t i : indices(got)) {
        EXPECT_EQ(compare(got[i], expected[i]), std::nullopt)
            << "output " << i << " of " << text << program->toString();
      }
    }
  }
}

// Each of two ranks has one half of the rows of x. Results: x times the sum of its rows; the half of the other rank; the own half twice, and its
// double.
constexpr const char* kRowsOfTwoRanks = R"(fusion {
  mesh M0 {x: 2} [0, 1]
  T0 = input() : Float[i0, i1] contiguity[t, t]
  T1 = reduce(T0, op=sum) : Float[r{i0}, i1]
  T2 = communicate(T1, kind=all_reduce, mesh=M0, axes=[0], op=sum) : Float[i1]
  T3 = communicate(T0, kind=all_gather, mesh=M0, axes=[0], number=1) : Float[2, i0, i1]
  T4 = reshape(T3) : Float[i0*2, i1]
  T5 = broadcast(T2, flags=[t, f]) : Float[b{1}, i1]
  T6 = mul(T4, T5) : Float[i0*2, i1]
  T7 = communicate(T0, kind=transfer, mesh=M0, axes=[0], sources=[1, 0], number=2) : Float[i0, i1]
  T8 = communicate(T3, kind=all_to_all, mesh=M0, axes=[0], number=3) : Float[2, i0, i1]
  T9 = communicate(T3, kind=reduce_scatter, mesh=M0, axes=[0], op=sum, number=4) : Float[i0, i1]
  output T6
  output T7
  output T8
  output T9
}
)";

TEST(AnySize, CollectivesOnTwoRanks) {
  const std::unique_ptr<Fusion> global = built([](Fusion& f) {
    TensorView* x = matrix(f);
    f.addOutput(mul(x, broadcast(sum(x, {0}), {true, false})));
  });
  runLoopback(2, [&](Communicator& comm) {
    for (const Steps steps : {Steps::Reference, Steps::Kernels}) {
      const std::shared_ptr<const HostProgram> program = programOf(parseFusion(kRowsOfTwoRanks), comm, steps);
      for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{5, 7}, {64, 100}, {1, 1}, {33, 3}}) {
        const Tensor x = randomTensor({2 * rows, columns}, DataType::Float, 1);
        const auto half = [&](int64_t rank) {
          return x.asStrided({rows, columns}, {columns, 1}, rank * rows * columns).clone();
        };
        const Tensor own = half(comm.rank());
        const std::vector<BoundedTensor> expected =
            interpretWithBounds(*global, std::vector<Argument>{x}, {.partials = 2});
        const std::vector<Tensor> got = runBound(program, comm, {own}, {{rows, columns}});
        EXPECT_EQ(compare(got[0], expected[0]), std::nullopt) << program->toString() << rows << " x " << columns;
        EXPECT_EQ(got[1].toVector(), half(1 - comm.rank()).toVector());
        EXPECT_EQ(got[2].toVector(), own.expand({2, rows, columns}).clone().toVector());
        EXPECT_EQ(got[3].toVector(), mapped(own.toVector(), [](double e) { return 2 * e; }));
      }
    }
  });
}

// Three ranks have n, 2 n and n + 1 columns of a matrix and gather them: n*4 + 1 together. A block of columns is one piece for each of the m
// rows.
HostProgram gatherOfColumns(int64_t rank) {
  const IntExpr m = IntExpr::symbol("m");
  const IntExpr n = IntExpr::symbol("n");
  const std::vector<IntExpr> columns = {n, n * 2, n + 1};
  const IntExpr all = n * 4 + 1;
  CommCall call{.kind = Collective::AllGather, .team = {{0, 1, 2}}};
  IntExpr begin = 0;
  for (const IntExpr& count : columns) {
    call.counts.push_back(m * count);
    call.unpack.blocks.push_back({.dims = {{{.count = m}}, {{.start = begin, .count = count}}}});
    begin += count;
  }
  call.received = call.counts;
  call.unpack.sizes = {m, all};
  HostProgram program{
      .fusion = std::make_shared<Fusion>(),
      .device = openDevice(DeviceId::cpu(), {.threads = 1}),
      .tensors = {{.val = 0,
                   .sizes = {m, columns[rank]},
                   .strides = {columns[rank], 1},
                   .bytes = m * columns[rank] * 4,
                   .place = Place::Input},
                  {.val = 1, .sizes = {m, all}, .strides = {all, 1}, .bytes = m * all * 4, .place = Place::Output}},
      .steps = {{.kind = HostStepKind::Communicate,
                 .name = "all-gather-v T1",
                 .reads = {0},
                 .writes = {1},
                 .comm = call,
                 .workspaces = {{0}, {m * all * 4}}}},
      .inputs = {0},
      .outputs = {1},
      .aliasOf = {std::nullopt},
      .rank = rank,
      .ranks = 3,
      .communicates = true};
  orderSteps(program, {});
  program.symbols = symbolsOf(program);
  return program;
}

TEST(AnySize, GatherWithCountsThatAreExpressions) {
  runLoopback(3, [](Communicator& comm) {
    const auto program = std::make_shared<const HostProgram>(gatherOfColumns(comm.rank()));
    for (const auto& [m, n] : {std::pair<int64_t, int64_t>{4, 3}, {7, 1}, {1, 5}, {2, 0}, {0, 2}}) {
      const Tensor whole = randomTensor({m, 4 * n + 1}, DataType::Float, 1);
      const std::vector<int64_t> first = {0, n, 3 * n, 4 * n + 1};
      const int64_t own = first[comm.rank() + 1] - first[comm.rank()];
      const std::vector<Argument> inputs = {whole.asStrided({m, own}, {4 * n + 1, 1}, first[comm.rank()]).clone()};
      std::vector<Tensor> outputs = {Tensor::empty({m, 4 * n + 1}, DataType::Float)};
      Binding binding(program, comm, {{"m", m}, {"n", n}});
      EXPECT_EQ(std::ssize(binding.sizes().steps[0].comm.unpack.pieces),
                n == 0 || m < 2 ? std::min<int64_t>(m, 1) : 3 * m);
      binding.run(comm, inputs, outputs);
      EXPECT_EQ(outputs[0].toVector(), whole.toVector()) << m << " x " << n;
    }
  });
}

TEST(AnySize, TheArenaIsPackedForEachBinding) {
  const std::unique_ptr<Communicator> self = makeSelfCommunicator();
  const std::shared_ptr<const HostProgram> program = programOf(built(threeKernels), *self, Steps::Reference);
  for (const int64_t n : {16, 1024}) {
    const ProgramSizes sizes = sizesOf(*program, {{"i0", 16}, {"i1", n}});
    EXPECT_EQ(sizes.arenaBytes, 2 * 16 * n * 4) << "two matrices at a time: " << program->toString();
    EXPECT_EQ(sizes.peakBytes, sizes.arenaBytes + 16 * n * 4 + 16 * 4 + n * 4);
  }
}

TEST(AnySize, ArenasComeFromThePoolAndGoBack) {
  const std::unique_ptr<Communicator> self = makeSelfCommunicator();
  const std::shared_ptr<const HostProgram> program = programOf(built(threeKernels), *self);
  const auto pool = std::make_shared<ArenaPool>();
  const auto sizesFor = [&](int64_t n) {
    return std::make_shared<const ProgramSizes>(sizesOf(*program, {{"i0", 16}, {"i1", n}}));
  };
  int64_t made = 0;  // by the test, not by a binding
  const auto take = [&] {
    return pool->take(1, [&](int64_t bytes) {
      made++;
      return program->device->allocate(bytes);
    });
  };
  { const Binding binding(program, *self, sizesFor(256), pool.get()); }
  const void* const arena = take().get();
  EXPECT_EQ(made, 0) << "it went back to the pool";
  {
    const Binding binding(program, *self, sizesFor(225), pool.get());
    EXPECT_NE(take().get(), arena);
    EXPECT_EQ(made, 1) << "the binding has the arena of the pool";
  }
}

TEST(AnySize, ConstantSizesAreNotEvaluatedAgain) {
  const std::unique_ptr<Communicator> self = makeSelfCommunicator();
  const std::unique_ptr<Fusion> fusion = built([](Fusion& f) { f.addOutput(softmax(matrix(f), 1)); });
  const std::shared_ptr<const HostProgram> program = programOf(concretize(*fusion, Shapes{{5, 7}}), *self);
  ASSERT_NE(program->constant, nullptr);
  EXPECT_EQ(&Binding(program, *self).sizes(), program->constant.get());
  EXPECT_TRUE(program->symbols.empty());
}

TEST(AnySize, ASizeWithoutAValueIsAUserError) {
  const std::unique_ptr<Communicator> self = makeSelfCommunicator();
  const std::unique_ptr<Fusion> fusion = built([](Fusion& f) { f.addOutput(neg(matrix(f))); });
  const std::shared_ptr<const HostProgram> program = programOf(fusion->clone(), *self, Steps::Reference);
  EXPECT_THROW(Binding(program, *self), UserError);
  EXPECT_THROW(Binding(program, *self, {{"i0", -1}, {"i1", 4}}), UserError);
  EXPECT_THROW(Binding(program, *self, {{"i0", int64_t{1} << 40}, {"i1", int64_t{1} << 40}}), UserError);
}

}  // namespace
}  // namespace meshfuse
