// The kernels that `meshfuse compile` writes are those of the host program.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "device/open.h"
#include "exec/compile.h"
#include "exec/explain.h"
#include "host/program.h"
#include "ir/fusion.h"
#include "ir/text.h"
#include "multidevice/transport/communicator.h"
#include "tensor/tensor.h"
#include "tools/tool.h"

namespace meshfuse {
namespace {

CompiledProgram compiled(const std::string& program) {
  const std::unique_ptr<Fusion> fusion = parseFusion(fileText(MESHFUSE_SOURCE_DIR "/tests/tools/" + program));
  std::vector<Argument> arguments;
  for (const Val* in : fusion->inputs()) {
    arguments.emplace_back(Tensor::zeros(in->asTensor()->constantShape(), in->dtype()));
  }
  const std::unique_ptr<Communicator> alone = makeSelfCommunicator();
  return compile(*fusion, arguments, Agreement(*alone).call(),
                 openDevice(DeviceId::cpu(), {.threads = 1, .compiles = false}));
}

class CompiledKernels : public testing::TestWithParam<const char*> {};

TEST_P(CompiledKernels, AreThoseThatRun) {
  const std::string program = GetParam();
  const std::string directory = temporaryDirectory() + "/kernels_of_" + program;
  const ToolRun run = tool("compile {dir}/" + program + " --arch cpu -o " + directory);
  ASSERT_EQ(run.code, 0) << run.err;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".tile") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  const CompiledProgram made = compiled(program);
  const Explanation explanation = explain(made, 0);
  size_t kernel = 0;
  for (const Step& step : made.host->steps) {
    if (step.kind == HostStepKind::Launch) {
      ASSERT_LT(kernel, files.size());
      EXPECT_EQ(fileText(files[kernel].string()), step.launch.program) << step.name;
      EXPECT_EQ(explanation.steps.at(kernel).name, step.name);
      kernel++;
    }
  }
  EXPECT_EQ(kernel, files.size());
}

INSTANTIATE_TEST_SUITE_P(Programs, CompiledKernels, testing::Values("column_and_row_sums.fir", "updated_in_place.fir"),
                         [](const auto& info) { return std::filesystem::path(info.param).stem().string(); });

}  // namespace
}  // namespace meshfuse
