#include "multidevice/scenario.h"

#include <fmt/ranges.h>

#include "exec/fusion_executor_cache.h"
#include "host/program.h"
#include "interpret/bounds.h"
#include "multidevice/sharding/shard_tensor.h"
#include "ops/tensors.h"

namespace meshfuse {

namespace {

// Bounds of the whole, cut like the tensor they bound.
BoundedTensor shardOf(const BoundedTensor& whole, const TensorView* tv, int rank) {
  return {shardTensor(whole.value, tv, rank).contiguous(), shardTensor(whole.error, tv, rank).contiguous(),
          whole.uncertain};
}

// What a rank receives in a step. The host transport reads whole inputs instead of parts in a small all-reduce: twice the parts'
// bytes for half the synchronizations.
int64_t bytesReceived(const CommRecord& c, const Communicator& comm) {
  bool wholeInputs = c.kind == "all-reduce" && comm.transport() == "host";
  return wholeInputs ? c.bytesReceived * static_cast<int64_t>(c.team.size()) / 2 : c.bytesReceived;
}

}  // namespace

void shardBlock(TensorView* tv, int dim, const DeviceMesh& mesh, std::string_view axis) {
  tv->outer_split(dim, mesh.size(axis));
  tv->axis(dim)->parallelize(mesh.axis(axis));
}

TensorView* input(Fusion& fusion, std::vector<int64_t> shape, const DeviceMesh& mesh, DataType type) {
  TensorView* tv = makeContigConcreteTensor(fusion, shape, type);
  fusion.addInput(tv);
  tv->setDeviceMesh(mesh);
  return tv;
}

void ScenarioTest::runScenario(int ranks, const std::function<void(Fusion&)>& build,
                               const std::vector<Argument>& inputs, const Expected& expected) {
  runOnRanks(ranks, [&](Communicator& comm) {
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      build(*fusion);
    }
    std::vector<BoundedTensor> whole = interpretWithBounds(*fusion, inputs, {.partials = ranks});
    std::vector<Argument> local;
    for (size_t i = 0; i < inputs.size(); i++) {
      const Tensor* t = std::get_if<Tensor>(&inputs[i]);
      local.push_back(t == nullptr ? inputs[i]
                                   : Argument(shardTensor(*t, fusion->inputs()[i]->asTensor(), comm.rank())));
    }
    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm, .verify = Verify::Always});
    for (int call = 0; call < 2; call++) {
      comm.resetCounters();
      std::vector<Tensor> got = cache.runFusionWithInputs(local);
      std::shared_ptr<const Fusion> planned = cache.planned();
      for (size_t i = 0; i < got.size(); i++) {
        BoundedTensor part = shardOf(whole[i], planned->outputs()[i]->asTensor(), comm.rank());
        EXPECT_EQ(compare(got[i], part).value_or(""), "") << "output " << i << " of\n" << cache.planText();
      }
      std::vector<std::string> kinds;
      int64_t planBytes = 0;
      int64_t countedBytes = 0;
      for (const CommRecord& c : cache.commSteps()) {
        kinds.push_back(fmt::format("{}/{}", c.kind, c.team.size()));
        planBytes += c.bytesReceived;
        countedBytes += bytesReceived(c, comm);
      }
      EXPECT_EQ(kinds, expected.communication) << cache.planText() << cache.hostProgram()->toString();
      int64_t counted = 0;
      for (const TransferCounters::Entry& e : comm.counters().of) {
        counted += e.bytesReceived;
      }
      int64_t total = 0;  // of all ranks: parts of an all-reduce may be uneven
      for (const std::string& text : comm.exchange(std::to_string(counted))) {
        total += std::stoll(text);
      }
      if (call > 0) {  // the first call also agrees on the plan
        EXPECT_EQ(total, countedBytes * ranks);
      }
      if (expected.bytes >= 0) {
        EXPECT_EQ(planBytes, expected.bytes);
      }
    }
    if (expected.kernels >= 0) {
      int64_t launches = 0;
      for (const Step& s : cache.hostProgram()->steps) {
        launches += s.kind == HostStepKind::Launch ? 1 : 0;
      }
      EXPECT_EQ(launches, expected.kernels) << cache.hostProgram()->toString();
    }
  });
}

}  // namespace meshfuse
