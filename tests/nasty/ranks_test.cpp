// The nasty inputs again, cut over virtual ranks.
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "interpret/bounds.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/loopback/loopback.h"
#include "nasty/checked_cache.h"

namespace meshfuse {

namespace {

Tensor random(std::vector<int64_t> sizes, uint64_t seed = 1, DataType type = DataType::Float) {
  return randomTensor(std::move(sizes), type, seed, -2, 2);
}

// Cuts dim `dim` of x over all ranks.
TensorView* cut(TensorView* x, int dim, int64_t ranks) {
  x->setDeviceMesh(DeviceMesh::createForNumDevices(ranks));
  x->outer_split(dim, ranks);
  x->axis(dim)->parallelize(ParallelType::DIDx);
  return x;
}

using BuildOnRanks = std::function<void(Fusion&, int64_t ranks)>;
using Local = std::function<Tensor(const Tensor&)>;  // how a rank lays out its shard

// On 2 and on 4 ranks, twice: every rank's part of every output against the reference on whole tensors.
void expectAgreesOnRanks(
    const BuildOnRanks& build, const std::vector<Argument>& inputs,
    const Local& layout = [](const Tensor& t) { return t; }) {
  for (int ranks : {2, 4}) {
    try {
      runLoopback(ranks,
                  [&](Communicator& comm) {
                    auto fusion = std::make_unique<Fusion>();
                    {
                      FusionGuard guard(fusion.get());
                      build(*fusion, ranks);
                    }
                    std::vector<BoundedTensor> expected = interpretWithBounds(*fusion, inputs, {.partials = ranks});
                    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm, .verify = Verify::Always});
                    std::vector<Argument> local = inputs;
                    for (size_t i = 0; i < inputs.size(); i++) {
                      if (const Tensor* t = std::get_if<Tensor>(&inputs[i])) {
                        local[i] = layout(shardTensor(*t, cache.fusion().inputs()[i]->asTensor(), comm.rank()));
                      }
                    }
                    int calls = cache.fusion().aliases().empty() ? 2 : 1;
                    for (int call = 0; call < calls; call++) {
                      std::vector<Tensor> got = cache.runFusionWithInputs(local);
                      ASSERT_EQ(got.size(), expected.size());
                      for (size_t i = 0; i < got.size(); i++) {
                        const TensorView* tv = cache.planned()->outputs()[i]->asTensor();
                        BoundedTensor mine{shardTensor(expected[i].value, tv, comm.rank()),
                                           shardTensor(expected[i].error, tv, comm.rank()), expected[i].uncertain};
                        EXPECT_EQ(compare(got[i], mine).value_or(""), "")
                            << "output " << i << " of rank " << comm.rank() << " of " << ranks;
                      }
                    }
                  },
                  {.deadline = std::chrono::milliseconds(5000)});
    } catch (const Error& e) {
      ADD_FAILURE() << ranks << " ranks: " << e.what();
    }
  }
}

TEST(OnRanks, ReductionsOfTensorsWithoutElements) {
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        TensorView* x = makeContigConcreteTensor({4, 3, 0, 5});
        f.addInput(x);
        for (const std::vector<int64_t>& axes :
             std::vector<std::vector<int64_t>>{{0}, {1}, {2}, {2, 3}, {0, 2}, {0, 1, 2, 3}}) {
          f.addOutput(sum(x, axes));
          f.addOutput(max(x, axes));
        }
        cut(x, 0, ranks);
      },
      {random({4, 3, 0, 5})});
}

TEST(OnRanks, EmptyOperandsInTheMiddle) {
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        TensorView* x = makeContigConcreteTensor({8, 0});
        TensorView* y = makeContigConcreteTensor({8, 4});
        f.addInput(x);
        f.addInput(y);
        f.addOutput(tanh(cat({x, y}, 1)));
        f.addOutput(sum(cat({slice(y, {0, 2}, {8, 2}), y}, 1), {0}));
        f.addOutput(pad(slice(exp(y), {0, 4}, {8, 4}), {1, 2}, 7.0));
        cut(x, 0, ranks);
        cut(y, 0, ranks);
      },
      {random({8, 0}), random({8, 4}, 2)});
}

TEST(OnRanks, ResultsWithoutDims) {
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        TensorView* x = makeContigConcreteTensor({8, 4});
        TensorView* s = makeContigConcreteTensor({});
        f.addInput(x);
        f.addInput(s);
        f.addOutput(sum(mul(x, s), {0, 1}));
        f.addOutput(max(x, {0, 1}, true));
        f.addOutput(add(x, sum(x, {0, 1})));
        cut(x, 0, ranks);
        s->setDeviceMesh(DeviceMesh::createForNumDevices(ranks));
      },
      {random({8, 4}), random({})});
}

TEST(OnRanks, StridedShards) {
  for (const Local& layout : std::vector<Local>{
           [](const Tensor& t) { return t.transpose(0, 1).clone().transpose(0, 1); },
           [](const Tensor& t) {
             Tensor wide = Tensor::zeros({t.size(0), 2 * t.size(1)}, t.dtype()).slice(1, 0, 2 * t.size(1), 2);
             wide.copyFrom(t);
             return wide;
           }}) {
    expectAgreesOnRanks(
        [](Fusion& f, int64_t ranks) {
          TensorView* x = makeConcreteTensor({8, 12});
          f.addInput(x);
          f.addOutput(softmax(x, 1));
          f.addOutput(sum(x, {0}));
          f.addOutput(matmul(transpose(x), x));
          TensorView* whole = set(x);
          whole->setDeviceMesh(DeviceMesh::createForNumDevices(ranks));
          f.addOutput(whole);
          cut(x, 0, ranks);
        },
        {random({8, 12})}, layout);
  }
}

TEST(OnRanks, CastsInTheMiddle) {
  Tensor x = Tensor::empty({8, 16}, DataType::Float);
  for (int64_t i = 0; i < 128; i++) {
    x.set(std::vector<int64_t>{i / 16, i % 16}, (static_cast<double>(i) - 64) * 1.00390625);
  }
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        TensorView* in = makeContigConcreteTensor({8, 16});
        f.addInput(in);
        TensorView* rounded = castOp(DataType::Float, castOp(DataType::BFloat16, in));
        f.addOutput(eq(rounded, in));
        f.addOutput(floor(rounded));
        f.addOutput(max(rounded, {0}));
        f.addOutput(sum(castOp(DataType::BFloat16, in), {0}));
        cut(in, 0, ranks);
      },
      {x});
}

TEST(OnRanks, LongChainAndManyUpdates) {
  std::vector<Argument> inputs = {random({8, 5})};
  for (uint64_t i = 0; i < 40; i++) {
    inputs.emplace_back(random({8, 3 + static_cast<int64_t>(i % 3)}, i));
  }
  expectAgreesOnRanks(
      [&](Fusion& f, int64_t ranks) {
        TensorView* x = makeContigConcreteTensor({8, 5});
        f.addInput(x);
        cut(x, 0, ranks);
        TensorView* y = x;
        for (int i = 0; i < 101; i++) {
          y = i % 2 == 0 ? mul(y, 0.75) : add(y, 0.5);
        }
        f.addOutput(sum(y, {0}));
        for (size_t i = 1; i < inputs.size(); i++) {
          TensorView* w = makeContigConcreteTensor({8, std::get<Tensor>(inputs[i]).size(1)});
          f.addInput(w);
          cut(w, 0, ranks);
          TensorView* next = mul(w, 0.5);
          f.addOutput(next);
          f.aliasOutputToInput(next, w);
        }
      },
      inputs);
}

TEST(OnRanks, EightDimsMostOfThemOne) {
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        TensorView* x = makeContigConcreteTensor({1, 8, 1, 1, 6, 1, 1, 1});
        f.addInput(x);
        f.addOutput(tanh(x));
        f.addOutput(sum(x, {1}));
        f.addOutput(sum(x, {0, 4, 7}));
        f.addOutput(permute(x, {7, 4, 0, 1, 5, 2, 6, 3}));
        f.addOutput(softmax(x, 4));
        f.addOutput(squeeze(x));
        cut(x, 1, ranks);
      },
      {random({1, 8, 1, 1, 6, 1, 1, 1})});
}

TEST(OnRanks, PadsAndSlicesToOneThatBroadcastAgain) {
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        TensorView* x = makeContigConcreteTensor({8, 5});
        f.addInput(x);
        f.addOutput(add(pad(x, {-2, -2, 0, 0}), x));
        f.addOutput(add(slice(x, {0, 4}, {8, 5}), x));
        f.addOutput(sum(expand(pad(x, {0, -4}), {8, 7}), {0}));
        cut(x, 0, ranks);
      },
      {random({8, 5})});
}

TEST(OnRanks, WindowsAlongTheCutDim) {
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        TensorView* x = makeContigConcreteTensor({8, 5});
        f.addInput(x);
        f.addOutput(add(slice(x, {3, 0}, {4, 5}), 1.0));
        f.addOutput(neg(pad(x, {0, 0, 1, 2}, 3.0)));
        f.addOutput(exp(cat({x, x}, 0)));
        f.addOutput(mul(x, slice(x, {7, 0}, {8, 5})));
        cut(x, 0, ranks);
      },
      {random({8, 5})});
}

}  // namespace

}  // namespace meshfuse
