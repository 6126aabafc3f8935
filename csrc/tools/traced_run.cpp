#include "tools/traced_run.h"

#include <algorithm>
#include <cstdint>

#include "base/ranges.h"
#include "exec/fusion_executor_cache.h"
#include "ir/fusion.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/loopback/loopback.h"

namespace meshfuse {

std::vector<Argument> inputsOfRank(const Fusion& fusion, std::span<const Argument> inputs, int64_t rank) {
  return mapped(indices(inputs), [&](int64_t i) {
    const Tensor* t = std::get_if<Tensor>(&inputs[i]);
    return t == nullptr ? inputs[i] : shardTensor(*t, fusion.inputs()[i]->asTensor(), rank).clone();
  });
}

Timeline traceVirtualRanks(const Fusion& fusion, std::span<const Argument> inputs, int64_t ranks) {
  Timeline result(ranks);
  runLoopback(ranks, [&](Communicator& comm) {
    Trace trace(comm.rank());
    const std::vector<Argument> own = inputsOfRank(fusion, inputs, comm.rank());
    FusionExecutorCache cache(fusion.clone(), {.communicator = &comm, .trace = &trace});
    (void)cache.runFusionWithInputs(own);
    trace.clear();
    comm.barrier(comm.world());
    (void)cache.runFusionWithInputs(own);
    result[comm.rank()] = trace.spans();
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
