// The error about an index out of range names the op that the user called and the position, also if the index has moved between ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "base/ranges.h"
#include "base/refused_index.h"
#include "device/device.h"
#include "fuzz/random.h"
#include "host/executor.h"
#include "host/program.h"
#include "interpret/interpret.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/loopback/loopback.h"
#include "stress/checked_cache.h"

namespace meshfuse {

namespace {

constexpr int64_t kExtent = 400;  // of the dim that indices choose from

void placeOn(TensorView* tv, int64_t dim, int64_t ranks) {
  tv->setDeviceMesh(DeviceMesh::createForNumDevices(ranks));
  if (dim >= 0) {
    tv->outer_split(dim, ranks)->axis(dim)->parallelize(ParallelType::DIDx);
  }
}

// A program that reads a table by one index or two: chains of ops on `ids` [size, size, size], some of whose results are on other ranks than
// their operands.
struct Case {
  uint64_t seed = 0;
  int64_t ranks = 1;
  int64_t size = 12;     // of each dim of an index
  bool isWhole = false;  // there is one index, and each rank reads by the whole of it: all ranks refuse it

  enum class Gives : uint8_t { Indices, Rows };
  std::unique_ptr<Fusion> program(Gives gives) const {
    fuzz::Random random(seed);
    auto fusion = std::make_unique<Fusion>();
    FusionGuard guard(fusion.get());
    TensorView* ids = makeContigConcreteTensor({size, size, size}, DataType::Int);
    TensorView* table = makeContigConcreteTensor({kExtent, 4});
    fusion->addInput(ids, "ids");
    fusion->addInput(table, "table");
    placeOn(ids, random.between(-1, 2), ranks);
    placeOn(table, random.chance(30) ? 0 : -1, ranks);
    for (int64_t n = isWhole || random.chance(70) ? 1 : 2; n > 0; n--) {
      TensorView* const index = indexFrom(ids, random);
      TensorView* const rows = rowsBy(index, table, random);
      fusion->addOutput(gives == Gives::Indices ? index : rows);
    }
    return fusion;
  }

 private:
  TensorView* indexFrom(TensorView* ids, fuzz::Random& random) const {
    TensorView* index = random.chance(50) ? sum(ids, {0}) : select(ids, 0, 1);
    for (int64_t n = random.below(6); n > 0; n--) {
      index = step(index, random);
      if (random.chance(40)) {  // it moves
        index = set(index);
        placeOn(index, random.between(-1, 1), ranks);
      }
    }
    if (random.chance(30)) {
      index = reshape(index, {size, size}, {size * size});
    }
    if (isWhole) {
      index = set(index);
      placeOn(index, -1, ranks);
    }
    return index;
  }

  TensorView* rowsBy(TensorView* index, TensorView* table, fuzz::Random& random) const {
    TensorView* rows =
        index->nDims() == 1 && random.chance(50) ? index_select(table, 0, index) : embedding_fwd(index, table);
    if (isWhole) {
      placeOn(rows, -1, ranks);
    }
    for (int64_t n = isWhole ? 0 : random.below(4); n > 0; n--) {  // later steps may use the memory of earlier ones
      placeOn(rows, random.between(-1, 0), ranks);
      rows = set(mul(rows, 2.0));
    }
    return rows;
  }

  static TensorView* step(TensorView* index, fuzz::Random& random) {
    switch (random.below(5)) {
      case 0:
        return add(index, random.between(1, 3));
      case 1:
        return permute(index, {1, 0});
      case 2:
        return flip(index, {random.below(2)});
      case 3:
        return roll(index, {random.between(1, 5)}, {random.below(2)});
      default:
        return castOp(DataType::Int, castOp(DataType::Int32, index));
    }
  }
};

// The place that an error names; nothing if it names none.
struct Place {
  std::string op;
  int64_t index = 0;
  std::vector<int64_t> at;
};

std::optional<Place> placeIn(const std::string& error) {
  static const std::regex kForm(
      R"(\[run\] (\w+): index (-?\d+) is out of range for an extent of \d+, at \[([\d, ]*)\] of)");
  std::smatch m;
  if (!std::regex_search(error, m, kForm)) {
    return std::nullopt;
  }
  Place place{m[1], std::stoll(m[2])};
  const std::string list = m[3];
  static const std::regex kNumber(R"(\d+)");
  for (std::sregex_iterator k(list.begin(), list.end(), kNumber); k != std::sregex_iterator(); ++k) {
    place.at.push_back(std::stoll(k->str()));
  }
  return place;
}

void expectNamed(const Case& c) {
  fuzz::Random random(c.seed + 1'000'000);
  std::vector<double> good(c.size * c.size * c.size);
  for (double& v : good) {
    v = static_cast<double>(random.below(7));
  }
  std::vector<double> bad = good;
  for (int64_t n = random.between(1, 2); n > 0; n--) {
    bad[c.size * c.size + random.below(c.size * c.size)] =
        random.chance(30) ? -1000 : static_cast<double>(kExtent + random.below(50));
  }
  const auto tensorOf = [&](const std::vector<double>& values) {
    return Tensor::of(values, {c.size, c.size, c.size}, DataType::Int);
  };
  const Tensor rows = Tensor::zeros({kExtent, 4}, DataType::Float);
  const std::vector<Tensor> expected =
      interpret(*c.program(Case::Gives::Indices), {tensorOf(bad).to(DeviceId::cpu()), rows.to(DeviceId::cpu())});
  std::vector<std::string> errors(c.ranks);
  std::vector<std::string> after(c.ranks);
  std::string plan;
  runLoopback(c.ranks,
              [&](Communicator& comm) {
                const std::unique_ptr<Fusion> shapes = c.program(Case::Gives::Rows);
                FusionExecutorCache cache(c.program(Case::Gives::Rows), {.communicator = &comm, .verify = Verify::Off});
                const auto call = [&](const std::vector<double>& values) {
                  return errorOf([&] {
                    (void)cache.runFusionWithInputs(
                        {shardTensor(tensorOf(values), shapes->inputs()[0]->asTensor(), comm.rank()),
                         shardTensor(rows, shapes->inputs()[1]->asTensor(), comm.rank())});
                  });
                };
                EXPECT_EQ(call(good), "");
                errors[comm.rank()] = call(bad);
                if (c.isWhole) {
                  after[comm.rank()] = call(good);
                }
                if (comm.rank() == 0) {
                  plan = cache.planText();
                }
              },
              {.deadline = std::chrono::milliseconds(60'000)});
  SCOPED_TRACE(fmt::format("seed {} on {} ranks\n{}", c.seed, c.ranks, plan));
  int64_t refused = 0;
  for (const int64_t r : meshfuse::indices(errors)) {
    if (errors[r].empty() && !c.isWhole) {
      continue;
    }
    refused++;
    const std::optional<Place> place = placeIn(errors[r]);
    ASSERT_TRUE(place.has_value()) << "rank " << r << ": " << errors[r];
    EXPECT_TRUE(place->op == "embedding_fwd" || place->op == "index_select") << errors[r];
    EXPECT_TRUE(std::ranges::any_of(expected, [&](const Tensor& index) {
      return index.dim() == std::ssize(place->at) && static_cast<int64_t>(index.at(place->at)) == place->index;
    })) << errors[r];
    EXPECT_TRUE(place->index < 0 || place->index >= kExtent) << errors[r];
    EXPECT_EQ(after[r], "");
  }
  EXPECT_GE(refused, 1);
}

TEST(RefusedPosition, IsKnownOfAnIndexThatHasMoved) {
  const uint64_t seeds = defaultDevice().kind == DeviceId::Kind::Cuda ? 8 : 40;
  for (const int64_t ranks : {1, 2, 3, 4}) {
    for (uint64_t seed = 1; seed <= seeds; seed++) {
      expectNamed({.seed = seed, .ranks = ranks, .size = seed % 3 == 0 ? 13 : 12, .isWhole = seed % 2 == 0});
      if (HasFatalFailure()) {
        return;
      }
    }
  }
}

// A view of the result of the step that refuses an index has no elements either.
TEST(RefusedPosition, WhatTheRefusingStepComputesDoesNotRemain) {
  runLoopback(1, [](Communicator& comm) {
    auto fusion = std::make_unique<Fusion>();
    FusionGuard guard(fusion.get());
    TensorView* ids = makeContigConcreteTensor({3}, DataType::Int);
    TensorView* table = makeContigConcreteTensor({5, 4});
    fusion->addInput(ids);
    fusion->addInput(table);
    fusion->addOutput(embedding_fwd(ids, table));
    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm, .verify = Verify::Off});
    const Tensor rows = Tensor::zeros({5, 4}, DataType::Float);
    std::vector<Tensor> out = cache.runFusionWithInputs({Tensor::of({0, 1, 2}, {3}, DataType::Int), rows});
    HostProgram host = *cache.hostProgram();
    if (!host.device->isHostMemory()) {
      GTEST_SKIP() << "the device tells of the index when all steps have ended";
    }
    ASSERT_EQ(host.steps.size(), 1);
    const int64_t result = host.outputs[0];
    TensorPlan view = host.tensors[result];
    view.val = host.fusion->numVals();
    view.storage = result;
    host.tensors.push_back(view);
    ProgramSizes sizes = *host.constant;
    sizes.tensors.push_back(sizes.tensors[result]);
    host.constant = std::make_shared<const ProgramSizes>(sizes);
    Binding binding(std::make_shared<const HostProgram>(host), comm);
    const std::vector<Argument> bad = {Tensor::of({0, 1, 9}, {3}, DataType::Int), rows};
    EXPECT_THROW(binding.run(comm, bad, out), RefusedIndexError);
    EXPECT_TRUE(binding.remaining(host.tensors[host.inputs[0]].val));
    EXPECT_FALSE(binding.remaining(host.tensors[result].val));
    EXPECT_FALSE(binding.remaining(view.val));
  });
}

}  // namespace

}  // namespace meshfuse
