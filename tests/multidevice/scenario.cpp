#include "multidevice/scenario.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/hash.h"
#include "base/ranges.h"
#include "exec/explain.h"
#include "exec/fusion_executor_cache.h"
#include "host/program.h"
#include "interpret/bounds.h"
#include "memory_of_call.h"
#include "multidevice/device_of_rank.h"
#include "multidevice/sharding/shard_state.h"
#include "multidevice/sharding/shard_tensor.h"
#include "ops/tensors.h"

namespace meshfuse {

namespace {

// What a rank receives in a step. Between processes a small all-reduce reads whole inputs instead of parts: of n - 1 ranks all they have, where
// the plan counts 2 (n - 1) / n of that, rounded down. NCCL counts that without rounding: here as if some ranks received a byte more.
int64_t bytesReceived(const CommRecord& c, Communicator& comm) {
  const auto others = std::ssize(c.team) - 1;
  const bool isOfDevice = comm.onDevice() && comm.onDevice()->communicator != nullptr;
  if (c.kind != "all-reduce" || comm.transport() == "loopback" || others == 0) {
    return c.bytesReceived;
  }
  const int64_t input = (c.bytesReceived * (others + 1) + 2 * others - 1) / (2 * others);
  const int64_t ofAll = 2 * others * input;
  const int64_t position = std::ranges::find(c.team, comm.rank()) - c.team.begin();
  return isOfDevice ? ofAll / (others + 1) + (position < ofAll % (others + 1) ? 1 : 0) : others * input;
}

// What differs between the calls that the ranks of a team made in it; empty if nothing does.
std::string callsOfTeams(const std::vector<std::vector<std::string>>& trace) {
  std::map<std::string, std::map<size_t, std::vector<std::string>>> calls;  // by team, then by rank
  for (size_t r = 0; r < trace.size(); r++) {
    for (const std::string& call : trace[r]) {
      size_t team = call.find(" in team {");
      if (team != std::string::npos) {
        calls[call.substr(team)][r].push_back(call);
      }
    }
  }
  for (const auto& [team, byRank] : calls) {
    for (const auto& [rank, made] : byRank) {
      if (made != byRank.begin()->second) {
        return fmt::format("ranks {} and {} made other calls{}", byRank.begin()->first, rank, team);
      }
    }
  }
  return {};
}

// Calls with the sizes of their teams in place of the ranks: the same for all ranks of a mesh.
std::vector<std::string> withoutRankIds(const std::vector<std::string>& calls) {
  std::vector<std::string> result;
  for (const std::string& call : calls) {
    size_t team = call.find(" in team {");
    result.push_back(team == std::string::npos
                         ? call
                         : fmt::format("{} in a team of {}", call.substr(0, team),
                                       std::count(call.begin() + static_cast<ptrdiff_t>(team), call.end(), ',') + 1));
  }
  return result;
}

// A run's communication, as the plan lists it and as the transport counted it. The first run also agrees on the plan.
void checkCommunication(Communicator& comm, const FusionExecutorCache& cache, const Expected& expected, bool first) {
  const TransferCounters counters = comm.counters();  // before the ranks compare them
  std::vector<std::string> kinds;
  int64_t planBytes = 0;
  int64_t countedBytes = 0;
  for (const CommRecord& c : cache.commSteps()) {
    kinds.push_back(fmt::format("{}/{}", c.kind, c.team.size()));
    planBytes += c.bytesReceived;
    countedBytes += bytesReceived(c, comm);
  }
  EXPECT_EQ(kinds, expected.communication) << cache.planText() << cache.hostProgram()->toString();
  EXPECT_EQ(planBytes, expected.bytes) << cache.planText();
  int64_t counted = 0;
  for (const TransferCounters::Entry& e : counters.of) {
    counted += e.bytesReceived;
  }
  int64_t more = 0;  // of all ranks: parts of an all-reduce may be uneven
  for (const std::string& text : comm.exchange(std::to_string(counted - countedBytes))) {
    more += std::stoll(text);
  }
  if (first) {
    return;
  }
  EXPECT_EQ(more, 0) << "bytes that were received and not planned";
  for (const Collective kind : {Collective::AllGather, Collective::AllReduce, Collective::ReduceScatter,
                                Collective::AllToAll, Collective::Broadcast}) {
    const auto planned = std::ranges::count_if(
        cache.commSteps(), [&](const CommRecord& c) { return std::string_view(c.kind).starts_with(name(kind)); });
    EXPECT_EQ(counters[kind].calls, planned) << name(kind) << "\n" << cache.hostProgram()->toString();
  }
}

// What ranks have in full has the same bits on all of them.
void checkCopies(Communicator& comm, const Fusion& planned, const std::vector<Tensor>& outputs) {
  std::string mine;
  for (size_t i = 0; i < outputs.size(); i++) {
    const TensorView* tv = planned.outputs()[i]->asTensor();
    const bool isEverywhere = !tv->hasDeviceMesh() || std::ssize(tv->getDeviceMesh().devices()) == comm.size();
    if (isEverywhere && std::ranges::none_of(shardState(tv).dims, &DigitList::hasOwned)) {
      const std::vector<double> values = outputs[i].toVector();
      mine +=
          fmt::format("output {}: {}\n", i,
                      hashText({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)}).hex());
    }
  }
  const std::vector<std::string> all = comm.exchange(mine);
  for (size_t r = 1; r < all.size(); r++) {
    EXPECT_EQ(all[r], all[0]) << "ranks 0 and " << r << " have different bits";
  }
}

// On a device that counts, a call takes the memory that its plan says, to the byte. `results`: of an earlier call.
void checkMemory(Communicator& comm, const FusionExecutorCache& cache, const std::vector<Argument>& arguments,
                 std::vector<Tensor>& results) {
  const std::shared_ptr<const HostProgram> host = cache.hostProgram();
  if (const std::optional<int64_t> bytes = memoryOfCall(comm, host, arguments, results)) {
    EXPECT_EQ(*bytes, host->sizes().peakBytes) << host->toString();
  }
}

void runAsRank(Communicator& comm, const Scenario& scenario) {
  const Expected& expectation = scenario.byRank.empty() ? scenario.expected : scenario.byRank.at(comm.rank());
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    scenario.build(*fusion);
  }
  std::vector<BoundedTensor> whole = interpretWithBounds(*fusion, scenario.inputs, {.partials = comm.size()});
  const std::vector<Argument> local = shardsOfRank(*fusion, scenario.inputs, comm);
  FusionExecutorCache cache(std::move(fusion),
                            {.communicator = &comm, .passes = scenario.passes, .verify = Verify::Always});
  for (int call = 0; call < 2; call++) {
    comm.resetCounters();
    std::vector<Tensor> got = cache.runFusionWithInputs(local);
    std::shared_ptr<const Fusion> planned = cache.planned();
    for (size_t i = 0; i < got.size(); i++) {
      BoundedTensor part = shardOf(whole[i], planned->outputs()[i]->asTensor(), comm.rank());
      EXPECT_EQ(compare(got[i], part).value_or(""), "") << "output " << i << " of\n" << cache.planText();
    }
    checkCommunication(comm, cache, expectation, call == 0);
    checkCopies(comm, *planned, got);
    if (call > 0) {
      checkMemory(comm, cache, local, got);
    }
  }
  if (!expectation.relations.empty()) {
    std::vector<std::string> relations;
    for (const ExplainedEdge& e : cache.explain().edges) {
      relations.push_back(e.relation);
    }
    EXPECT_EQ(relations, expectation.relations) << cache.planText();
  }
  if (expectation.kernels >= 0) {
    int64_t launches = 0;
    for (const Step& s : cache.hostProgram()->steps) {
      launches += s.kind == HostStepKind::Launch ? 1 : 0;
    }
    EXPECT_EQ(launches, expectation.kernels) << cache.hostProgram()->toString();
  }
}

}  // namespace

int64_t sumOverRanks(Communicator& comm, int64_t mine) {
  int64_t all = 0;
  for (const std::string& text : comm.exchange(std::to_string(mine))) {
    all += std::stoll(text);
  }
  return all;
}

BoundedTensor shardOf(const BoundedTensor& whole, const TensorView* tv, int rank) {
  return {shardTensor(whole.value, tv, rank).contiguous(), shardTensor(whole.error, tv, rank).contiguous(),
          whole.uncertain};
}

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

std::vector<std::string> among(int64_t team, const std::string& step) {
  return team == 1 ? std::vector<std::string>{} : std::vector<std::string>{fmt::format("{}/{}", step, team)};
}

void ScenarioTest::runScenario(const std::function<Scenario(int64_t)>& scenario) {
  if (launched()) {
    return runOnRanks([&](Communicator& comm) { runAsRank(comm, scenario(comm.size())); });
  }
  runScenarioOnLoopback(2, scenario);
  runScenarioOnLoopback(4, scenario);
}

void ScenarioTest::runScenarioOn(int ranks, const Scenario& scenario) {
  if (launched()) {
    return runOnRanks(ranks, [&](Communicator& comm) { runAsRank(comm, scenario); });
  }
  runScenarioOnLoopback(ranks, [&](int64_t) { return scenario; });
}

void ScenarioTest::runScenarioOnLoopback(int ranks, const std::function<Scenario(int64_t)>& scenario) {
  std::vector<std::vector<std::string>> trace;
  loopback_.trace = &trace;
  runOnRanks(ranks, [&](Communicator& comm) { runAsRank(comm, scenario(comm.size())); });
  loopback_.trace = nullptr;
  ASSERT_EQ(trace.size(), ranks);
  std::vector<std::string> first = withoutRankIds(trace[0]);
  for (size_t r = 1; r < trace.size() && scenario(ranks).byRank.empty(); r++) {
    EXPECT_EQ(withoutRankIds(trace[r]), first) << "rank " << r << " of " << ranks << " made other calls than rank 0";
  }
  EXPECT_EQ(callsOfTeams(trace), "");
}

}  // namespace meshfuse
