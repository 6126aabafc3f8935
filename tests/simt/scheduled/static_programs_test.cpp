// The programs of benchmarks/gpu_static with fewer rows under the emulator, which has the addresses that machine code does not show: global memory
// in whole sectors and in accesses of 16 bytes, and transposes without conflicts in shared memory.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir/text.h"
#include "simt/scheduled/scheduled.h"

namespace meshfuse::simt {
namespace {

constexpr int64_t kRows = 128;
const std::filesystem::path kFolder = MESHFUSE_SOURCE_DIR "/benchmarks/gpu_static/programs";

std::unique_ptr<Fusion> programOf(const std::string& name) {
  std::ifstream file(kFolder / (name + ".fir"));
  std::ostringstream stream;
  stream << file.rdbuf();
  std::string text = stream.str();
  for (size_t at = text.find("8192"); at != std::string::npos; at = text.find("8192", at)) {
    text.replace(at, 4, std::to_string(kRows));
  }
  return parseFusion(text, name);
}

std::vector<Argument> inputsOf(const Fusion& fusion) {
  std::vector<Argument> inputs;
  for (const Val* input : fusion.inputs()) {
    const auto* tensor = dynamic_cast<const TensorView*>(input);
    std::vector<int64_t> shape;
    for (const IntExpr& extent : tensor->shape()) {
      shape.push_back(extent.constValue());
    }
    // rows or classes
    inputs.emplace_back(randomTensor(shape, tensor->dtype(), inputs.size() + 1, isIntegral(tensor->dtype()) ? 0 : -2,
                                     isIntegral(tensor->dtype()) ? kRows : 2));
  }
  return inputs;
}

// Those of one kernel that compute no index of an element.
TEST(StaticPrograms, TouchFewSectorsInWideAccesses) {
  std::vector<std::unique_ptr<Fusion>> fusions;
  std::vector<ScheduledCase> cases;
  for (const std::string name : {"add", "bias_gelu", "softmax", "layer_norm", "rms_norm", "dropout_norm", "outer_sum",
                                 "transpose", "embedding", "cumsum"}) {
    for (const std::string type : {"_float", "_bf16"}) {
      fusions.push_back(programOf(name + type));
      cases.push_back({fusions.back().get(), inputsOf(*fusions.back())});
    }
  }
  const std::vector<ScheduledVerdict> verdicts =
      runScheduled(cases, DeviceInfo::hopper(), [](std::span<const Launch> launches) {
        std::vector<Launch> counted(launches.begin(), launches.end());
        for (Launch& l : counted) {
          l.countSectors = true;
        }
        return run(counted);
      });
  for (const ScheduledVerdict& v : verdicts) {
    EXPECT_TRUE(v.right()) << v.describe();
    int64_t sectors = 0;
    int64_t ideal = 0;
    for (size_t k = 0; k < v.result.tensors.size(); k++) {
      const TensorTraffic& t = v.result.tensors[k];
      sectors += t.sectors;
      ideal += t.idealSectors;
      const TensorView* tensor = v.plan.slots[k].tensor;
      if (tensor != nullptr && tensor->shape().size() == 2) {
        EXPECT_EQ(t.requests * 32 * 16, t.readBytes + t.writtenBytes) << "an access is not 16 bytes wide\n"
                                                                      << v.describe();
      }
    }
    EXPECT_LE(static_cast<double>(sectors), 1.05 * static_cast<double>(ideal)) << v.describe();
    EXPECT_TRUE(v.plan.kind != "transpose" || v.result.sharedConflicts == 0) << v.describe();
  }
}

}  // namespace
}  // namespace meshfuse::simt
