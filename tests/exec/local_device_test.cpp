// Which GPU each rank takes.
#include "exec/local_device.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "multidevice/transport/loopback/loopback.h"
#include "stress/checked_cache.h"

namespace meshfuse {
namespace {

void expectError(const std::string& type, const std::function<void()>& call, const std::string& part) {
  const std::string error = errorOf(call);
  EXPECT_TRUE(error.starts_with(type + ": ")) << error;
  EXPECT_NE(error.find(part), std::string::npos) << error;
}

std::vector<int64_t> gpusOf(const std::vector<GpusOfRank>& ranks, bool share = false) {
  std::vector<int64_t> gpus;
  for (const DeviceId id : assignGpus(ranks, share)) {
    EXPECT_EQ(id.kind, DeviceId::Kind::Cuda);
    gpus.push_back(id.index);
  }
  return gpus;
}

TEST(LocalDevice, RanksOfAHostTakeItsGpusInOrder) {
  EXPECT_EQ(gpusOf({{"a", 1}}), (std::vector<int64_t>{0}));
  EXPECT_EQ(gpusOf({{"a", 2}, {"a", 2}, {"b", 4}, {"b", 4}}), (std::vector<int64_t>{0, 1, 0, 1}));
  EXPECT_EQ(gpusOf({{"a", 3}, {"b", 2}, {"a", 3}, {"b", 2}, {"a", 3}}), (std::vector<int64_t>{0, 0, 1, 1, 2}))
      << "in turns over the hosts";
}

TEST(LocalDevice, ARankMayNameItsGpu) {
  EXPECT_EQ(gpusOf({{"a", 2, "", "cuda:1"}, {"a", 2}}), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(gpusOf({{"a", 3}, {"a", 3, "", "cuda:0"}, {"a", 3}}), (std::vector<int64_t>{1, 0, 2}))
      << "no other gets it";
  EXPECT_EQ(gpusOf({{"a", 1, "", "cuda:0"}, {"a", 1, "", "cuda:0"}, {"a", 1, "", "cuda:0"}}),
            (std::vector<int64_t>{0, 0, 0}))
      << "and share it";
}

TEST(LocalDevice, RanksOfOneProcessShare) {
  EXPECT_EQ(gpusOf({{"a", 2}, {"a", 2}, {"a", 2}}, true), (std::vector<int64_t>{0, 1, 0}));
}

TEST(LocalDevice, TooFewGpusAreAUserErrorWithTheRanksAndTheWayOut) {
  expectError(
      "UserError",
      [] {
        (void)assignGpus(std::vector<GpusOfRank>{{"a", 2}, {"b", 1}, {"a", 2}, {"b", 1}}, false);
      },
      "the ranks 1, 3 are on one host, which has 1 GPU for them; start fewer ranks there, or let ranks share GPUs: "
      "set MESHFUSE_DEVICE=cuda:0");
}

TEST(LocalDevice, AWrongNameIsAUserErrorWithTheGpusThereAre) {
  for (const char* chosen : {"cuda:2", "cpu", "cuda", "ext:0", "first", "cuda:01"}) {
    expectError(
        "UserError",
        [&] {
          (void)assignGpus(std::vector<GpusOfRank>{{"a", 2}, {"a", 2, "", chosen}}, false);
        },
        "MESHFUSE_DEVICE of rank 1 is \"" + std::string(chosen) + "\", but its host has the GPUs cuda:0 to cuda:1");
  }
}

TEST(LocalDevice, AHostWithoutGpusIsADeviceErrorWithTheReason) {
  expectError(
      "DeviceError",
      [] {
        (void)assignGpus(std::vector<GpusOfRank>{{"a", 1}, {"b", 0, "no driver"}}, false);
      },
      "rank 1 has no GPU: no driver");
}

TEST(LocalDevice, OtherNamesAreWhatTheySay) {
  runLoopback(2, [](Communicator& comm) {
    EXPECT_EQ(localDevice("cpu", comm), DeviceId::cpu());
    EXPECT_EQ(localDevice("cuda:3", comm), DeviceId::cuda(3));
    expectError(
        "UserError", [&] { (void)localDevice("gpu", comm); }, "\"gpu\" is no device");
  });
}

}  // namespace
}  // namespace meshfuse
