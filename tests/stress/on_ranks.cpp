#include "stress/on_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "interpret/bounds.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/loopback/loopback.h"

namespace meshfuse {

namespace {

// The arguments of the next call: inputs that outputs alias hold those outputs.
void takeUpdates(const Fusion& fusion, const std::vector<BoundedTensor>& outputs, std::vector<Argument>& inputs) {
  for (const auto& [out, in] : fusion.aliases()) {
    size_t o = static_cast<size_t>(std::find(fusion.outputs().begin(), fusion.outputs().end(), out) -
                                   fusion.outputs().begin());
    size_t i =
        static_cast<size_t>(std::find(fusion.inputs().begin(), fusion.inputs().end(), in) - fusion.inputs().begin());
    inputs[i] = outputs[o].value;
  }
}

void callTwice(FusionExecutorCache& cache, Communicator& comm, const RankCall& call) {
  std::vector<Argument> whole = call.inputs;
  std::vector<Argument> local = whole;
  for (size_t i = 0; i < whole.size(); i++) {
    if (const Tensor* t = std::get_if<Tensor>(&whole[i])) {
      Tensor shard = shardTensor(*t, cache.fusion().inputs()[i]->asTensor(), comm.rank());
      local[i] = call.layout ? call.layout(shard) : shard.clone();
    }
  }
  for (int time = 0; time < 2; time++) {
    std::vector<BoundedTensor> expected = interpretWithBounds(cache.fusion(), whole, {.partials = comm.size()});
    std::vector<Tensor> got = cache.runFusionWithInputs(local);
    ASSERT_EQ(got.size(), expected.size());
    const std::shared_ptr<const Fusion> planned =
        cache.planned();  // of a class of sizes, made for the sizes of this call
    for (size_t i = 0; i < got.size(); i++) {
      const TensorView* tv = planned->outputs()[i]->asTensor();
      BoundedTensor mine{shardTensor(expected[i].value, tv, comm.rank()),
                         shardTensor(expected[i].error, tv, comm.rank()), expected[i].uncertain};
      EXPECT_EQ(compare(got[i], mine).value_or(""), "")
          << "output " << i << " of call " << time << " on rank " << comm.rank() << " of " << comm.size();
    }
    takeUpdates(cache.fusion(), expected, whole);
  }
}

}  // namespace

TensorView* cut(TensorView* x, int dim, int64_t ranks) {
  x->setDeviceMesh(DeviceMesh::createForNumDevices(ranks));
  x->outer_split(dim, ranks);
  x->axis(dim)->parallelize(ParallelType::DIDx);
  return x;
}

void expectAgreesOnRanks(const BuildOnRanks& build, const std::vector<RankCall>& calls, Verify verify) {
  for (int ranks : {2, 4}) {
    try {
      runLoopback(ranks,
                  [&](Communicator& comm) {
                    auto fusion = std::make_unique<Fusion>();
                    {
                      FusionGuard guard(fusion.get());
                      build(*fusion, ranks);
                    }
                    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm, .verify = verify});
                    for (const RankCall& call : calls) {
                      callTwice(cache, comm, call);
                    }
                  },
                  {.deadline = std::chrono::milliseconds(60'000)});
    } catch (const Error& e) {
      ADD_FAILURE() << ranks << " ranks: " << e.what();
    }
  }
}

}  // namespace meshfuse
