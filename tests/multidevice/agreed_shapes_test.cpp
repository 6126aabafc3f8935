// Ranks whose calls of one program differ in sizes, strides or failures, when plans are shared between sizes.
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ranges.h"
#include "exec/explain.h"
#include "host/program.h"
#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/called_shapes.h"
#include "multidevice/device_of_rank.h"
#include "multidevice/multidevice_test.h"
#include "multidevice/scenario.h"
#include "stress/checked_cache.h"

namespace meshfuse {

namespace {

int64_t receivedBytes(const FusionExecutorCache& cache) { return sumOf(cache.commSteps(), &CommRecord::bytesReceived); }

class AgreedShapes : public MultiDeviceTest {
 protected:
  void SetUp() override {
    if (ranksHaveGpus()) {
      GTEST_SKIP() << "kernels of other devices take constant sizes";
    }
  }
};

// Rank 0 passes the first number of rows, the others the second one.
TEST_F(AgreedShapes, SizesThatDifferAreOneErrorOnAllRanks) {
  loopback_.deadline = std::chrono::milliseconds(20'000);
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    CalledShapes sums(columnSums, rowInputs, comm);
    CalledShapes product(productOfParts, productInputs, comm);
    for (CalledShapes* of : {&sums, &product}) {
      for (const int64_t rows : {12 * n, 20 * n, 28 * n}) {
        of->expectRight(rows);
      }
      of->expectOfClass();
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
TEST_F(AgreedShapes, OneRankWithOtherStridesMakesTheSameCollectives) {
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    for (const bool isProduct : {false, true}) {
      CalledShapes called(isProduct ? productOfParts : columnSums, isProduct ? productInputs : rowInputs, comm);
      std::map<int64_t, int64_t> bytes;
      const auto call = [&](int64_t rows, bool isStrided) {
        std::vector<Argument> local = called.shards(rows);
        if (isStrided) {
          local[0] = std::get<Tensor>(local[0]).transpose(0, 1).clone().transpose(0, 1);
        }
        called.expectRight(rows, local);
        const auto [known, isNew] = bytes.try_emplace(rows, receivedBytes(called.cache()));
        EXPECT_EQ(known->second, receivedBytes(called.cache())) << rows << " rows";
      };
      for (const int64_t k : {12, 20, 32, 28}) {
        call(k * n, false);
      }
      called.expectOfClass();
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

Argument inColumnOrder(const Argument& matrix) {
  return std::get<Tensor>(matrix).transpose(0, 1).clone().transpose(0, 1);
}

// The rows are gathered while a kernel computes, and both write 256 KiB or more: the ranks meet at the begin of a call.
TEST_F(AgreedShapes, OneRankWithOtherStridesMeetsItsPeersWhereCollectivesMayRunBesideKernels) {
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    const BuildOnRanks build = [](Fusion& f, int64_t ranks) {
      const DeviceMesh mesh = DeviceMesh::create({{"dp", ranks}});
      TensorView* x = inputOfAnySize(f, 2, mesh);
      shardBlock(x, 0, mesh, "dp");
      TensorView* whole = neg(x);
      whole->setDeviceMesh(mesh);
      f.addOutput(whole);
      f.addOutput(neg(x));
    };
    const auto wide = [](int64_t rows) {
      return std::vector<Argument>{randomTensor({rows, 3072}, DataType::Float, 1, -1, 1)};
    };
    CalledShapes called(build, wide, comm);
    for (const int64_t k : {12, 20, 28}) {
      called.expectRight(k * n);
      EXPECT_FALSE(called.cache().hostProgram()->teams.empty()) << k;
    }
    called.expectOfClass();
    for (const int64_t k : {28, 36}) {
      std::vector<Argument> local = called.shards(k * n);
      if (comm.rank() == 1) {
        local[0] = inColumnOrder(local[0]);
      }
      called.expectRight(k * n, local);
      called.expectRight(k * n);
    }
  });
}

// Nothing reads the input with the size that varies: the steps of its class have constant sizes, and its collectives the values of the call.
TEST_F(AgreedShapes, OneRankWithOtherStridesOfAnInputThatNothingReads) {
  loopback_.deadline = std::chrono::milliseconds(20'000);
  runOnRanks([](Communicator& comm) {
    const BuildOnRanks build = [](Fusion& f, int64_t ranks) {
      const DeviceMesh mesh = DeviceMesh::create({{"dp", ranks}});
      (void)inputOfAnySize(f, 2, mesh);
      TensorView* x = input(f, {24, 16}, mesh);
      shardBlock(x, 0, mesh, "dp");
      f.addOutput(sum(tanh(x), {0}));
    };
    const auto whole = [](int64_t rows) {
      return std::vector<Argument>{randomTensor({rows, 16}, DataType::Float, 1, -1, 1),
                                   randomTensor({24, 16}, DataType::Float, 2, -1, 1)};
    };
    CalledShapes called(build, whole, comm);
    for (const int64_t rows : {7, 11, 19}) {
      called.expectRight(rows);
    }
    called.expectOfClass();
    for (const int64_t rows : {19, 11, 23}) {
      std::vector<Argument> local = called.shards(rows);
      if (comm.rank() == 1) {
        local[0] = inColumnOrder(local[0]);
      }
      called.expectRight(rows, local);
      called.expectRight(rows);
    }
  });
}

// Rank 0 uses another shape than its peers, which nothing tells them.
TEST_F(AgreedShapes, RanksEvictTheSameShapesWhateverTheyUse) {
  loopback_.deadline = std::chrono::milliseconds(20'000);
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    CalledShapes called(rowsAlone, rowInputs, comm, 2);
    called.expectRight(12 * n);
    called.expectRight(20 * n);
    called.expectRight(comm.rank() == 0 ? 12 * n : 20 * n);
    for (const int64_t k : {28, 12, 20, 12}) {
      called.expectRight(k * n);
    }
  });
}

// Also if more shapes of another class have come since than are kept.
TEST_F(AgreedShapes, AClassIsCompiledOnce) {
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    CalledShapes called(columnSums, rowInputs, comm, 3);
    for (const int64_t k : {6, 10, 16, 32, 48, 64, 14, 80, 18}) {
      called.expectRight(k * n);
    }
    EXPECT_EQ(called.cache().plansCompiled(), 3) << "6 alone, any number and multiples of 16 on each rank";
  });
}

// Each rank has the whole of the only tensor, and no plan communicates: sizes are constants, and ranks may call what they like.
TEST_F(AgreedShapes, RanksOfAMeshThatCompareNothingShareNoPlans) {
  runOnRanks([](Communicator& comm) {
    const BuildOnRanks build = [](Fusion& f, int64_t n) {
      f.addOutput(softmax(inputOfAnySize(f, 2, DeviceMesh::create({{"dp", n}})), 1));
    };
    CalledShapes called(build, rowInputs, comm);
    for (const int64_t rows : {12, 20, 28}) {
      called.expectRight(rows == 12 ? rows : rows + comm.rank());
    }
    EXPECT_EQ(called.cache().explain().sizes[0], "all sizes are constants, because ranks compare no plan");
    for (const int64_t rows : {50, 28, 12}) {
      called.expectRight(rows);
    }
  });
}

// No tensor is on a mesh: after the first call, each rank calls what it likes, and shares plans between its sizes.
TEST_F(AgreedShapes, RanksWithoutAMeshShareTheirOwnPlans) {
  runOnRanks([](Communicator& comm) {
    const BuildOnRanks build = [](Fusion& f, int64_t) {
      TensorView* x = makeContigTensor(2);
      f.addInput(x);
      f.addOutput(softmax(x, 1));
    };
    CalledShapes called(build, rowInputs, comm);
    called.expectRight(12);
    for (int64_t k = 0; k < 6 + comm.rank(); k++) {
      called.expectRight(18 + 4 * comm.rank() + 12 * k);
    }
    for (const int64_t rows : {50, 70, 90, 12}) {
      called.expectRight(rows);
    }
    EXPECT_LE(called.cache().plansCompiled(), 3);
  });
}

// Of a weight, whose sizes are constants.
TEST_F(AgreedShapes, AWeightWithOtherStridesForAKnownShape) {
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    CalledShapes called(productOfParts, productInputs, comm);
    for (const int64_t k : {12, 20, 28, 20, 28}) {
      called.expectRight(k * n);
    }
    called.expectOfClass();
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
TEST_F(AgreedShapes, AnUnevenShardWithoutItsGlobalShapeIsOfAKnownShape) {
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    const BuildOnRanks build = [](Fusion& f, int64_t ranks) {
      const DeviceMesh mesh = DeviceMesh::create({{"tp", ranks}});
      TensorView* x = inputOfAnySize(f, 2, mesh);
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
TEST_F(AgreedShapes, AWholeTensorInPlaceOfAShardIsAnErrorForALaterSize) {
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    CalledShapes called(productOfParts, productInputs, comm);
    for (const int64_t rows : {12 * n, 20 * n, 28 * n}) {
      called.expectRight(rows);
    }
    called.expectOfClass();
    std::vector<Argument> local = called.shards(36 * n);
    if (comm.rank() == 1) {
      local[2] = productInputs(36 * n)[2];
    }
    const std::string error = errorOf([&] { (void)called.cache().runFusionWithInputs(local); });
    EXPECT_NE(error.find("input 2 (T2) has local sizes"), std::string::npos) << error;
    EXPECT_EQ(error, comm.exchange(error)[1]);
    called.expectRight(36 * n);
  });
}

// Nothing communicates, and the ranks take the global size from their shards.
TEST_F(AgreedShapes, ALocalProgramOnOneRankWithOtherStrides) {
  loopback_.deadline = std::chrono::milliseconds(20'000);
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    CalledShapes called(rowsAlone, rowInputs, comm);
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
TEST_F(AgreedShapes, AnExpressionThatOverflowsIsAnErrorOnAllRanks) {
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    const BuildOnRanks build = [](Fusion& f, int64_t ranks) {
      columnSums(f, ranks);
      const IntExpr rows = f.inputs()[0]->asTensor()->shape()[0];
      IntExpr power = 1;
      for (int i = 0; i < 12; i++) {
        power *= rows;
      }
      f.addOutput(full({mod(power, 7) + 2}, 1.0, DataType::Float));
    };
    CalledShapes called(build, rowInputs, comm);
    const auto rowsOf = [&](int64_t k) { return 2 * k * n; };
    for (const int64_t k : {2, 3, 2, 3}) {
      called.expectRight(rowsOf(k));
    }
    called.expectOfClass();
    for (int call = 0; call < 2; call++) {
      const std::vector<Argument> local = called.shards(50 * n);
      const std::string error = errorOf([&] { (void)called.cache().runFusionWithInputs(local); });
      EXPECT_NE(error.find("expected a result of 64 bits"), std::string::npos) << error;
      EXPECT_EQ(error, comm.exchange(error)[0]);
      called.expectRight(rowsOf(3));
    }
  });
}

// A plan for the class of an even number may hold for sizes for which a plan alone makes other collectives: numbers are right all the same.
TEST_F(AgreedShapes, ManyShapesInTurn) {
  runOnRanks([](Communicator& comm) {
    CalledShapes called(productOfParts, productInputs, comm);
    for (int turn = 0; turn < 2; turn++) {
      for (int64_t k = 2; k < 34; k++) {
        called.expectRight(k * comm.size());
      }
    }
    EXPECT_LE(called.cache().plansCompiled(), 3);
  });
}

// The same shapes first on CPUs, where they get a program of a class, and then on the device of the test.
class ShapesOnAnotherDevice : public MultiDeviceTest {
 protected:
  void SetUp() override {
    if (!ranksHaveGpus()) {
      GTEST_SKIP() << "needs another device than the CPU in MESHFUSE_TEST_DEVICE";
    }
  }
};

TEST_F(ShapesOnAnotherDevice, TakeConstantSizes) {
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    CalledShapes called(columnSums, rowInputs, comm);
    const auto onCpu = [&](int64_t rows) {
      return mapped(called.shards(rows),
                    [](const Argument& a) { return Argument(std::get<Tensor>(a).to(DeviceId::cpu())); });
    };
    const std::vector<int64_t> rows =
        mapped(std::vector<int64_t>{12, 20, 28, 36, 32}, [=](int64_t k) { return k * n; });
    for (int turn = 0; turn < 2; turn++) {
      for (const int64_t k : rows) {
        called.expectRight(k, onCpu(k));
      }
      EXPECT_NE(called.cache().explain().sizes[0].find(" from "), std::string::npos);
      for (const int64_t k : rows) {
        called.expectRight(k);
      }
      EXPECT_NE(called.cache().explain().sizes[0].find("take constant sizes"), std::string::npos);
    }
    EXPECT_EQ(called.cache().plansCompiled(), 3 + std::ssize(rows));
  });
}

}  // namespace

}  // namespace meshfuse
