// Plans of any size on several ranks: results, and the communication of plans for constant sizes.
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/ranges.h"
#include "device/open.h"
#include "exec/compile.h"
#include "exec/explain.h"
#include "exec/plan_cache.h"
#include "inputs.h"
#include "interpret/bounds.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/device_of_rank.h"
#include "multidevice/multidevice_test.h"
#include "multidevice/scenario.h"
#include "stress/checked_cache.h"

namespace meshfuse {

namespace {

using Shapes = std::vector<std::vector<int64_t>>;
using Build = std::function<void(Fusion&, int64_t ranks)>;

TensorView* sized(Fusion& f, int64_t dims, const DeviceMesh& mesh) {
  TensorView* tv = makeContigTensor(dims);
  f.addInput(tv);
  tv->setDeviceMesh(mesh);
  return tv;
}

int64_t bytesReceived(const FusionExecutorCache& cache) { return sumOf(cache.commSteps(), &CommRecord::bytesReceived); }

class ShapesOnRanks : public MultiDeviceTest {
 protected:
  void SetUp() override {
    if (defaultDevice() != DeviceId::cpu()) {
      GTEST_SKIP() << "kernels of other devices take constant sizes";
    }
  }

  // Each call is compared with the interpreter, and the bytes that it receives with those of a plan for its sizes alone. At most `most` programs are
  // compiled.
  void runShapes(const Build& build, const std::function<std::vector<Shapes>(int64_t ranks)>& calls, int64_t most) {
    runOnRanks([&](Communicator& comm) {
      const auto make = [&] {
        auto fusion = std::make_unique<Fusion>();
        FusionGuard guard(fusion.get());
        build(*fusion, comm.size());
        return fusion;
      };
      const std::unique_ptr<Fusion> fusion = make();
      FusionExecutorCache cache(make(), {.communicator = &comm});
      FusionExecutorCache constant(make(), {.communicator = &comm, .sharePlans = false});
      for (const Shapes& shapes : calls(comm.size())) {
        uint64_t seed = 1;
        const auto inputs = mapped<Argument>(
            shapes, [&](const std::vector<int64_t>& s) { return randomTensor(s, DataType::Float, seed++, -1, 1); });
        const std::vector<BoundedTensor> whole = interpretWithBounds(*fusion, inputs, {.partials = comm.size()});
        const std::vector<Argument> local = shardsOfRank(*fusion, inputs, comm);
        const std::vector<Tensor> got = cache.runFusionWithInputs(local);
        const std::shared_ptr<const Fusion> planned = cache.planned();
        for (const int64_t i : indices(got)) {
          const BoundedTensor part = shardOf(whole[i], planned->outputs()[i]->asTensor(), comm.rank());
          EXPECT_EQ(compare(got[i], part).value_or(""), "") << "output " << i << " of " << shapes[0][0] << " rows";
        }
        (void)constant.runFusionWithInputs(local);
        EXPECT_EQ(bytesReceived(cache), bytesReceived(constant))
            << shapes[0][0] << " rows: " << fmt::format("{}", fmt::join(cache.explain().sizes, ", "));
      }
      EXPECT_LE(cache.plansCompiled(), most) << fmt::format("{}", fmt::join(cache.explain().sizes, ", "));
    });
  }
};

// Row counts that the ranks divide.
std::vector<int64_t> rowCounts(int64_t ranks) {
  return mapped(std::vector<int64_t>{12, 16, 5, 32, 7, 48, 64, 13, 80, 6}, [=](int64_t n) { return n * ranks; });
}

TEST_F(ShapesOnRanks, AnMlpOfTensorParallelRanks) {
  runShapes(
      [](Fusion& f, int64_t n) {
        const DeviceMesh mesh = DeviceMesh::create({{"tp", n}});
        TensorView* x = sized(f, 2, mesh);
        TensorView* w0 = input(f, {48, 16}, mesh);
        TensorView* w1 = input(f, {16, 48}, mesh);
        shardBlock(w0, 0, mesh, "tp");
        shardBlock(w1, 1, mesh, "tp");
        f.addOutput(linear(tanh_gelu(linear(x, w0)), w1));
      },
      [](int64_t n) {
        return mapped(rowCounts(n), [](int64_t rows) { return Shapes{{rows, 16}, {48, 16}, {16, 48}}; });
      },
      3);
}

TEST_F(ShapesOnRanks, RowsOfDataParallelRanks) {
  runShapes(
      [](Fusion& f, int64_t n) {
        const DeviceMesh mesh = DeviceMesh::create({{"dp", n}});
        TensorView* x = sized(f, 2, mesh);
        TensorView* w = input(f, {8, 16}, mesh);
        shardBlock(x, 0, mesh, "dp");
        TensorView* y = softmax(linear(x, w), 1);
        f.addOutput(y);
        f.addOutput(sum(y, {0}));
        f.addOutput(sum(mul(y, y), {0, 1}));
      },
      [](int64_t n) { return mapped(rowCounts(n), [](int64_t rows) {
                        return Shapes{{rows, 16}, {8, 16}};
                      }); }, 3);
}

// Layers with attention and norms on a grid: rows over dp, heads and features over tp.
TEST_F(ShapesOnRanks, AnEncoderOnAGrid) {
  constexpr int64_t kTokens = 8;
  constexpr int64_t kFeatures = 32;
  constexpr int64_t kHeads = 4;
  runShapes(
      [](Fusion& f, int64_t n) {
        const int64_t parts = n % 2 == 0 ? 2 : 1;
        const DeviceMesh mesh = DeviceMesh::create({{"dp", n / parts}, {"tp", parts}});
        TensorView* x = sized(f, 3, mesh);
        if (n > 2) {
          shardBlock(x, 0, mesh, "dp");
        }
        const auto weight = [&](int64_t rows, int64_t columns, int dim) {
          TensorView* w = input(f, {rows, columns}, mesh);
          shardBlock(w, dim, mesh, "tp");
          return w;
        };
        for (int64_t layer = 0; layer < 2; layer++) {
          const auto heads = [&](TensorView* t) {
            return permute(reshape(t, {x->shape()[0], kTokens, kHeads, kFeatures / kHeads}), {0, 2, 1, 3});
          };
          TensorView* normed = layer_norm(x, 1, nullptr, nullptr, 1e-5).output;
          TensorView* q = heads(linear(normed, weight(kFeatures, kFeatures, 0)));
          TensorView* k = heads(linear(normed, weight(kFeatures, kFeatures, 0)));
          TensorView* v = heads(linear(normed, weight(kFeatures, kFeatures, 0)));
          TensorView* a = matmul(softmax(mul(matmul(q, transpose(k, 2, 3)), 0.35), 3), v);
          TensorView* together = reshape(permute(a, {0, 2, 1, 3}), {x->shape()[0], kTokens, kFeatures});
          x = add(x, linear(together, weight(kFeatures, kFeatures, 1)));
          TensorView* wide = tanh_gelu(linear(x, weight(2 * kFeatures, kFeatures, 0)));
          x = add(x, linear(wide, weight(kFeatures, 2 * kFeatures, 1)));
        }
        f.addOutput(x);
      },
      [](int64_t n) {
        return mapped(rowCounts(n), [](int64_t batch) {
          Shapes shapes{{batch, kTokens, kFeatures}};
          for (int64_t layer = 0; layer < 2; layer++) {
            const std::vector<int64_t> square{kFeatures, kFeatures};
            shapes.insert(shapes.end(),
                          {square, square, square, square, {2 * kFeatures, kFeatures}, {kFeatures, 2 * kFeatures}});
          }
          return shapes;
        });
      },
      3);
}

// Columns that the ranks do not divide: rows of any number beside them would need parts of symbolic sizes.
TEST_F(ShapesOnRanks, UnevenColumnsBesideAnyRows) {
  runShapes(
      [](Fusion& f, int64_t n) {
        const DeviceMesh mesh = DeviceMesh::create({{"tp", n}});
        TensorView* x = sized(f, 2, mesh);
        TensorView* w = input(f, {2 * n + 1, 16}, mesh);
        shardBlock(w, 0, mesh, "tp");
        TensorView* y = tanh(linear(x, w));
        f.addOutput(y);
        f.addOutput(sum(y, {1}));
      },
      [](int64_t n) {
        return mapped(std::vector<int64_t>{6, 10, 14, 12}, [n](int64_t rows) {
          return Shapes{{rows * n, 16}, {2 * n + 1, 16}};
        });
      },
      4);
}

// -- ranks whose calls differ -------------------------------------------------------------------------------------------

// Rows over the ranks; the sum over them is an all-reduce.
void columnSums(Fusion& f, int64_t n) {
  const DeviceMesh mesh = DeviceMesh::create({{"dp", n}});
  TensorView* x = sized(f, 2, mesh);
  shardBlock(x, 0, mesh, "dp");
  f.addOutput(sum(tanh(x), {0}));
}

// The whole of the rows on each rank; a product with a cut weight is summed.
void productOfParts(Fusion& f, int64_t n) {
  const DeviceMesh mesh = DeviceMesh::create({{"tp", n}});
  TensorView* x = sized(f, 2, mesh);
  TensorView* w = input(f, {48, 16}, mesh);
  shardBlock(w, 0, mesh, "tp");
  TensorView* v = input(f, {8, 48}, mesh);
  shardBlock(v, 1, mesh, "tp");
  f.addOutput(linear(relu(linear(x, w)), v));
}

std::vector<Argument> columnSumsOf(int64_t rows) { return {randomTensor({rows, 16}, DataType::Float, 1, -1, 1)}; }

std::vector<Argument> productOf(int64_t rows) {
  return {randomTensor({rows, 16}, DataType::Float, 1, -1, 1), randomTensor({48, 16}, DataType::Float, 2, -1, 1),
          randomTensor({8, 48}, DataType::Float, 3, -1, 1)};
}

std::unique_ptr<Fusion> fusionOf(const Build& build, int64_t ranks) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  build(*fusion, ranks);
  return fusion;
}

// A cache that has seen several sizes, and what it must give.
class CalledShapes {
 public:
  CalledShapes(const Build& build, std::vector<Argument> (*whole)(int64_t rows), Communicator& comm)
      : comm_(comm),
        whole_(whole),
        fusion_(fusionOf(build, comm.size())),
        cache_(fusionOf(build, comm.size()), {.communicator = &comm}) {}

  FusionExecutorCache& cache() { return cache_; }
  std::vector<Argument> shards(int64_t rows) const { return shardsOfRank(*fusion_, whole_(rows), comm_); }

  void expectRight(int64_t rows) { expectRight(rows, shards(rows)); }
  void expectRight(int64_t rows, const std::vector<Argument>& local) {
    const std::vector<BoundedTensor> whole = interpretWithBounds(*fusion_, whole_(rows), {.partials = comm_.size()});
    const std::vector<Tensor> got = cache_.runFusionWithInputs(local);
    const std::shared_ptr<const Fusion> planned = cache_.planned();
    for (const int64_t i : indices(got)) {
      const BoundedTensor part = shardOf(whole[i], planned->outputs()[i]->asTensor(), comm_.rank());
      EXPECT_EQ(compare(got[i], part).value_or(""), "") << "output " << i << " of " << rows << " rows";
    }
  }

 private:
  Communicator& comm_;
  std::vector<Argument> (*whole_)(int64_t rows);
  std::unique_ptr<Fusion> fusion_;
  FusionExecutorCache cache_;
};

// Rank 0 passes the first number of rows, the others the second one.
TEST_F(ShapesOnRanks, SizesThatDifferAreOneErrorOnAllRanks) {
  loopback_.deadline = std::chrono::milliseconds(20'000);
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    CalledShapes sums(columnSums, columnSumsOf, comm);
    CalledShapes product(productOfParts, productOf, comm);
    for (CalledShapes* of : {&sums, &product}) {
      for (const int64_t rows : {12 * n, 20 * n, 28 * n}) {
        of->expectRight(rows);
      }
    }
    struct Case {
      std::string name;
      int64_t first, others;
    };
    for (const Case& c : {Case{"of one class", 14 * n, 18 * n}, Case{"of two classes", 32 * n, 22 * n},
                          Case{"of a class and of none", 11 * n, 1}, Case{"of none and of a class", 1, 11 * n},
                          Case{"that no rank divides, and of a class", 2 * n + 1, 10 * n}}) {
      const std::vector<Argument> local = product.shards(comm.rank() == 0 ? c.first : c.others);
      const std::string error = errorOf([&] { (void)product.cache().runFusionWithInputs(local); });
      const std::string other = comm.exchange(error)[0];
      EXPECT_EQ(error, other) << c.name;
      EXPECT_NE(error.find("dim 0 of input 0 (T0) is"), std::string::npos) << c.name << ": " << error;
      product.expectRight(20 * n);
      product.expectRight(24 * n);
    }
    const std::vector<Argument> local = sums.shards(comm.rank() == 0 ? 14 * n : 18 * n);
    const std::string error = errorOf([&] { (void)sums.cache().runFusionWithInputs(local); });
    EXPECT_NE(error.find("differ in size from that of rank 0"), std::string::npos) << error;
    sums.expectRight(14 * n);
    sums.expectRight(18 * n);
  });
}

// A rank may lay out its shard as it likes, for new shapes and for those on which the ranks have agreed: its collectives are those of its peers.
TEST_F(ShapesOnRanks, OneRankWithOtherStridesMakesTheSameCollectives) {
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    for (const bool isProduct : {false, true}) {
      CalledShapes called(isProduct ? productOfParts : columnSums, isProduct ? productOf : columnSumsOf, comm);
      std::map<int64_t, int64_t> bytes;
      const auto call = [&](int64_t rows, bool isStrided) {
        std::vector<Argument> local = called.shards(rows);
        if (isStrided) {
          local[0] = std::get<Tensor>(local[0]).transpose(0, 1).clone().transpose(0, 1);
        }
        called.expectRight(rows, local);
        const auto [known, isNew] = bytes.try_emplace(rows, bytesReceived(called.cache()));
        EXPECT_EQ(known->second, bytesReceived(called.cache())) << rows << " rows";
      };
      for (const int64_t k : {12, 20, 32, 28}) {
        call(k * n, false);
      }
      for (const int64_t k : {20, 28, 32, 12}) {
        call(k * n, comm.rank() == 1);
        call(k * n, comm.rank() == 0);
        call(k * n, false);
      }
      call(44 * n, comm.rank() == 1);
      call(44 * n, comm.rank() == 0);
      call(52 * n, false);
      call(48 * n, true);
      call(48 * n, false);
    }
  });
}

// While it plans, and while it compiles the program on which all have agreed: all are told, and the next call is right.
TEST_F(ShapesOnRanks, ARankThatCannotMakeAProgramOfAClassTellsItsPeers) {
  loopback_.deadline = std::chrono::milliseconds(20'000);
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    const std::unique_ptr<Fusion> fusion = fusionOf(columnSums, n);
    const std::shared_ptr<Device> device = openDevice(DeviceId::cpu(), {.threads = 1});
    std::function<void()> failPlanning = [] {};
    std::function<void()> failCompiling = [] {};
    Agreement agreement(comm, {.maxPlans = 8});
    PlanCache plans(*fusion, comm, 8, true,
                    [&](std::span<const Argument> in, const Agreement::Call& call, const ShapeClass& sizes,
                        const std::shared_ptr<const PlannedProgram>& known) {
                      call.beforeAgreement({*fusion, in}, failPlanning);
                      CompiledProgram compiled = compile(*fusion, in, call, device, {}, sizes, known);
                      call.afterPlanning({*fusion, in}, *compiled.program.agreedOn, failCompiling);
                      return compiled;
                    });
    const auto errorFor = [&](int64_t rows) {
      const std::vector<Argument> local = shardsOfRank(*fusion, columnSumsOf(rows), comm);
      return errorOf([&] { const PlanCache::Use use(plans, local, agreement.call()); });
    };
    EXPECT_EQ(errorFor(12 * n), "");
    for (std::function<void()>* stage : {&failPlanning, &failCompiling}) {
      for (const bool isUsers : {true, false}) {
        for (int64_t failing = 0; failing < n; failing++) {
          if (comm.rank() == failing) {
            *stage = [=] {
              isUsers ? throwUserError("[test] no such plan") : throw std::runtime_error("no such plan");
            };
          }
          const std::string error = errorFor(20 * n);
          EXPECT_NE(error.find("no such plan"), std::string::npos) << error;
          *stage = [] {};
        }
      }
    }
    EXPECT_EQ(plans.compiled(), 1);
    for (const int64_t rows : {20 * n, 28 * n, 12 * n, 32 * n}) {
      EXPECT_EQ(errorFor(rows), "") << rows << " rows";
    }
    EXPECT_EQ(plans.compiled(), 3);
  });
}

// Of a weight, whose sizes are constants.
TEST_F(ShapesOnRanks, AWeightWithOtherStridesForAKnownShape) {
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    CalledShapes called(productOfParts, productOf, comm);
    for (const int64_t k : {12, 20, 28, 20, 28}) {
      called.expectRight(k * n);
    }
    for (const int64_t k : {28, 20, 36}) {
      std::vector<Argument> local = called.shards(k * n);
      if (comm.rank() == 1) {
        local[1] = std::get<Tensor>(local[1]).transpose(0, 1).clone().transpose(0, 1);
      }
      called.expectRight(k * n, local);
      called.expectRight(k * n);
    }
  });
}

// The fusion says the size too: the shape is known, whatever a rank says of it.
TEST_F(ShapesOnRanks, AnUnevenShardWithoutItsGlobalShapeIsOfAKnownShape) {
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    const Build build = [](Fusion& f, int64_t ranks) {
      const DeviceMesh mesh = DeviceMesh::create({{"tp", ranks}});
      TensorView* x = sized(f, 2, mesh);
      TensorView* w = input(f, {13, 16}, mesh);
      shardBlock(w, 0, mesh, "tp");
      f.addOutput(sum(tanh(linear(x, w)), {1}));
    };
    const auto whole = [](int64_t rows) {
      return std::vector<Argument>{randomTensor({rows, 16}, DataType::Float, 1, -1, 1),
                                   randomTensor({13, 16}, DataType::Float, 2, -1, 1)};
    };
    CalledShapes called(build, whole, comm);
    for (const int64_t rows : {6 * n, 10 * n, 14 * n, 10 * n}) {
      called.expectRight(rows);
      for (int64_t rank = 0; rank < n; rank++) {
        std::vector<Argument> local = called.shards(rows);
        const Tensor& shard = std::get<Tensor>(local[1]);
        EXPECT_EQ(shard.globalShape().empty(), 13 % n == 0);
        if (comm.rank() == rank) {
          local[1] = shard.transpose(0, 1).transpose(0, 1);
          EXPECT_TRUE(std::get<Tensor>(local[1]).globalShape().empty());
        }
        called.expectRight(rows, local);
      }
    }
  });
}

// The whole of a weight in place of a shard has its global sizes too.
TEST_F(ShapesOnRanks, AWholeTensorInPlaceOfAShardIsAnErrorForALaterSize) {
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    CalledShapes called(productOfParts, productOf, comm);
    for (const int64_t rows : {12 * n, 20 * n, 28 * n}) {
      called.expectRight(rows);
    }
    std::vector<Argument> local = called.shards(36 * n);
    if (comm.rank() == 1) {
      local[2] = productOf(36 * n)[2];
    }
    const std::string error = errorOf([&] { (void)called.cache().runFusionWithInputs(local); });
    EXPECT_NE(error.find("input 2 (T2) has local sizes"), std::string::npos) << error;
    EXPECT_EQ(error, comm.exchange(error)[1]);
    called.expectRight(36 * n);
  });
}

// Nothing communicates, and the ranks take the global size from their shards.
TEST_F(ShapesOnRanks, ALocalProgramOnOneRankWithOtherStrides) {
  loopback_.deadline = std::chrono::milliseconds(20'000);
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    const Build build = [](Fusion& f, int64_t ranks) {
      const DeviceMesh mesh = DeviceMesh::create({{"dp", ranks}});
      TensorView* x = sized(f, 2, mesh);
      shardBlock(x, 0, mesh, "dp");
      f.addOutput(softmax(x, 1));
    };
    CalledShapes called(build, columnSumsOf, comm);
    for (const int64_t k : {12, 20, 28, 36, 44, 20}) {
      std::vector<Argument> local = called.shards(k * n);
      if (k > 20 && comm.rank() == 1) {
        local[0] = std::get<Tensor>(local[0]).transpose(0, 1).clone().transpose(0, 1);
      }
      called.expectRight(k * n, local);
    }
    const std::vector<Argument> local = called.shards(comm.rank() == 1 ? 52 * n : 60 * n);
    const std::string error = errorOf([&] { (void)called.cache().runFusionWithInputs(local); });
    EXPECT_NE(error.find("differ in size from that of rank 0"), std::string::npos) << error;
    called.expectRight(52 * n);
  });
}

// The twelfth power of the number of rows.
TEST_F(ShapesOnRanks, AnExpressionThatOverflowsIsAnErrorOnAllRanks) {
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    const Build build = [](Fusion& f, int64_t ranks) {
      columnSums(f, ranks);
      const IntExpr rows = f.inputs()[0]->asTensor()->shape()[0];
      IntExpr power = 1;
      for (int i = 0; i < 12; i++) {
        power *= rows;
      }
      f.addOutput(full({mod(power, 7) + 2}, 1.0, DataType::Float));
    };
    CalledShapes called(build, columnSumsOf, comm);
    const auto rowsOf = [&](int64_t k) { return 2 * k * n; };
    for (const int64_t k : {2, 3, 2, 3}) {
      called.expectRight(rowsOf(k));
    }
    for (int call = 0; call < 2; call++) {
      const std::vector<Argument> local = called.shards(50 * n);
      const std::string error = errorOf([&] { (void)called.cache().runFusionWithInputs(local); });
      EXPECT_NE(error, "");
      EXPECT_EQ(error, comm.exchange(error)[0]);
      called.expectRight(rowsOf(3));
    }
  });
}

// A plan for the class of an even number may hold for sizes for which a plan alone makes other collectives: numbers are right all the same.
TEST_F(ShapesOnRanks, ManyShapesInTurn) {
  runOnRanks([](Communicator& comm) {
    CalledShapes called(productOfParts, productOf, comm);
    for (int turn = 0; turn < 2; turn++) {
      for (int64_t k = 2; k < 34; k++) {
        called.expectRight(k * comm.size());
      }
    }
    EXPECT_LE(called.cache().plansCompiled(), 3);
  });
}

}  // namespace

}  // namespace meshfuse
