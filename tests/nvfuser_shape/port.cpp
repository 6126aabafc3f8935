#include "nvfuser_shape/port.h"

#include <algorithm>

#include "interpret/bounds.h"
#include "multidevice/device_of_rank.h"
#include "multidevice/scenario.h"

namespace meshfuse {

namespace {

// The longest of the lists that ranks have.
std::string longestOf(Communicator& comm, const FusionExecutorCache& cache) {
  const std::vector<CommRecord> steps = cache.commSteps();
  const std::vector<std::string> all =
      comm.exchange(joined(steps, "", [](const CommRecord& c) { return c.kind + " "; }));
  return *std::ranges::max_element(all, {}, [](const std::string& s) { return std::ranges::count(s, ' '); });
}

void runAsRank(Communicator& comm, const Port& port) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    port.build(*fusion);
  }
  const std::vector<BoundedTensor> whole =
      interpretWithBounds(*fusion, port.inputs, {.partials = static_cast<int>(comm.size())});
  KernelArgumentHolder args;
  for (const Argument& shard : shardsOfRank(*fusion, port.inputs, comm)) {
    args.push(shard);
  }
  FusionExecutorCache cache(std::move(fusion), {.communicator = &comm});
  for (int call = 0; call < 2; call++) {
    const std::vector<Tensor> outputs = cache.run(args);
    for (const int64_t i : indices(outputs)) {
      const TensorView* tv = cache.planned()->outputs()[i]->asTensor();
      const BoundedTensor part = shardOf(whole[i], tv, static_cast<int>(comm.rank()));
      EXPECT_EQ(compare(outputs[i], part).value_or(""), "") << "output " << i << " of\n" << cache.planText();
    }
    if (port.communication) {
      EXPECT_EQ(longestOf(comm, cache), joined(*port.communication, "", [](const std::string& k) { return k + " "; }))
          << cache.planText();
    }
    if (port.alsoExpect) {
      port.alsoExpect(cache, outputs);
    }
  }
}

}  // namespace

void PortTest::runPort(const std::function<Port(int64_t)>& port) {
  runOnRanks([&](Communicator& comm) { runAsRank(comm, port(comm.size())); });
}

void PortTest::runPortOn(int ranks, const Port& port) {
  runOnRanks(ranks, [&](Communicator& comm) { runAsRank(comm, port); });
}

void bindDim(TensorView* tv, int64_t dim, int64_t d) {
  tv->setDeviceMesh(DeviceMesh::createForNumDevices(d));
  tv->axis(dim)->parallelize(ParallelType::DIDx);
}

void splitDim(TensorView* tv, int64_t dim, const DeviceMesh& mesh) {
  tv->setDeviceMesh(mesh);
  tv->outer_split(dim, mesh.size());
  tv->axis(dim < 0 ? dim - 1 : dim)->parallelize(ParallelType::DIDx);
}

void splitDim(TensorView* tv, int64_t dim, int64_t d) { splitDim(tv, dim, DeviceMesh::createForNumDevices(d)); }

void allocateLoops(TensorView* tv) { tv->setAllocationDomain(tv->getLoopDomain(), true); }

int64_t kernelsOf(const FusionExecutorCache& cache) {
  return std::ranges::count(cache.hostProgram()->steps, HostStepKind::Launch, &Step::kind);
}

}  // namespace meshfuse
