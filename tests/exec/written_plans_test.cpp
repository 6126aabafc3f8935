// A program runs with the plans in its text: no stage after the passes decides about communication again.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "exec/explain.h"
#include "exec/fusion_executor_cache.h"
#include "inputs.h"
#include "ir/text.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/loopback/loopback.h"

namespace meshfuse {

namespace {

// Rank 0 reads elements 2, 3, 4 and 3, 4, 5 of T0. It holds 0 to 3.
std::string twoWindows(std::string_view step) {
  const std::string_view cut = "mesh M0 outer_split(0, 4) parallelize(0, DIDx)";
  return fmt::format(
      "fusion {{\n"
      "  mesh M0 {{x: 4}} [0, 1, 2, 3]\n"
      "  T0 = input() : Float[16] contiguity[t] {0}\n"
      "  T1 = slice(T0, starts=[2], stops=[14], steps=[1], plan=[{1}]) : Float[12] {0}\n"
      "  T2 = slice(T0, starts=[3], stops=[15], steps=[1], plan=[{1}]) : Float[12] {0}\n"
      "  output T1\n"
      "  output T2\n"
      "}}\n",
      cut, step);
}

TEST(WrittenPlans, AreThoseOfTheRun) {
  struct Case {
    std::string step;
    int64_t exchanges;
    int64_t elements;  // that rank 0 receives
  };
  for (const auto& [step, exchanges, elements] : {Case{"shared 0(x)", 1, 2}, Case{"transfer(x)", 2, 3}}) {
    runLoopback(4, [&](Communicator& comm) {
      FusionExecutorCache cache(parseFusion(twoWindows(step)), {.communicator = &comm});
      const DeviceMesh mesh = cache.fusion().inputs()[0]->asTensor()->getDeviceMesh();
      const Tensor x = random({16}, 1);
      const std::vector<Tensor> out = cache.runFusionWithInputs({shardTensor(x, 0, mesh, comm.rank())});
      for (int64_t t = 0; t < 2; t++) {
        const std::vector<double> whole = x.toVector();
        const auto first = whole.begin() + 2 + t + 3 * comm.rank();
        EXPECT_EQ(out[t].toVector(), std::vector<double>(first, first + 3));
      }
      const std::string planned = cache.explain().program;
      const std::string text = fmt::format("plan=[{}]", step);
      EXPECT_NE(planned.find(text), planned.rfind(text)) << planned;
      if (comm.rank() == 0) {
        EXPECT_EQ(std::ssize(cache.commSteps()), exchanges) << planned;
        EXPECT_EQ(cache.explain().bytesReceived(), elements * 4) << planned;
      }
    });
  }
}

}  // namespace

}  // namespace meshfuse
