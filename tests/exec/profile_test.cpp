// What a profile says of the steps of a call, against the plan and the sizes of its tensors.
#include "exec/profile.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "inputs.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {
namespace {

// Rows of 64 cut over the ranks: a kernel and an all-reduce.
std::unique_ptr<Fusion> columnSums(int64_t ranks) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  const DeviceMesh mesh = DeviceMesh::createForNumDevices(ranks);
  TensorView* x = input(*fusion, {ranks * 4, 64});
  TensorView* y = sum(add(x, 1.0), {0});
  fusion->addOutput(y);
  x->setDeviceMesh(mesh);
  x->outer_split(0, ranks)->axis(0)->parallelize(ParallelType::DIDx);
  y->setDeviceMesh(mesh);
  return fusion;
}

TEST(Profile, HasTheStepsOfACallWithTheirBytes) {
  runLoopback(2, [](Communicator& comm) {
    FusionExecutorCache cache(columnSums(2), {.communicator = &comm});
    const Tensor x = random({4, 64});
    const Profile p = cache.profile({x}, 3);
    EXPECT_EQ(cache.plansCompiled(), 1);
    EXPECT_EQ(p.rank, comm.rank());
    const std::vector<ExplainedStep> planned = cache.explain().steps;
    ASSERT_EQ(p.steps.size(), 2u);
    ASSERT_EQ(planned.size(), 2u);
    double total = 0;
    for (size_t i = 0; i < 2; i++) {
      EXPECT_EQ(p.steps[i].kind, planned[i].kind);
      EXPECT_EQ(p.steps[i].bytesRead, planned[i].bytesRead);
      EXPECT_EQ(p.steps[i].bytesWritten, planned[i].bytesWritten);
      EXPECT_GT(p.steps[i].seconds, 0);
      total += p.steps[i].seconds;
    }
    EXPECT_GE(p.seconds, total) << "nothing runs beside";
    EXPECT_EQ(p.steps[0].name, planned[0].name);
    EXPECT_EQ(p.steps[0].bytesRead, 4 * 64 * 4);
    EXPECT_FALSE(p.steps[0].communicates());
    EXPECT_TRUE(p.steps[1].communicates());
    EXPECT_EQ(p.steps[1].bytesReceived, 64 * 4) << "half of the tensor, twice";
  });
}

// Each of the calls counts, not only the first, which writes new memory.
TEST(Profile, CallsTheProgram) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* x = input(*fusion, {3});
  TensorView* y = add(x, 1.0);
  fusion->addOutput(y);
  fusion->aliasOutputToInput(y, x);
  FusionExecutorCache cache(std::move(fusion));
  const Tensor t = Tensor::zeros({3}, DataType::Float);
  (void)cache.profile({t}, 4);
  EXPECT_EQ(t.toVector(), (std::vector<double>{4, 4, 4}));
  EXPECT_THROW((void)cache.profile({t}, 0), UserError);
}

TEST(Profile, IsTextAndJson) {
  const Profile p{.rank = 1,
                  .seconds = 0.002,
                  .steps = {{.name = "pointwise T2[4]", .kind = "kernel", .seconds = 0.001, .bytesRead = 4'000'000},
                            {.name = "all-reduce \"T3\"",
                             .kind = "communicate",
                             .seconds = 0.0005,
                             .bytesRead = 8,
                             .bytesWritten = 8,
                             .bytesReceived = 1'000'000}}};
  EXPECT_EQ(p.text(),
            "rank 1: 2.000 ms a call, 1.000 ms in kernels and library calls, 0.500 ms in collectives\n"
            "         us    GB/s         read      written     received  step\n"
            "     1000.0    4.00      4000000            0               pointwise T2[4]\n"
            "      500.0    2.00            8            8      1000000  all-reduce \"T3\"\n");
  const nlohmann::json j = nlohmann::json::parse(p.json());
  EXPECT_EQ(j["rank"], 1);
  EXPECT_EQ(j["seconds"], 0.002);
  EXPECT_EQ(j["steps"][1]["name"], "all-reduce \"T3\"");
  EXPECT_EQ(j["steps"][1]["kind"], "communicate");
  EXPECT_EQ(j["steps"][1]["seconds"], 0.0005);
  EXPECT_EQ(j["steps"][0]["bytes_read"], 4'000'000);
  EXPECT_EQ(j["steps"][1]["bytes_written"], 8);
  EXPECT_EQ(j["steps"][1]["bytes_received"], 1'000'000);
}

}  // namespace
}  // namespace meshfuse
