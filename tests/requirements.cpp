#include "requirements.h"

#include <fnmatch.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>

#include "meshfuse_config.h"

namespace meshfuse {

namespace {

struct Requirement {
  bool met;
  const char* reason;
};

bool runsOnGpus() {
  const char* const device = std::getenv("MESHFUSE_TEST_DEVICE");
  return device != nullptr && std::string(device).starts_with("cuda");
}

constexpr Requirement kCpuKernels{kHasLlvm, "needs CPU kernels; this build has no LLVM"};
// of tests that run on any device
const Requirement kKernels{kHasLlvm || runsOnGpus(),
                           "needs CPU kernels, or a GPU in MESHFUSE_TEST_DEVICE; this build has no LLVM"};
constexpr Requirement kLibraryMatmul{kHasOneDnn, "needs library calls; this build has no oneDNN"};
// A launcher would start them on every rank, which adds nothing.
const Requirement kNoLauncher{std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr,
                              "has ranks of its own; run it without a launcher"};

// Which tests of a binary need what, as patterns of Suite.Name separated by colons.
struct Row {
  const char* binary;
  const Requirement& requirement;
  const char* tests;
  const char* except = "";
};

// A binary that is absent needs nothing, or skips by itself.
const Row kRows[] = {
    {"test_autoplan", kCpuKernels, "Programs/Plans.*"},
    {"test_codegen_llvm", kCpuKernels, "*"},
    {"test_docs", kCpuKernels, "Readme.ExampleGivesTheSameOnOneAndOnFourRanks:Tutorial.*",
     "Tutorial.EveryBlockOfCodeIsTheOneThatIsCompiled"},
    {"test_decoders", kCpuKernels, "*/program"},
    {"test_examples", kCpuKernels, "*", "TrainLm.TextWithoutSourcesIsAUserError"},
    {"test_exec", kCpuKernels, "Devices.*"},
    {"test_exec", kKernels, "*",
     "BadInput.Number:BadInput.Kinds:BadInput.TypesRanksAndSizes:BadPrograms.InputsNobodyGives:"
     "DumpedPasses.NamesOfBothTablesAndAll:OneRank.PassesAShard*:"
     "OneRank.HasAnotherProgram:OneRank.NeverCalls:AllRanks.BindAnAxisTwice:AllRanks.HaveA*:"
     "CallDescriptor.*:PlanDescriptorsTest.*:AgreedPrograms.*"},
    // else the arena of the matrix products is too small a part of what collectives beside them would keep alive
    {"test_exec", kLibraryMatmul, "Overlap.*", "Overlap.ResultsTake*:Overlap.ACallThatFailsBefore*"},
    {"test_exec", kLibraryMatmul, "TimedSteps.ArePredictedFromTheirWork:SimulateCall.RanksWithPartsOf*"},
    {"test_exec", kLibraryMatmul, "ShapeClassTest.ProductsOf*"},
    {"test_fuzz", kKernels, "*"},
    {"test_host", kCpuKernels, "AnySize.*", "AnySize.Gather*:AnySize.TheArena*:AnySize.ASize*"},
    {"test_host", kLibraryMatmul, "AnySize.ProductsOfPermuted*"},
    {"test_numpy", kCpuKernels, "*"},
    {"test_device_cpu_orc", kCpuKernels, "*"},
    {"test_device_cuda", kCpuKernels, "NoStream.*:GpuPrograms.CollectivesRunBesideKernels:GpuPrograms.OfSeveral*"},
    {"test_device_cpu_onednn", kCpuKernels, "*", "Contraction.*"},
    {"test_multidevice", kCpuKernels,
     "Symbolic.*:Models.SumsReducedInFloat*:Uneven.TheWholeIsKnown*:ShapesOnAnotherDevice.*"},
    {"test_multidevice", kKernels, "*"},
    {"test_multidevice", kNoLauncher, "Symbolic.Costs*:Uneven.*"},
    {"test_multidevice", kLibraryMatmul,
     "Attention.IsOneKernelBetweenLibraryCalls:ShardedWeights.NoRankHoldsMoreThanItsPartsAndTwoLayers"},
    {"test_multidevice_transport", kCpuKernels,
     "TeamsTest.AProgram*:*/AgreementTest.*Plans*:*/AgreementTest.*Program*:*/WarmAgreementTest.*"},
    {"test_multidevice_transport", kCpuKernels, "*/OverlapFailureTest.*"},
    {"test_multidevice_transport", kNoLauncher,
     "LoopbackTest.*:NetworkRejoinTest.*:NetworkWatch.*:WaitingClock.*:Socket.*:HandshakeTest.*:DescriptorExchange.*"},
    {"test_multidevice_transport_hosts", kCpuKernels,
     "AcrossHosts.AProgram*:AcrossHosts.AGradient*:HostsTest.StartedBy*"},
    {"test_nvfuser_shape", kCpuKernels, "PortsOf*", "PortsOfCollectives.*"},
    {"test_nvfuser_shape", kLibraryMatmul, "PortsOfSharding.ALinearAndAViewOfItsHeads"},
    {"test_segment", kLibraryMatmul,
     "Segmentation.ResultsBetweenKernelsAreWrittenOnceInTheirNarrowType:"
     "Segmentation.MlpIsTwoLibraryCallsWithOneKernelBetween:Segmentation.EpilogueAfterALibraryCallIsOneKernel:"
     "Segmentation.ViewsOfResultsCostNothing:Segmentation.NothingWaitsForItself:"
     "Siblings.AKernelThatWaitsForTheOtherStaysAfterIt:Siblings.KernelsBesideALibraryCallJoin"},
    {"test_stress", kCpuKernels, "*"},
    {"test_tools", kCpuKernels,
     "ToolCalibrate.WritesA*:ToolCalibrate.MeasuresThe*:ToolExplain.PrintsPredicted*:"
     "ToolRun.*:ToolCompile.WritesKernelsForThisMachine:ToolCompile.ThePerRankProgramIsNoProgramToRun:"
     "ToolCompile.RefusesWhatItCannotDo:ToolCompile.PrintsEachStep:ToolCompile.PrintsViewsAndStepsWithoutElements:"
     "ToolCommandLine.OutputThatCannotBeWrittenIsAFailure:ToolPlan.WritesAProgram*:ToolPlan.AnEditedPlan*:ToolPlan."
     "AProgramForAny*:"
     "ToolCommandLine.NamesOfDumpedPassesAreChecked:ToolPage.Timeline*:Install.AProjectOutside*:*/"
     "CompiledKernels.*",
     "ToolRun.Refuses*"},
    {"test_tools", kLibraryMatmul,
     "ToolPlan.ThePlanIsSimulated:ToolOpt.PassesOverTheLocalProgram:ToolCompile.PrintsEachStep:ToolCompile."
     "PrintsViewsAndStepsWithoutElements"},
};

bool matches(const std::string& name, const char* patterns) {
  std::istringstream list(patterns);
  for (std::string pattern; std::getline(list, pattern, ':');) {
    if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0) {
      return true;
    }
  }
  return false;
}

class Skipper : public testing::EmptyTestEventListener {
 public:
  explicit Skipper(std::string binary) : binary_(std::move(binary)) {}
  // A test that is skipped here does not run.
  void OnTestStart(const testing::TestInfo& test) override {
    const std::string name = std::string(test.test_suite_name()) + "." + test.name();
    for (const Row& row : kRows) {
      if (row.binary == binary_ && !row.requirement.met && matches(name, row.tests) && !matches(name, row.except)) {
        GTEST_SKIP() << row.requirement.reason;
      }
    }
  }

 private:
  std::string binary_;
};

}  // namespace

void skipWhatThisBuildLacks() {
  // owned by GoogleTest
  testing::UnitTest::GetInstance()->listeners().Append(
      new Skipper(std::filesystem::read_symlink("/proc/self/exe").filename().string()));
}

}  // namespace meshfuse
