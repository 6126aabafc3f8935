#include "tools/traced_run.h"

#include <algorithm>

#include "exec/fusion_executor_cache.h"
#include "ir/fusion.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/loopback/loopback.h"

namespace meshfuse {

std::vector<Argument> inputsOfRank(const Fusion& fusion, std::span<const Argument> inputs, int rank) {
  std::vector<Argument> own;
  for (size_t i = 0; i < inputs.size(); i++) {
    const Tensor* t = std::get_if<Tensor>(&inputs[i]);
    if (t == nullptr) {
      own.push_back(inputs[i]);
    } else {
      own.emplace_back(shardTensor(*t, fusion.inputs()[i]->asTensor(), rank).clone());
    }
  }
  return own;
}

std::vector<RankSpans> traceVirtualRanks(const Fusion& fusion, std::span<const Argument> inputs, int ranks) {
  std::vector<RankSpans> result(ranks);
  runLoopback(ranks, [&](Communicator& comm) {
    Trace trace(comm.rank());
    const std::vector<Argument> own = inputsOfRank(fusion, inputs, comm.rank());
    FusionExecutorCache cache(fusion.clone(), {.communicator = &comm, .trace = &trace});
    (void)cache.runFusionWithInputs(own);
    trace.clear();
    comm.barrier(comm.world());
    (void)cache.runFusionWithInputs(own);
    result[comm.rank()] = {comm.rank(), trace.spans()};
  });
  return result;
}

std::string gatherTrace(Communicator& communicator, const Trace& trace) {
  int64_t zero = trace.begin();
  for (const std::string& begin : communicator.exchange(std::to_string(zero))) {
    zero = std::min<int64_t>(zero, std::stoll(begin));
  }
  const std::vector<std::string> events = communicator.exchange(trace.events(zero));
  return communicator.rank() == 0 ? chromeTrace(events) : "";
}

}  // namespace meshfuse
