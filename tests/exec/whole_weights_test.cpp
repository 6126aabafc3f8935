// Weights of symbolic sizes, cut over ranks, where a call passes a whole weight in place of a rank's shard.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>

#include "meshfuse/meshfuse.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/loopback/loopback.h"

namespace meshfuse {

namespace {

constexpr int64_t kRanks = 4;
constexpr int64_t kBatch = 3;
constexpr int64_t kFeatures = 8;
constexpr int64_t kHidden = 16;

enum class Known : uint8_t { Constant, Symbolic };

TensorView* inputOf(std::vector<int64_t> sizes, Known known) {
  TensorView* in = known == Known::Constant ? makeContigConcreteTensor(sizes) : makeContigTensor(std::ssize(sizes));
  in->fusion().addInput(in);
  in->setDeviceMesh(DeviceMesh::createForNumDevices(kRanks));
  return in;
}

void cut(TensorView* weight, int64_t dim) {
  weight->outer_split(dim, kRanks);
  weight->axis(dim)->parallelize(ParallelType::DIDx);
}

// x w0^T w1^T: w0 [hidden, features] is cut by rows, w1 [features, hidden] by columns.
std::unique_ptr<Fusion> twoWeights(Known known) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* x = inputOf({kBatch, kFeatures}, known);
  TensorView* w0 = inputOf({kHidden, kFeatures}, known);
  TensorView* w1 = inputOf({kFeatures, kHidden}, known);
  cut(w0, 0);
  cut(w1, 1);
  fusion->addOutput(linear(linear(x, w0), w1));
  return fusion;
}

// What the ranks throw that make this call, by rank. `wholes`: of each weight, the ranks that pass it whole.
std::vector<std::string> errorsOfCall(Known known, const std::array<std::vector<int64_t>, 2>& wholes) {
  std::vector<std::string> errors(kRanks, "none");
  try {
    runLoopback(kRanks, [&](Communicator& comm) {
      const Tensor w0 = randomTensor({kHidden, kFeatures}, DataType::Float, 1);
      const Tensor w1 = randomTensor({kFeatures, kHidden}, DataType::Float, 2);
      const auto given = [&](const Tensor& w, int64_t weight) {
        const DeviceMesh mesh = DeviceMesh::createForNumDevices(kRanks);
        const bool isWhole = std::ranges::count(wholes[weight], comm.rank()) > 0;
        return isWhole ? w : shardTensor(w, weight, mesh, comm.rank());
      };
      try {
        FusionExecutorCache cache(twoWeights(known), {.communicator = &comm});
        (void)cache.runFusionWithInputs(
            {randomTensor({kBatch, kFeatures}, DataType::Float, 3), given(w0, 0), given(w1, 1)});
      } catch (const UserError& e) {
        errors[comm.rank()] = e.what();
        throw;
      } catch (const std::exception& e) {
        errors[comm.rank()] = std::string("no UserError, but ") + e.what();
        throw;
      }
    });
  } catch (const std::exception&) {
  }
  return errors;
}

using Wholes = std::array<std::vector<int64_t>, 2>;
const std::vector<int64_t> kNone;
const std::vector<int64_t> kOne{2};
const std::vector<int64_t> kAll{0, 1, 2, 3};

// Every rank gets the same UserError, and it has these phrases.
void expectRefused(Known known, const Wholes& wholes, const std::vector<std::string>& phrases) {
  const std::vector<std::string> errors = errorsOfCall(known, wholes);
  for (const std::string& e : errors) {
    EXPECT_EQ(e, errors[0]);
    EXPECT_FALSE(e.starts_with("no UserError")) << e;
  }
  for (const std::string& phrase : phrases) {
    EXPECT_NE(errors[0].find(phrase), std::string::npos) << "missing: " << phrase << "\nin: " << errors[0];
  }
}

TEST(WholeWeight, OfConstantSizeIsRefused) {
  EXPECT_EQ(errorsOfCall(Known::Constant, {kNone, kNone}), std::vector<std::string>(kRanks, "none"));
  for (const Wholes& wholes : {Wholes{kAll, kNone}, Wholes{kAll, kAll}, Wholes{kOne, kNone}, Wholes{kOne, kOne}}) {
    expectRefused(Known::Constant, wholes,
                  {"input 1 (T1) has local sizes [4, 8] on this rank, got [16, 8]", "pass this rank's shard"});
  }
  for (const Wholes& wholes : {Wholes{kNone, kAll}, Wholes{kNone, kOne}}) {
    expectRefused(Known::Constant, wholes,
                  {"input 2 (T2) has local sizes [8, 4] on this rank, got [8, 16]", "pass this rank's shard"});
  }
}

// The assumed global size is that of four wholes, which the other weight, or another rank, contradicts.
TEST(WholeWeight, OfSymbolicSizeIsRefusedIfAnotherSizeContradictsIt) {
  EXPECT_EQ(errorsOfCall(Known::Symbolic, {kNone, kNone}), std::vector<std::string>(kRanks, "none"));
  const std::string first = "dim 0 of input 1 (T1) has local size 16 and global size 64";
  const std::string second = "dim 1 of input 2 (T2) has local size 16 and global size 64";
  for (const std::vector<int64_t>& ranks : {kAll, kOne}) {
    expectRefused(
        Known::Symbolic, {ranks, kNone},
        {"extents 64 and 16 differ", first, "pass each rank its shard, not the whole tensor, see shardTensor"});
    expectRefused(
        Known::Symbolic, {kNone, ranks},
        {"extents 16 and 64 differ", second, "pass each rank its shard, not the whole tensor, see shardTensor"});
  }
  expectRefused(Known::Symbolic, {kOne, kOne},
                {"the shards of ranks [2] differ in size from that of rank 0", first, "pass each rank its shard"});
}

// Shards of 16 rows are those of a weight of 64 rows: if all ranks pass the wholes of all weights, no size contradicts it.
TEST(WholeWeight, OfSymbolicSizeIsAShardOfALargerOneIfNoSizeContradictsIt) {
  EXPECT_EQ(errorsOfCall(Known::Symbolic, {kAll, kAll}), std::vector<std::string>(kRanks, "none"));
}

// Two inputs share the symbol of a dim that is cut: of one of them the size is known.
TEST(WholeWeight, OfASizeThatAnotherInputGivesIsRefused) {
  const auto errorOf = [](int64_t rows) {
    try {
      runLoopback(kRanks, [&](Communicator& comm) {
        const char* const text =
            "fusion {\n"
            "  mesh M0 {x: 4} [0, 1, 2, 3]\n"
            "  T0 = input() : Float[i0, 8] mesh M0 outer_split(0, 4) parallelize(0, DIDx)\n"
            "  T1 = input() : Float[i0] mesh M0\n"
            "  T2 = broadcast(T1, flags=[f, t]) : Float[i0, b{1}]\n"
            "  T3 = add(T0, T2) : Float[i0, 8]\n"
            "  output T3\n"
            "}\n";
        FusionExecutorCache cache(parseFusion(text), {.communicator = &comm});
        (void)cache.runFusionWithInputs(
            {Tensor::zeros({rows, 8}, DataType::Float), Tensor::zeros({kHidden}, DataType::Float)});
      });
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(errorOf(kHidden / kRanks), "none");
  EXPECT_NE(errorOf(kHidden).find("has local sizes [4, 8] on this rank, got [16, 8], which differ in dim 0; pass this "
                                  "rank's shard"),
            std::string::npos)
      << errorOf(kHidden);
}

}  // namespace

}  // namespace meshfuse
