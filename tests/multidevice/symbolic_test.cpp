// One fusion with axes of symbolic size, run on several numbers of ranks after its shardings have spread once.
#include <algorithm>
#include <mutex>

#include "analysis/pass_context.h"
#include "exec/symbolic_program.h"
#include "host/program.h"
#include "inputs.h"
#include "interpret/bounds.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/device_of_rank.h"
#include "multidevice/multidevice_test.h"
#include "multidevice/scenario.h"
#include "preseg_passes/propagate_shardings.h"
#include "preseg_passes/specialize.h"
#include "preseg_passes/table.h"
#include "sanitized.h"
#include "tensor/allocator.h"

namespace meshfuse {

namespace {

struct Program {
  std::function<void(Fusion&)> build;
  std::vector<Argument> inputs;  // global

  std::shared_ptr<SymbolicProgram> make() const {
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      build(*fusion);
    }
    return std::make_shared<SymbolicProgram>(std::move(fusion));
  }
};

// Column and row parallel, with a bias: 16 hidden features, which 3 does not divide.
Program mlp(int64_t rows = 6) {
  return {[=](Fusion& f) {
            DeviceMesh mesh = DeviceMesh::create({{"tp"}});
            TensorView* x = input(f, {rows, 8}, mesh);
            TensorView* w0 = input(f, {16, 8}, mesh);
            TensorView* b0 = input(f, {16}, mesh);
            TensorView* w1 = input(f, {8, 16}, mesh);
            shardBlock(w0, 0, mesh, "tp");
            shardBlock(b0, 0, mesh, "tp");
            shardBlock(w1, 1, mesh, "tp");
            f.addOutput(linear(tanh_gelu(linear(x, w0, b0)), w1));
          },
          {random({rows, 8}, 1), random({16, 8}, 2), random({16}, 3), random({8, 16}, 4)}};
}

// Rows over dp, features over tp; a loss over all of them, or none.
Program dataAndTensorParallel(int64_t rows = 8, bool loss = true) {
  return {[=](Fusion& f) {
            DeviceMesh mesh = DeviceMesh::create({{"dp"}, {"tp"}});
            TensorView* x = input(f, {rows, 6}, mesh);
            TensorView* w0 = input(f, {12, 6}, mesh);
            TensorView* w1 = input(f, {6, 12}, mesh);
            shardBlock(x, 0, mesh, "dp");
            shardBlock(w0, 0, mesh, "tp");
            shardBlock(w1, 1, mesh, "tp");
            TensorView* y = linear(relu(linear(x, w0)), w1);
            f.addOutput(y);
            if (loss) {
              f.addOutput(sum(mul(y, y), {0, 1}));
            }
          },
          {random({rows, 6}, 1), random({12, 6}, 2), random({6, 12}, 3)}};
}

// Heads of an attention block: the axis that cuts the features cuts heads where it divides them.
Program heads() {
  return {[](Fusion& f) {
            DeviceMesh mesh = DeviceMesh::create({{"tp"}});
            TensorView* x = input(f, {5, 16}, mesh);
            TensorView* w = input(f, {32, 16}, mesh);
            shardBlock(w, 0, mesh, "tp");
            TensorView* q = reshape(linear(x, w), {5, 8, 4});
            f.addOutput(permute(softmax(q, 2), {1, 0, 2}));
          },
          {random({5, 16}, 1), random({32, 16}, 2)}};
}

// Since the counters were reset, but for what this exchange takes.
int64_t receivedByAll(Communicator& comm) {
  int64_t mine = 0;
  for (const TransferCounters::Entry& e : comm.counters().of) {
    mine += e.bytesReceived;
  }
  return sumOverRanks(comm, mine);
}

// What all loopback ranks together have in use of arguments, results and between them, at the end of a warm call and at its peak: as
// the allocator that they share gave it out.
AllocatorStatistics measuredMemory(Communicator& comm, SymbolicProgram& symbolic, const MeshSizes& sizes,
                                   const std::vector<Argument>& wholes) {
  comm.barrier(comm.world());
  const int64_t before = hostPool().statistics().bytesInUse;
  comm.barrier(comm.world());
  AllocatorStatistics seen;
  {
    FusionExecutorCache cache(symbolic, {.communicator = &comm, .verify = Verify::Off, .meshSizes = sizes});
    std::vector<Argument> local;
    for (size_t i = 0; i < wholes.size(); i++) {
      const Tensor part = shardTensor(std::get<Tensor>(wholes[i]), cache.fusion().inputs()[i]->asTensor(), comm.rank());
      Tensor own = Tensor::empty({part.sizes().begin(), part.sizes().end()}, part.dtype());
      own.copyFrom(part);
      const std::span<const int64_t> whole = part.globalShape();
      local.emplace_back(whole.empty() ? own : own.withGlobalShape({whole.begin(), whole.end()}));
    }
    (void)cache.runFusionWithInputs(local);
    comm.barrier(comm.world());
    if (comm.rank() == 0) {
      hostPool().resetPeak();
    }
    comm.barrier(comm.world());
    const std::vector<Tensor> got = cache.runFusionWithInputs(local);
    comm.barrier(comm.world());
    seen = hostPool().statistics();
    comm.barrier(comm.world());
  }
  comm.barrier(comm.world());
  seen.bytesInUse -= before;
  seen.peakBytesInUse -= before;
  return seen;
}

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const UserError& e) {
    return e.what();
  }
  return "no UserError";
}

// Processes of a host reduce parts, as loopback ranks do, where an all-reduce has more than this; below, the inputs may be read in full.
constexpr int64_t kReducedInParts = int64_t{1} << 20;

class Symbolic : public MultiDeviceTest {
 protected:
  struct Seen {
    std::vector<std::string> communication;  // of rank 0, or of this process under a launcher
    std::vector<std::string> shardings;      // of outputs
    bool communicates = false;
    SymbolicCosts costs;
    int64_t peakBytes = 0;         // of rank 0, as planned
    AllocatorStatistics measured;  // of all ranks in a call, on loopback
    int64_t plannedBytes = 0;      // of all ranks
    int64_t received = 0;          // by all ranks in a call, as the transport counted
  };

  // Runs on so many ranks, compares with the reference, and says what rank 0 did.
  Seen run(const Program& program, const std::shared_ptr<SymbolicProgram>& symbolic, int ranks,
           const MeshSizes& sizes = {}) {
    Seen seen;
    std::mutex mutex;
    const std::vector<BoundedTensor> whole =
        interpretWithBounds(symbolic->written(), program.inputs, {.partials = ranks});
    auto body = [&](Communicator& comm) {
      FusionExecutorCache cache(*symbolic, {.communicator = &comm, .verify = Verify::Always, .meshSizes = sizes});
      const std::vector<Argument> local = shardsOfRank(cache.fusion(), program.inputs, comm);
      int64_t received = 0;
      for (int call = 0; call < 2; call++) {
        comm.resetCounters();
        std::vector<Tensor> got = cache.runFusionWithInputs(local);
        for (size_t i = 0; i < got.size(); i++) {
          BoundedTensor part = shardOf(whole[i], cache.planned()->outputs()[i]->asTensor(), comm.rank());
          EXPECT_EQ(compare(got[i], part).value_or(""), "") << "output " << i << " of\n" << cache.planText();
        }
        received = receivedByAll(comm);
      }
      EXPECT_EQ(cache.plansCompiled(), 1);
      const AllocatorStatistics measured =
          launched() ? AllocatorStatistics() : measuredMemory(comm, *symbolic, sizes, program.inputs);
      const int64_t planned = sumOverRanks(comm, cache.hostProgram()->sizes().peakBytes);
      if (comm.rank() == 0 || launched()) {
        std::lock_guard lock(mutex);
        for (const CommRecord& c : cache.commSteps()) {
          seen.communication.push_back(c.kind);
        }
        for (size_t i = 0; i < whole.size(); i++) {
          seen.shardings.push_back(cache.outputSharding(static_cast<int>(i)));
        }
        seen.communicates = cache.hostProgram()->communicates;
        seen.costs = cache.costs();
        seen.peakBytes = cache.hostProgram()->sizes().peakBytes;
        seen.measured = measured;
        seen.plannedBytes = planned;
        seen.received = received;
      }
    };
    runOnRanks(ranks, body);
    return seen;
  }

  // The expressions of a plan for so many ranks; under a launcher, of threads of this process.
  SymbolicCosts costsOn(int ranks, const Program& program, const std::shared_ptr<SymbolicProgram>& symbolic,
                        const MeshSizes& sizes = {}) {
    if (!launched()) {
      return run(program, symbolic, ranks, sizes).costs;
    }
    SymbolicCosts costs;
    runLoopback(ranks, [&](Communicator& comm) {
      FusionExecutorCache cache(*symbolic, {.communicator = &comm, .meshSizes = sizes});
      const std::vector<Argument> local = shardsOfRank(cache.fusion(), program.inputs, comm);
      (void)cache.runFusionWithInputs(local);
      if (comm.rank() == 0) {
        costs = cache.costs();
      }
    });
    return costs;
  }

  // A plan's peak is what the expression says of rank 0, and so of the others where all parts are alike.
  static void expectPlanned(const SymbolicCosts& costs, const MeshSizes& sizes, const Seen& seen, bool even) {
    if (even || !launched()) {
      EXPECT_EQ(costs.peakMemoryAt(sizes), seen.peakBytes) << costs.peakMemory.toString();
    }
  }

  // Of all ranks; where sizes divide, they are alike. A rank without elements may compute on whole tensors in passing.
  static void expectMeasured(const Seen& seen, int64_t ranks, bool even, bool someEmpty = false) {
    if (launched() || ranksHaveGpus()) {
      return;  // peers read memory that is not the allocator's; the plan of a GPU differs from the measured one
    }
    EXPECT_EQ(seen.measured.bytesInUse, seen.plannedBytes);
    if (even) {
      EXPECT_EQ(seen.plannedBytes, ranks * seen.peakBytes);
    }
    if (someEmpty) {
      EXPECT_LT(seen.measured.bytesInUse, ranks * seen.peakBytes);
    } else {
      EXPECT_EQ(seen.measured.peakBytesInUse, seen.plannedBytes);
    }
  }

  // Under a launcher only as many ranks as it started.
  static std::vector<int> counts() {
    if (!launched()) {
      return {1, 2, 3, 4, 8};
    }
    const char* ranks = std::getenv("OMPI_COMM_WORLD_SIZE");
    return {ranks == nullptr ? 1 : std::atoi(ranks)};
  }
};

TEST_F(Symbolic, MlpRunsOnEveryCountFromOnePropagation) {
  const Program program = mlp();
  const std::shared_ptr<SymbolicProgram> symbolic = program.make();
  for (int n : counts()) {
    SCOPED_TRACE(n);
    const Seen seen = run(program, symbolic, n);
    EXPECT_EQ(seen.communication, n == 1 ? std::vector<std::string>{} : std::vector<std::string>{"all-reduce"});
    EXPECT_EQ(seen.communicates, n > 1);
    EXPECT_EQ(seen.shardings[0].substr(0, 6), "R R on");
  }
  EXPECT_EQ(symbolic->propagations(), 1);
  EXPECT_EQ(symbolic->specializations(), std::ssize(counts()));
}

TEST_F(Symbolic, SpecialisingLeavesNothingToPropagate) {
  for (const Program& program : {mlp(), heads()}) {
    const std::shared_ptr<SymbolicProgram> symbolic = program.make();
    for (int64_t n : {1, 2, 3, 4, 8}) {
      std::unique_ptr<Fusion> fusion = symbolic->at({{"tp", n}})->clone();
      PassContext context(*fusion);
      EXPECT_FALSE(propagateShardings(*fusion, context)) << n;
      EXPECT_EQ(openAxes(*fusion), std::vector<std::string>{});
      EXPECT_EQ(verify(*fusion), std::vector<std::string>{});
    }
    EXPECT_EQ(symbolic->propagations(), 1);
    EXPECT_EQ(symbolic->specializations(), 5);
  }
}

// Casts for some uses, windows of pads, products on both sides of a split: all that passes change before sizes are known.
Program castsAndWindows() {
  return {[](Fusion& f) {
            DeviceMesh mesh = DeviceMesh::create({{"tp"}});
            TensorView* x = input(f, {24, 16}, mesh);
            TensorView* w = input(f, {48, 16}, mesh);
            shardBlock(x, 0, mesh, "tp");
            shardBlock(w, 0, mesh, "tp");
            TensorView* half = castOp(DataType::BFloat16, x);
            f.addOutput(castOp(DataType::Float, half));
            f.addOutput(linear(castOp(DataType::Float, half), w));
            TensorView* padded = pad(x, {0, 0, 1, 1});
            f.addOutput(add(slice(padded, {0, 0}, {24, 16}), slice(padded, {2, 0}, {26, 16})));
          },
          {random({24, 16}, 1), random({48, 16}, 2)}};
}

// The passes that ran before sizes were known gave, for each count, just what all of them give of the fusion with that count written
// in it: compared by text once everything is planned. Where a guard fails, the parts that were settled without the size are others.
TEST_F(Symbolic, OptimizedBeforeSizesIsEqualForEachCount) {
  const auto planned = [](const Fusion& of) {
    const std::unique_ptr<Fusion> fusion = of.clone();
    PassContext context(*fusion);
    runPresegPasses(*fusion, context);
    for (TensorView* tv : fusion->tensors()) {
      setShardState(tv, shardState(tv));  // an axis of one device owns nothing, whether or not it is bound
    }
    return fusion->toString();
  };
  int compared = 0;
  for (const Program& program : {mlp(), mlp(24), heads(), castsAndWindows(), dataAndTensorParallel(24)}) {
    const std::shared_ptr<SymbolicProgram> symbolic = program.make();
    const bool isGrid = openAxes(symbolic->written()).size() == 2;
    for (int64_t n : {1, 2, 3, 4, 8}) {
      const MeshSizes sizes = isGrid ? MeshSizes{{"dp", n}, {"tp", n == 1 ? 1 : 2}} : MeshSizes{{"tp", n}};
      if (symbolic->failingGuards(sizes).empty()) {
        EXPECT_EQ(planned(*symbolic->at(sizes)), planned(*specialize(symbolic->written(), sizes))) << n;
        compared++;
      }
    }
    EXPECT_EQ(symbolic->propagations(), 1);
  }
  EXPECT_GE(compared, 20);
}

// What is spread has the symbol where the count will be, whatever ranks were asked for before.
TEST_F(Symbolic, TheTextHasNoCount) {
  const std::shared_ptr<SymbolicProgram> symbolic = mlp().make();
  const std::string before = symbolic->propagated().toString();
  EXPECT_NE(before.find("mesh M0 {tp: tp} []"), std::string::npos) << before;
  EXPECT_NE(before.find("outer_split(0, tp) parallelize(0, DIDx) loop[DIDx{tp}, ceilDiv(16, tp), 8]"),
            std::string::npos)
      << before;
  for (const char* count : {"DIDx{1}", "DIDx{2}", "DIDx{3}", "DIDx{4}", "DIDx{8}", "split(0, 2", "split(1, 2"}) {
    EXPECT_EQ(before.find(count), std::string::npos) << count << " in\n" << before;
  }
  for (int64_t n : {1, 2, 3, 4, 8}) {
    (void)symbolic->at({{"tp", n}});
  }
  EXPECT_EQ(symbolic->propagated().toString(), before);
  std::unique_ptr<Fusion> again = parseFusion(before);
  EXPECT_EQ(again->toString(), before);
  for (int64_t n : {1, 3, 8}) {
    EXPECT_EQ(specialize(*again, {{"tp", n}})->toString(), symbolic->at({{"tp", n}})->toString());
  }
}

TEST_F(Symbolic, DataAndTensorParallelOnEveryGrid) {
  const Program program = dataAndTensorParallel();
  const std::shared_ptr<SymbolicProgram> symbolic = program.make();
  std::vector<std::pair<int64_t, int64_t>> grids;
  for (int n : counts()) {
    for (int64_t dp = 1; dp <= n; dp++) {
      if (n % dp == 0) {
        grids.emplace_back(dp, n / dp);
      }
    }
  }
  for (const auto& [dp, tp] : grids) {
    SCOPED_TRACE(fmt::format("dp {} tp {}", dp, tp));
    const Seen seen = run(program, symbolic, static_cast<int>(dp * tp), {{"dp", dp}});
    // the rows of each dp over tp, the loss over dp on each tp
    std::vector<std::string> sums((tp > 1 ? 1 : 0) + (dp > 1 ? 1 : 0), "all-reduce");
    EXPECT_EQ(seen.communication, sums);
    EXPECT_EQ(seen.communicates, dp * tp > 1);
    if (!launched()) {
      EXPECT_EQ(seen.received, 2 * (tp - 1) * 8 * 6 * 4 + tp * 2 * (dp - 1) * 4);
    }
  }
  EXPECT_EQ(symbolic->propagations(), 1);
  EXPECT_EQ(symbolic->specializations(), std::ssize(grids));
}

// 3 divides neither 32 features nor 8 heads, 16 only the features: the guard says so, and the parts are uneven.
TEST_F(Symbolic, HeadsAreCutWhereTheCountDividesThem) {
  const Program program = heads();
  const std::shared_ptr<SymbolicProgram> symbolic = program.make();
  EXPECT_EQ(symbolic->guards(), (std::vector<std::string>{"tp divides 4"}));
  for (int n : counts()) {
    SCOPED_TRACE(n);
    const Seen seen = run(program, symbolic, n);
    if (n == 3) {
      // Parts of 11, 11 and 10 features, and of 3, 3 and 2 heads of 4: ranks lack 1, 2 and none of those of their heads, in 5 rows.
      EXPECT_EQ(seen.communication, std::vector<std::string>{"all-to-all-v"});
      EXPECT_EQ(seen.received, (1 + 2 + 0) * 5 * 4);
    } else if (8 % n == 0) {
      EXPECT_EQ(seen.communication, std::vector<std::string>{});
      EXPECT_EQ(seen.received, 0);
    }
    EXPECT_EQ(seen.shardings[0].substr(0, 9), n == 1 ? "R R R on " : "S0(tp) R ") << seen.shardings[0];
    EXPECT_EQ(symbolic->failingGuards({{"tp", n}}).empty(), 4 % n == 0);
  }
}

// The expressions are those of the plan for 2 ranks, and hold for the others; where steps differ, those of a plan with such steps.
TEST_F(Symbolic, CostsAreExpressionsThatTheCountersMeet) {
  const int64_t rows = launched() ? kReducedInParts / 32 + 12 : 6;
  const Program program = mlp(rows);
  const std::shared_ptr<SymbolicProgram> symbolic = program.make();
  const SymbolicCosts two = costsOn(2, program, symbolic);
  // elements of the sum, twice through all but one rank
  EXPECT_EQ(two.commBytes.toString(), fmt::format("tp*{0} - {0}", 2 * rows * 8 * 4));
  EXPECT_EQ(two.constants, std::vector<std::string>{});
  EXPECT_EQ(refusal([&] { (void)two.commBytesAt({}); }), "[costs] axis tp has no size; give it one");
  for (int n : counts()) {
    SCOPED_TRACE(n);
    const Seen seen = run(program, symbolic, n);
    EXPECT_EQ(two.commBytesAt({{"tp", n}}), seen.received);
    EXPECT_EQ(seen.costs.commBytesAt({{"tp", n}}), seen.received);
    expectPlanned(seen.costs, {{"tp", n}}, seen, 16 % n == 0);
    expectMeasured(seen, n, 16 % n == 0);
    if (n > 1) {
      expectPlanned(two, {{"tp", n}}, seen, 16 % n == 0);
    }
  }
}

// Between processes without the loss: a number is always read in full.
TEST_F(Symbolic, CostsOfTwoAxes) {
  const int64_t rows = launched() ? kReducedInParts / 8 : 8;  // halves of 6 columns: 1.5 MiB
  const Program program = dataAndTensorParallel(rows, !launched());
  const std::shared_ptr<SymbolicProgram> symbolic = program.make();
  const SymbolicCosts four = costsOn(4, program, symbolic, {{"dp", 2}});
  EXPECT_EQ(four.constants, std::vector<std::string>{});
  std::vector<std::pair<int64_t, int64_t>> grids{{1, 1}, {1, 2}, {2, 1}, {2, 2}, {3, 1},
                                                 {1, 3}, {2, 4}, {4, 2}, {2, 3}, {3, 2}};
  if (launched()) {
    const int64_t n = counts()[0];
    std::erase_if(grids, [&](const auto& grid) { return grid.first * grid.second != n; });
    grids.emplace_back(1, n);
  }
  for (const auto& [dp, tp] : grids) {
    SCOPED_TRACE(fmt::format("dp {} tp {}", dp, tp));
    const MeshSizes sizes{{"dp", dp}, {"tp", tp}};
    const bool even = rows % dp == 0 && 12 % tp == 0;
    const Seen seen = run(program, symbolic, static_cast<int>(dp * tp), sizes);
    EXPECT_EQ(four.commBytesAt(sizes), seen.received) << four.commBytes.toString();
    expectPlanned(seen.costs, sizes, seen, even);
    expectMeasured(seen, dp * tp, even);
  }
}

// Rows to columns: all-to-alls, of equal and of unequal parts.
TEST_F(Symbolic, CostsOfMovingAShard) {
  const int64_t width = launched() ? kReducedInParts / 64 + 8 : 3;
  const Program program{[=](Fusion& f) {
                          DeviceMesh mesh = DeviceMesh::create({{"tp"}});
                          TensorView* x = input(f, {8, 16, width}, mesh);
                          shardBlock(x, 0, mesh, "tp");
                          TensorView* y = exp(x);
                          TensorView* z = set(y);
                          f.addOutput(z);
                          z->setDeviceMesh(mesh);
                          shardBlock(z, 1, mesh, "tp");
                          TensorView* all = set(y);
                          f.addOutput(all);
                          all->setDeviceMesh(mesh);
                          f.addOutput(sum(y, {0}));
                        },
                        {random({8, 16, width}, 1)}};
  const std::shared_ptr<SymbolicProgram> symbolic = program.make();
  const SymbolicCosts two = costsOn(2, program, symbolic);
  for (int n : launched() ? counts() : std::vector<int>{1, 2, 3, 4, 5, 8}) {
    SCOPED_TRACE(n);
    const Seen seen = run(program, symbolic, n);
    std::vector<std::string> kinds;
    if (n > 1) {
      kinds = {"all-reduce", 8 % n == 0 ? "all-to-all" : "all-to-all-v", 8 % n == 0 ? "all-gather" : "all-gather-v"};
    }
    EXPECT_EQ(seen.communication, kinds);
    EXPECT_EQ(two.commBytesAt({{"tp", n}}), seen.received) << two.commBytes.toString();
    expectPlanned(seen.costs, {{"tp", n}}, seen, 8 % n == 0);
    expectMeasured(seen, n, 8 % n == 0, n == 5);  // four have two rows
  }
}

// The elements that ranks combine in the program below: the largest of each column by one call, the products and all sums by another.
// With one row or none, only sums of the input itself are combined; tensors computed from it are gathered first.
int64_t summedElements(int64_t extent) {
  const int64_t columns = 12, largest = 12, products = 12 * 12, all = 1, ofSoftmax = 12;
  return columns + largest + products + (extent > 1 ? all + ofSoftmax : 0);
}

// Parts of [extent * 12] and [extent * 3, 4] end inside a row where the count does not divide the rows: both are gathered. Of the one
// row there is: what three results are reshaped from, the squares, and the differences of the softmax.
std::vector<int64_t> gatheredElements(int64_t extent, int64_t n) {
  return std::vector<int64_t>(extent == 1 ? 5 : extent % n != 0 ? 2 : 0, extent * 12);
}

// Dims that counts do not divide, that are smaller than they, or empty; merged, split, and reduced before what is not linear.
TEST_F(Symbolic, DimsThatNoCountSuits) {
  for (int64_t extent : {6, 1, 0, 2, 3, 4, 5}) {
    if ((kSanitized || ranksHaveGpus()) && extent > 1 && extent < 5) {
      continue;  // they take long there
    }
    const Program program{[=](Fusion& f) {
                            DeviceMesh mesh = DeviceMesh::create({{"tp"}});
                            TensorView* x = input(f, {extent, 12}, mesh);
                            shardBlock(x, 0, mesh, "tp");
                            f.addOutput(reshape(exp(x), {extent * 12}));
                            f.addOutput(reshape(neg(x), {extent, 3, 4}));
                            f.addOutput(reshape(add(x, 1.0), {extent * 3, 4}));
                            f.addOutput(exp(sum(x, {0})));
                            f.addOutput(relu(sum(mul(x, x), {0, 1})));
                            f.addOutput(softmax(x, 0));
                            TensorView* w = input(f, {12, extent}, mesh);
                            shardBlock(w, 1, mesh, "tp");
                            f.addOutput(tanh(matmul(w, x)));
                          },
                          {random({extent, 12}, 1), random({12, extent}, 2)}};
    const std::shared_ptr<SymbolicProgram> symbolic = program.make();
    for (int n : counts()) {
      SCOPED_TRACE(fmt::format("{} on {}", extent, n));
      const Seen seen = run(program, symbolic, n);
      EXPECT_EQ(seen.communicates, n > 1);
      if (n == 2 || n == 3) {
        std::vector<std::string> kinds{"all-reduce", "all-reduce"};
        int64_t elements = 2 * summedElements(extent);
        for (const int64_t gathered : gatheredElements(extent, n)) {
          kinds.emplace_back("all-gather-v");
          elements += gathered;
        }
        EXPECT_EQ(seen.communication, kinds);
        if (!launched()) {
          EXPECT_EQ(seen.received, elements * (n - 1) * 4);
        }
      }
    }
    EXPECT_EQ(symbolic->propagations(), 1);
  }
}

TEST_F(Symbolic, BlocksOverTwoAxesOfOneDim) {
  const Program program{[](Fusion& f) {
                          DeviceMesh mesh = DeviceMesh::create({{"dp"}, {"tp"}});
                          TensorView* x = input(f, {10, 4}, mesh);
                          x->outer_split(0, mesh.size("dp") * mesh.size("tp"));
                          x->outer_split(0, mesh.size("dp"));
                          x->axis(0)->parallelize(mesh.axis("dp"));
                          x->axis(1)->parallelize(mesh.axis("tp"));
                          TensorView* y = mul(exp(x), x);
                          f.addOutput(y);
                          f.addOutput(sum(y, {0}));
                        },
                        {random({10, 4}, 1)}};
  const std::shared_ptr<SymbolicProgram> symbolic = program.make();
  for (int n : counts()) {
    for (int64_t dp = 1; dp <= n; dp++) {
      if (n % dp == 0) {
        SCOPED_TRACE(fmt::format("dp {} tp {}", dp, n / dp));
        const Seen seen = run(program, symbolic, n, {{"dp", dp}});
        EXPECT_EQ(seen.communication, n == 1 ? std::vector<std::string>{} : std::vector<std::string>{"all-reduce"});
        EXPECT_EQ(seen.communicates, n > 1);
        if (!launched()) {
          EXPECT_EQ(seen.received, 2 * (n - 1) * 4 * 4);
        }
        EXPECT_EQ(seen.shardings[0].substr(0, 2), n == 1 ? "R " : "S0") << seen.shardings[0];
      }
    }
  }
}

// Extents of inputs are symbols too, bound by each call.
TEST_F(Symbolic, SizesOfInputsAreOpenToo) {
  Program program{[](Fusion& f) {
                    DeviceMesh mesh = DeviceMesh::create({{"tp"}});
                    TensorView* x = makeContigTensor(2);
                    TensorView* w = makeContigTensor(2);
                    for (TensorView* in : {x, w}) {
                      f.addInput(in);
                      in->setDeviceMesh(mesh);
                    }
                    shardBlock(w, 0, mesh, "tp");
                    TensorView* y = tanh(linear(x, w));
                    f.addOutput(sum(y, {1}));
                  },
                  {random({3, 8}, 1), random({12, 8}, 2)}};
  const std::shared_ptr<SymbolicProgram> symbolic = program.make();
  for (int n : counts()) {
    SCOPED_TRACE(n);
    const Seen seen = run(program, symbolic, n);
    EXPECT_EQ(seen.communication, n == 1 ? std::vector<std::string>{} : std::vector<std::string>{"all-reduce"});
    if (!launched()) {
      EXPECT_EQ(seen.received, 2 * (n - 1) * 3 * 4);
    }
  }
  EXPECT_EQ(symbolic->propagations(), 1);
}

// Merged under a dim of open size: where 3 does not divide 8, no rank has a part of the merged dim.
TEST_F(Symbolic, MergedUnderADimOfOpenSize) {
  const Program program{[](Fusion& f) {
                          DeviceMesh mesh = DeviceMesh::create({{"tp"}});
                          TensorView* x = makeContigTensor(2);
                          TensorView* y = makeContigConcreteTensor({-1, 8});
                          for (TensorView* in : {x, y}) {
                            f.addInput(in);
                            in->setDeviceMesh(mesh);
                          }
                          shardBlock(y, 1, mesh, "tp");
                          f.addOutput(neg(flatten(exp(y), 0, 1)));
                          f.addOutput(sum(x, {0}));
                        },
                        {random({3, 5}, 1), random({4, 8}, 2)}};
  const std::shared_ptr<SymbolicProgram> symbolic = program.make();
  for (int n : counts()) {
    SCOPED_TRACE(n);
    const Seen seen = run(program, symbolic, n);
    EXPECT_EQ(seen.communication, n == 3 ? std::vector<std::string>{"all-gather-v"} : std::vector<std::string>{});
    EXPECT_EQ(seen.received, n == 3 ? 2 * 4 * 8 * 4 : 0);
  }
}

TEST_F(Symbolic, AFusionSpecialisesItselfToItsRanks) {
  runOnRanks(4, [](Communicator& comm) {
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      dataAndTensorParallel().build(*fusion);
    }
    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm, .meshSizes = {{"tp", 2}}});
    EXPECT_EQ(cache.fusion().inputs()[0]->asTensor()->getDeviceMesh().toString(), "{dp: 2, tp: 2}[0, 1, 2, 3]");
  });
}

TEST_F(Symbolic, AWindowOfAPadIsFoldedForEveryCount) {
  auto fusion = parseFusion(
      "fusion {\n"
      "  mesh M0 {tp: tp hint 2} []\n"
      "  T0 = input() : Float[16, 4] contiguity[t, t] mesh M0 outer_split(0, tp) parallelize(0, DIDx)\n"
      "  T1 = pad(T0, 0.0, starts=[1, 0], stops=[1, 0]) : Float[18, 4]\n"
      "  T2 = slice(T1, starts=[2, 0], stops=[18, 4], steps=[1, 1]) : Float[16, 4] mesh M0 outer_split(0, tp) "
      "parallelize(0, DIDx)\n"
      "  output T2\n"
      "}\n");
  const SymbolicProgram program(std::move(fusion));
  EXPECT_EQ(program.propagations(), 1);
}

TEST_F(Symbolic, CountsThatDoNotFit) {
  const std::shared_ptr<SymbolicProgram> symbolic = dataAndTensorParallel().make();
  EXPECT_EQ(
      refusal([&] { (void)symbolic->forRanks(4); }),
      "[specialize] axes dp, tp of {dp: dp, tp: tp}[] have no size; 4 ranks determine only one; give all but one");
  EXPECT_EQ(refusal([&] {
              (void)symbolic->forRanks(6, {{"dp", 4}});
            }),
            "[specialize] 6 ranks are no multiple of the 4 along the other axes of {dp: 4, tp: tp}[], so axis tp has "
            "no size; start 4, 8 or another multiple");
  EXPECT_EQ(refusal([&] {
              (void)symbolic->at({{"dp", 4}});
            }),
            "[specialize] axes without a size: tp; give each a number of devices");
  EXPECT_EQ(refusal([&] {
              (void)symbolic->at({{"dp", 4}, {"pp", 2}, {"tp", 1}});
            }),
            "[specialize] no mesh has an axis pp; those of symbolic size are: dp, tp");
  EXPECT_EQ(refusal([&] {
              (void)symbolic->at({{"dp", 4}, {"tp", 0}});
            }),
            "[specialize] axis tp got size 0; a mesh axis has at least 1 device");
  EXPECT_EQ(symbolic->specializations(), 0);
}

}  // namespace
}  // namespace meshfuse
