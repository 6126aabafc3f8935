// Indices that are data and out of range: the run fails and says which, on one rank and on several, and the next one is right.
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <mutex>

#include "host/program.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/loopback/loopback.h"
#include "stress/checked_cache.h"

namespace meshfuse {

namespace {

using std::chrono::milliseconds;

enum class Kind { Embedding, IndexSelect, TakeAlongAxis, Gather };

BuildFusion reader(Kind kind, DataType indexType) {
  return [=](Fusion& f) {
    TensorView* x = makeContigTensor(2);
    TensorView* index = makeContigTensor(kind == Kind::TakeAlongAxis || kind == Kind::Gather ? 2 : 1, indexType);
    f.addInput(x);
    f.addInput(index);
    switch (kind) {
      case Kind::Embedding:
        return f.addOutput(mul(embedding_fwd(index, x), 2.0));
      case Kind::IndexSelect:
        return f.addOutput(neg(index_select(x, 1, index)));
      case Kind::TakeAlongAxis:
        return f.addOutput(neg(takeAlongAxis(x, index, 1)));
      case Kind::Gather:
        return f.addOutput(neg(gather(x, 0, index)));
    }
  };
}

Tensor table(int64_t rows, int64_t columns) {
  std::vector<double> values;
  for (int64_t i = 0; i < rows * columns; i++) {
    values.push_back(static_cast<double>(i));
  }
  return Tensor::of(values, {rows, columns});
}

Tensor indexTensor(Kind kind, DataType type, int64_t extent, int64_t wrong, int64_t count) {
  bool flat = kind == Kind::Embedding || kind == Kind::IndexSelect;
  std::vector<int64_t> sizes = flat ? std::vector<int64_t>{count} : std::vector<int64_t>{5, count};
  int64_t total = flat ? count : 5 * count;
  std::vector<double> values;
  for (int64_t i = 0; i < total; i++) {
    values.push_back(static_cast<double>(i == total - 2 ? wrong : i % extent));
  }
  return Tensor::of(values, sizes, type);
}

TEST(CheckedIndex, OfEveryOpAndTypeFailsTheRun) {
  constexpr int64_t kExtent = 5;  // of both dims
  for (Kind kind : {Kind::Embedding, Kind::IndexSelect, Kind::TakeAlongAxis, Kind::Gather}) {
    for (DataType type : {DataType::Int, DataType::Int32}) {
      SCOPED_TRACE(fmt::format("op {} {}", static_cast<int>(kind), name(type)));
      CheckedCache checked(reader(kind, type));
      Tensor x = table(kExtent, kExtent);
      const int64_t count = kind == Kind::Gather ? 3 : 40;
      EXPECT_EQ(checked.call({x, indexTensor(kind, type, kExtent, 0, count)}), "");
      int64_t huge = type == DataType::Int ? int64_t{1} << 40 : std::numeric_limits<int32_t>::max();
      for (int64_t bad : {int64_t{-1}, kExtent, huge, -huge}) {
        for (Verify verify : {Verify::Off, Verify::Always}) {
          auto fusion = std::make_unique<Fusion>();
          {
            FusionGuard guard(fusion.get());
            reader(kind, type)(*fusion);
          }
          FusionExecutorCache cache(std::move(fusion), {.verify = verify});
          std::string error = errorOf([&] {
            (void)cache.runFusionWithInputs({x, indexTensor(kind, type, kExtent, bad, count)});
          });
          EXPECT_TRUE(error.starts_with("UserError: [")) << error;
          EXPECT_NE(error.find(fmt::format("index {} is out of range for an extent of 5", bad)), std::string::npos)
              << error;
          EXPECT_EQ(cache.hostProgram()->steps.size(), 1U) << "the check is part of the kernel that reads";
          EXPECT_EQ(errorOf([&] {
                      (void)cache.runFusionWithInputs({x, indexTensor(kind, type, kExtent, 1, count)});
                    }),
                    "");
        }
      }
    }
  }
}

// A reader or writer by an index that is input 1, with the position of the index 9 in it.
struct NamedOp {
  std::string op;
  BuildFusion build;
  std::vector<Argument> inputs;
  std::string at;
};

BuildFusion byIndex(const std::function<TensorView*(TensorView*, TensorView*)>& op, int64_t indexDims) {
  return [=](Fusion& f) {
    TensorView* x = makeContigTensor(2);
    TensorView* index = makeContigTensor(indexDims, DataType::Int);
    f.addInput(x);
    f.addInput(index, "ids");
    f.addOutput(neg(op(x, index)));
  };
}

// The error names the op as the user called it, and where the index is in the whole index tensor.
void expectNamed(const NamedOp& row) {
  SCOPED_TRACE(row.op);
  CheckedCache checked(row.build);
  const std::string error = errorOf([&] { (void)checked.cache().runFusionWithInputs(row.inputs); });
  EXPECT_TRUE(error.starts_with("UserError: [run] " + row.op + ": index 9 is out of range")) << error;
  EXPECT_NE(error.find(", at " + row.at), std::string::npos) << error;
}

TEST(CheckedIndex, IsNamedByItsOpAndItsPosition) {
  const Tensor x = table(3, 5);
  const Tensor rows = Tensor::of({0, 9, 2}, {3}, DataType::Int);
  const Tensor grid = Tensor::of({0, 1, 2, 9, 1, 0}, {3, 2}, DataType::Int);
  const NamedOp all[] = {
      {"embedding_fwd",
       byIndex([](auto* x, auto* i) { return embedding_fwd(i, x); }, 2),
       {x, grid},
       "[1, 1] of input ids (T1)"},
      {"index_select",
       byIndex([](auto* x, auto* i) { return index_select(x, 0, i); }, 1),
       {x, rows},
       "[1] of input ids (T1)"},
      {"takeAlongAxis", byIndex([](auto* x, auto* i) { return takeAlongAxis(x, i, 1); }, 2), {x, grid}, "[1, 1] of"},
      {"gather", byIndex([](auto* x, auto* i) { return gather(x, 1, i); }, 2), {x, grid}, "[1, 1] of"},
      {"select",
       byIndex([](auto* x, auto* i) { return select(x, 0, sum(i, {0})); }, 1),
       {x, Tensor::of({0, 9, 0}, {3}, DataType::Int)},
       "[0] of the index, which is computed"},
      {"cross_entropy",
       byIndex([](auto* x, auto* i) { return cross_entropy(x, i); }, 1),
       {x, rows},
       "[1, 0] of the index, which is computed"},
  };
  std::ranges::for_each(all, expectNamed);
}

// No GPU has these ops.
TEST(CheckedIndex, IsNamedByTheOpThatWritesByIt) {
  const Tensor x = table(3, 5);
  const Tensor rows = Tensor::of({0, 9, 2}, {3}, DataType::Int);
  const NamedOp all[] = {
      {"scatter",
       byIndex([](auto* x, auto* i) { return scatter(x, 0, i, mul(x, 2.0)); }, 2),
       {x, Tensor::of({0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 9, 0, 1, 2}, {3, 5}, DataType::Int)},
       "[2, 1] of"},
      {"indexPutAccumulate",
       byIndex([](auto* x, auto* i) { return indexPutAccumulate(x, i, mul(x, 2.0)); }, 1),
       {x, rows},
       "[1] of"},
      {"embedding_backward",
       byIndex([](auto* x, auto* i) { return embedding_backward(x, i, 4); }, 1),
       {x, rows},
       "[1] of"},
  };
  std::ranges::for_each(all, expectNamed);
}

// `gathered`: the rows are whole on each rank, so the index moves after its check.
void expectNamedByItsPosition(bool gathered) {
  const DataType type = gathered ? DataType::Int : DataType::Int32;
  std::vector<std::string> errors(2);
  const auto body = [&](Communicator& comm) {
    auto fusion = std::make_unique<Fusion>();
    FusionGuard guard(fusion.get());
    TensorView* index = makeContigConcreteTensor({6}, type);
    TensorView* weight = makeContigConcreteTensor({4, 3});
    fusion->addInput(index);
    fusion->addInput(weight);
    for (TensorView* tv : {index, weight}) {
      tv->setDeviceMesh({0, 1});
    }
    index->outer_split(0, 2)->axis(0)->parallelize(ParallelType::DIDx);
    TensorView* rows = embedding_fwd(gathered ? index : castOp(DataType::Int, index), weight);
    fusion->addOutput(rows);
    if (gathered) {
      rows->setDeviceMesh({0, 1});
    }
    const Tensor ids = Tensor::of({0, 1, 2, 3, 7, 0}, {6}, type);
    const Tensor mine = shardTensor(ids, index, comm.rank());
    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm});
    errors[comm.rank()] = errorOf([&] { (void)cache.runFusionWithInputs({mine, table(4, 3)}); });
  };
  runLoopback(2, body, {.deadline = milliseconds(60'000)});
  EXPECT_EQ(errors[0].empty(), !gathered) << errors[0];
  EXPECT_NE(errors[1].find("embedding_fwd: index 7 is out of range for an extent of 4, at [4] of input 0 (T0)"),
            std::string::npos)
      << errors[1];
}

TEST(CheckedIndex, IsNamedByItsPositionInTheWholeIndex) { expectNamedByItsPosition(false); }
TEST(CheckedIndex, IsNamedByTheOpThatReadsItAfterItHasMoved) { expectNamedByItsPosition(true); }

// The table has more elements than any memory; the error looks only at the inputs that the index needs.
TEST(CheckedIndex, ThatIsComputedIsFoundWithoutTheOtherInputs) {
  constexpr int64_t kRows = int64_t{1} << 42;
  for (const int64_t ranks : {1, 2}) {
    runLoopback(ranks, [&](Communicator& comm) {
      auto fusion = std::make_unique<Fusion>();
      FusionGuard guard(fusion.get());
      TensorView* ids = makeContigConcreteTensor({3}, DataType::Int);
      TensorView* weight = TensorViewBuilder().contiguity(true).shape({kRows, 3}).expanded({true, false}).build();
      for (TensorView* in : {ids, weight}) {
        fusion->addInput(in);
        in->setDeviceMesh(DeviceMesh::createForNumDevices(ranks));
      }
      fusion->addOutput(embedding_fwd(add(ids, 2), weight));
      FusionExecutorCache cache(std::move(fusion), {.communicator = &comm, .verify = Verify::Off});
      const std::vector<Argument> inputs = {Tensor::of({0, 1, kRows - 1.0}, {3}, DataType::Int),
                                            table(1, 3).expand({kRows, 3})};
      const std::string error = errorOf([&] { (void)cache.runFusionWithInputs(inputs); });
      const std::string expected = fmt::format(
          "embedding_fwd: index {} is out of range for an extent of {}, at [2] of the index", kRows + 1, kRows);
      EXPECT_NE(error.find(expected), std::string::npos) << error;
    });
  }
}

// Each rank computes its part of the index from its parts of the inputs.
TEST(CheckedIndex, ThatRanksComputeIsNamedByItsPosition) {
  for (const bool isSymbolic : {false, true}) {
    for (const bool isCut : {false, true}) {
      SCOPED_TRACE(fmt::format("symbolic {}, cut {}", isSymbolic, isCut));
      std::vector<std::string> errors(2);
      runLoopback(2, [&](Communicator& comm) {
        auto fusion = std::make_unique<Fusion>();
        FusionGuard guard(fusion.get());
        TensorView* ids =
            isSymbolic ? makeContigTensor(2, DataType::Int) : makeContigConcreteTensor({6, 2}, DataType::Int);
        TensorView* offsets =
            isSymbolic ? makeContigTensor(1, DataType::Int) : makeContigConcreteTensor({2}, DataType::Int);
        TensorView* weight = makeContigConcreteTensor({8, 3});
        for (TensorView* tv : {ids, offsets, weight}) {
          fusion->addInput(tv);
          tv->setDeviceMesh({0, 1});
        }
        if (isCut) {
          ids->outer_split(0, 2)->axis(0)->parallelize(ParallelType::DIDx);
        }
        fusion->addOutput(embedding_fwd(add(ids, offsets), weight));
        const Tensor all = Tensor::of({0, 1, 2, 3, 0, 1, 2, 3, 0, 5, 1, 0}, {6, 2}, DataType::Int);
        const Tensor mine = shardTensor(all, ids, comm.rank());
        FusionExecutorCache cache(std::move(fusion), {.communicator = &comm});
        errors[comm.rank()] = errorOf([&] {
          (void)cache.runFusionWithInputs({mine, Tensor::of({0, 4}, {2}, DataType::Int), table(8, 3)});
        });
      });
      const std::string expected =
          "embedding_fwd: index 9 is out of range for an extent of 8, at [4, 1] of the index, which is computed";
      if (isCut) {
        EXPECT_EQ(errors[0], "");
      } else {
        EXPECT_NE(errors[0].find(expected), std::string::npos) << errors[0];
      }
      EXPECT_NE(errors[1].find(expected), std::string::npos) << errors[1];
    }
  }
}

// Its position would need the other index. Both are out of range, in different elements; threads of a GPU may meet either of them first.
TEST(CheckedIndex, ThatDependsOnAnotherRefusedIndexIsNamedByItsOp) {
  CheckedCache checked([](Fusion& f) {
    TensorView* ids = makeContigConcreteTensor({2}, DataType::Int);
    TensorView* next = makeContigConcreteTensor({5}, DataType::Int);
    TensorView* weight = makeContigConcreteTensor({4, 3});
    for (TensorView* in : {ids, next, weight}) {
      f.addInput(in);
    }
    f.addOutput(embedding_fwd(index_select(next, 0, ids), weight));
  });
  const std::vector<Argument> inputs = {Tensor::of({1, 9}, {2}, DataType::Int),
                                        Tensor::of({0, 7, 0, 0, 0}, {5}, DataType::Int), table(4, 3)};
  const std::string error = errorOf([&] { (void)checked.cache().runFusionWithInputs(inputs); });
  const std::string ofTheOther =
      "UserError: [run] index_select: index 9 is out of range for an extent of 5, at [1] of input 0 (T0); give 0 <= "
      "index < 5";
  if (defaultDevice() == DeviceId::cpu() || error != ofTheOther) {
    EXPECT_EQ(error, "UserError: [run] embedding_fwd: index 7 is out of range for an extent of 4; give 0 <= index < 4");
  }
}

// Both ops may have refused it.
TEST(CheckedIndex, WithoutAPositionIsNamedByAllOpsThatMayHaveRefusedIt) {
  CheckedCache checked([](Fusion& f) {
    TensorView* ids = makeContigConcreteTensor({2}, DataType::Int);
    TensorView* next = makeContigConcreteTensor({5}, DataType::Int);
    TensorView* other = makeContigConcreteTensor({2}, DataType::Int);
    TensorView* weight = makeContigConcreteTensor({5, 3});
    for (TensorView* in : {ids, next, other, weight}) {
      f.addInput(in);
    }
    f.addOutput(add(embedding_fwd(index_select(next, 0, ids), weight), index_select(weight, 0, other)));
  });
  const std::string error = errorOf([&] {
    (void)checked.cache().runFusionWithInputs({Tensor::of({1, -3}, {2}, DataType::Int),
                                               Tensor::of({0, 7, 0, 0, 0}, {5}, DataType::Int),
                                               Tensor::of({0, 1}, {2}, DataType::Int), table(5, 3)});
  });
  if (defaultDevice() == DeviceId::cpu() || error.find("index -3") == std::string::npos) {
    EXPECT_EQ(error,
              "UserError: [run] embedding_fwd or index_select: index 7 is out of range for an extent of 5; give 0 <= "
              "index < 5");
  }
}

// The index is computed, and the result is cut, padded and joined: indices outside the windows are never read, so they raise no error.
TEST(CheckedIndex, RefusesNothingBeyondAWindow) {
  CheckedCache checked([](Fusion& f) {
    TensorView* x = makeContigTensor(2);
    TensorView* index = makeContigTensor(1, DataType::Int);
    f.addInput(x);
    f.addInput(index);
    TensorView* rows = embedding_fwd(add(index, 7), x);
    f.addOutput(pad(rows, {2, 1, 3, 2}));
    f.addOutput(cat({rows, rows, x}, 0));
  });
  Tensor index = Tensor::zeros({19}, DataType::Int);
  for (int64_t i = 0; i < 19; i++) {
    index.set(std::vector{i}, static_cast<double>(-7 + i % 4));
  }
  EXPECT_EQ(checked.call({table(4, 21), index}), "");
  index.set(std::vector<int64_t>{18}, -3);
  std::string error = errorOf([&] { (void)checked.cache().runFusionWithInputs({table(4, 21), index}); });
  EXPECT_NE(error.find("index 4 is out of range for an extent of 4"), std::string::npos) << error;
}

TEST(CheckedIndex, OfATableWithoutRows) {
  CheckedCache checked(reader(Kind::Embedding, DataType::Int));
  Tensor empty = Tensor::zeros({0, 5}, DataType::Float);
  EXPECT_EQ(checked.call({empty, Tensor::zeros({0}, DataType::Int)}), "");
  std::string error = errorOf([&] {
    (void)checked.cache().runFusionWithInputs({empty, Tensor::zeros({2}, DataType::Int)});
  });
  EXPECT_TRUE(error.starts_with("UserError: [embedding] dim 0 of T0 has no elements")) << error;
}

// A table cut by rows over two ranks: the index is in range of the table, not of a rank's part.
TEST(CheckedIndex, OfATableOnTwoRanks) {
  for (int64_t bad : {int64_t{-1}, int64_t{8}, int64_t{1} << 40}) {
    std::vector<std::string> errors(2);
    std::string thrown = errorOf([&] {
      runLoopback(2,
                  [&](Communicator& comm) {
                    auto fusion = std::make_unique<Fusion>();
                    {
                      FusionGuard guard(fusion.get());
                      TensorView* x = makeContigConcreteTensor({8, 6});
                      TensorView* index = makeContigConcreteTensor({10}, DataType::Int);
                      fusion->addInput(x);
                      fusion->addInput(index);
                      TensorView* y = embedding_fwd(index, x);
                      fusion->addOutput(y);
                      DeviceMesh mesh = DeviceMesh::createForNumDevices(2);
                      for (TensorView* tv : {x, index, y}) {
                        tv->setDeviceMesh(mesh);
                      }
                      x->outer_split(0, 2);
                      x->axis(0)->parallelize(ParallelType::DIDx);
                    }
                    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm});
                    Tensor whole = table(8, 6);
                    Tensor mine = whole.slice(0, comm.rank() * 4, comm.rank() * 4 + 4).clone();
                    Tensor index = Tensor::zeros({10}, DataType::Int);
                    for (int64_t i = 0; i < 10; i++) {
                      index.set(std::vector{i}, static_cast<double>((i * 3) % 8));
                    }
                    Tensor y = cache.runFusionWithInputs({mine, index})[0];
                    for (int64_t i = 0; i < 10; i++) {
                      EXPECT_EQ(y.at({i, 5}), static_cast<double>((i * 3) % 8 * 6 + 5));
                    }
                    index.set(std::vector<int64_t>{7}, static_cast<double>(bad));
                    try {
                      (void)cache.runFusionWithInputs({mine, index});
                    } catch (const Error& e) {
                      errors[comm.rank()] = e.what();
                      throw;
                    }
                  },
                  {.deadline = milliseconds(60'000)});
    });
    EXPECT_NE(thrown, "");
    int named = 0;
    for (const std::string& e : errors) {
      EXPECT_NE(e, "") << "a rank went on";
      named += e.find(fmt::format("index {} is out of range for an extent of 8", bad)) != std::string::npos ? 1 : 0;
    }
    EXPECT_GE(named, 1) << errors[0] << "\n" << errors[1];
  }
}

// Indices of one rank only are wrong: the other one waits for its sum, and is told.
TEST(CheckedIndex, OfOneRankOfTwo) {
  std::vector<std::string> errors(2);
  std::string thrown = errorOf([&] {
    runLoopback(2,
                [&](Communicator& comm) {
                  auto fusion = std::make_unique<Fusion>();
                  {
                    FusionGuard guard(fusion.get());
                    TensorView* x = makeContigConcreteTensor({8, 6});
                    TensorView* index = makeContigConcreteTensor({10}, DataType::Int);
                    fusion->addInput(x);
                    fusion->addInput(index);
                    TensorView* y = sum(embedding_fwd(index, x), {0});
                    fusion->addOutput(y);
                    DeviceMesh mesh = DeviceMesh::createForNumDevices(2);
                    for (TensorView* tv : {x, index, y}) {
                      tv->setDeviceMesh(mesh);
                    }
                    index->outer_split(0, 2);
                    index->axis(0)->parallelize(ParallelType::DIDx);
                  }
                  FusionExecutorCache cache(std::move(fusion), {.communicator = &comm});
                  Tensor index = Tensor::full({5}, DataType::Int, comm.rank() + 1);
                  EXPECT_EQ(cache.runFusionWithInputs({table(8, 6), index})[0].at({2}), 5 * 8 + 5 * 14);
                  if (comm.rank() == 1) {
                    index.set(std::vector<int64_t>{3}, 8);
                  }
                  try {
                    (void)cache.runFusionWithInputs({table(8, 6), index});
                  } catch (const Error& e) {
                    errors[comm.rank()] = e.what();
                    throw;
                  }
                },
                {.deadline = milliseconds(60'000)});
  });
  EXPECT_NE(thrown, "");
  EXPECT_NE(errors[1].find("index 8 is out of range for an extent of 8"), std::string::npos) << errors[1];
  EXPECT_EQ(errors[0], errors[1]);
}

}  // namespace

}  // namespace meshfuse
