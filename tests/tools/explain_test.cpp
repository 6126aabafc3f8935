// meshfuse explain, opt and compile.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "device/cuda/capabilities.h"
#include "preseg_passes/table.h"
#include "segment/table.h"
#include "tools/tool.h"

namespace meshfuse {
namespace {

TEST(ToolExplain, SaysWhereTensorsLiveAndWhyTheyMove) {
  const ToolRun run = tool("explain {dir}/sharded_sum.fir --ranks 4");
  EXPECT_EQ(run.code, 0) << run.err;
  expectContains(run.out, "T0   Float[8, 3]  S0(x) R on {x: 4}[0, 1, 2, 3]  local [2, 3]  input\n");
  expectContains(run.out, "T0 -> T1 add: aligned\n");
  expectContains(run.out, "redistribute: comm; the producer is a partial sum over x; by all_reduce(x)\n");
  expectContains(run.out, "all-reduce T2[3] over x among [0, 1, 2, 3]: ");
  expectContains(run.out, "no larger: T5[r{2}, 3] goes to communication\n");
  expectContains(run.out, "  peak ");
}

TEST(ToolExplain, PrintsWhatTheDocumentsShow) {
  const std::string document = fileText(MESHFUSE_SOURCE_DIR "/docs/sharding.md");
  const std::string command = "$ meshfuse explain tests/tools/sharded_sum.fir\n";
  const size_t begin = document.find(command);
  ASSERT_NE(begin, std::string::npos);
  const size_t shown = begin + command.size();
  expectContains(tool("explain {dir}/sharded_sum.fir").out,
                 document.substr(shown, document.find("```", shown) - shown));
}

TEST(ToolExplain, SaysWhyAGroupIsNoLarger) {
  const ToolRun run = tool("explain {dir}/column_and_row_sums.fir");
  EXPECT_EQ(run.code, 0) << run.err;
  expectContains(run.out,
                 "no larger: T3 does not join: T3[32, r{48}] reduces other dims than the reductions before it, and one "
                 "kernel of both needs at least 256 rows\n");
  expectContains(run.out,
                 "collectives, bytes that the busiest rank receives (of an all-reduce: the mean rank)\n  none\n");
}

TEST(ToolExplain, CountsTheBusiestRank) {
  const ToolRun run = tool("explain {dir}/rows_to_columns.fir");  // ranks 0 and 3 keep what they have
  expectContains(run.out, "by slice(x), permute(y, x)\n");
  expectContains(run.out, "permute T2[4, 8] over y, x among [0, 1, 2, 3]: 128 bytes\n");
}

// Also where rank 0 takes no part.
TEST(ToolExplain, CountsWhatOtherRanksReceive) {
  const ToolRun run = tool("explain {dir}/rows_of_the_last_ranks.fir");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out.find("among [1, 2]: 192 bytes\n  all together: 192 bytes"), std::string::npos) << run.out;
}

TEST(ToolExplain, NamesAllAxesOfAPartialSumAndWhatIsNeeded) {
  const ToolRun run = tool("explain {dir}/sums_over_two_axes.fir");
  EXPECT_EQ(run.code, 0) << run.err;
  expectContains(run.out, "redistribute: comm; the producer is a partial sum over a, b; by ");
  expectContains(run.out, "redistribute: comm; dim 0 is held as S0(4:b 3 2:a), needed as S0(b,a); by ");
  expectContains(run.out, "redistribute: comm; dim 0 is held as S0(4:b 3 2:a), needed whole; by all_gather(");
}

TEST(ToolExplain, SaysThatAReshapeHidesADigit) {
  const ToolRun run = tool("explain {dir}/rows_on_two_ranks.fir");
  EXPECT_EQ(run.code, 0) << run.err;
  expectContains(
      run.out,
      "reshape; x of T0[DIDx{4}, 6] is opaque in T1[6, 4]: its digit of dim 0, with stride 6 and size 4, is not "
      "a digit of any dim there\n");
  expectContains(run.out, "redistribute: comm; dim 0 is held as S0(x), needed whole; by all_gather(x)\n");
  expectContains(run.out, "  all together: 72 bytes\n");
}

TEST(ToolExplain, Json) {
  const ToolRun run = tool("explain {dir}/tensor_parallel_mlp.fir --size i0=32 --json");
  ASSERT_EQ(run.code, 0) << run.err;
  const nlohmann::json j = nlohmann::json::parse(run.out);
  ASSERT_EQ(j["communications"].size(), 1u);
  EXPECT_EQ(j["communications"][0]["kind"], "all-reduce");
  EXPECT_EQ(j["communications"][0]["axes"], (std::vector<std::string>{"x"}));
  EXPECT_EQ(j["communications"][0]["team"], (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(j["bytes_received"], 32 * 16 * 4);  // 2 (n - 1) / n of the tensor
  EXPECT_EQ(j["tensors"][1]["sharding"], "S0(x) R on {x: 2}[0, 1]");
  EXPECT_EQ(j["tensors"][1]["local_sizes"], (std::vector<int64_t>{32, 16}));
  EXPECT_GT(j["peak_bytes"], j["arena_bytes"]);
  int comm = 0;
  for (const auto& edge : j["edges"]) {
    comm += edge["relation"] == "comm" ? 1 : 0;
  }
  EXPECT_EQ(comm, 1);
}

TEST(ToolExplain, NeedsNoMemoryForTheTensors) {
  const ToolRun run = tool("explain {dir}/softmax.fir --size i0=1048576 --size i1=1048576");  // 4 TiB
  EXPECT_EQ(run.code, 0) << run.err;
  expectContains(run.out, "peak 8.0 TiB");
}

TEST(ToolOpt, WholePipeline) {
  const ToolRun run = tool("opt {dir}/sharded_sum.fir --pass=all");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.out, R"(fusion {
  mesh M0 {x: 4} [0, 1, 2, 3]
  T0 = input() : Float[2, 3] contiguity[t, t]
  T1 = add(T0, 1.0) : Float[2, 3]
  T5 = reduce(T1, op=sum) : Float[r{2}, 3]
  T2 = communicate(T5, kind=all_reduce, mesh=M0, axes=[0], op=sum) : Float[3]
  output T2
}
)");
}

TEST(ToolOpt, WholePipelineOfAMeshOfAnySize) {
  const ToolRun open = tool("opt {dir}/mlp_of_any_size.fir --pass=all");
  EXPECT_EQ(open.code, 2);
  EXPECT_EQ(open.out, "");
  expectContains(open.err, "[opt] mesh axis tp of ");
  expectContains(open.err, " has no size; give it: --mesh tp=4\n");
  const ToolRun sized = tool("opt {dir}/mlp_of_any_size.fir --pass=all --mesh tp=2");
  EXPECT_EQ(sized.code, 0) << sized.err;
  expectContains(sized.out, "communicate(");
  expectContains(sized.out, "kind=all_reduce, mesh=M0, axes=[0], op=sum) : Float[6, 16]");
  const ToolRun named =
      tool("opt {dir}/mlp_of_any_size.fir --pass=concretize,propagate-shardings,partialize-reductions");
  EXPECT_EQ(named.code, 2);
  expectContains(
      named.err,
      "[opt] partialize-reductions cannot be applied while mesh axes have no sizes: tp; give them: --mesh tp=4");
}

// Programs of every kind: a result, or what the user can mend.
TEST(ToolOpt, WholePipelineOfEverySample) {
  int64_t results = 0;
  for (const auto& entry : std::filesystem::directory_iterator(MESHFUSE_SOURCE_DIR "/tests/tools")) {
    if (entry.path().extension() == ".fir") {
      const ToolRun run = tool("opt --pass=all --size i0=12 --size i1=8 --mesh tp=2 " + entry.path().string());
      const ToolRun plain = tool("opt --pass=all " + entry.path().string());
      EXPECT_TRUE(run.code == 0 || run.code == 2) << entry.path() << "\n" << run.err;
      EXPECT_TRUE(plain.code == 0 || plain.code == 2) << entry.path() << "\n" << plain.err;
      results += run.code == 0 || plain.code == 0 ? 1 : 0;
    }
  }
  EXPECT_GT(results, 10);
}

TEST(ToolOpt, NamedPassesInOrder) {
  const ToolRun run = tool("opt {dir}/softmax.fir --pass=concretize,check-annotations --size i0=6 --size i1=8");
  EXPECT_EQ(run.code, 0) << run.err;
  expectContains(run.out, "T7 = div(T4, T6) : Float[6, 8]\n");
  const ToolRun sharded = tool("opt --pass propagate-shardings {dir}/sharded_sum.fir");
  expectContains(sharded.out, "T1 = add(T0, 1.0) : Float[8, 3] mesh M0 outer_split(0, 4) parallelize(0, DIDx)");
  const ToolRun unknown = tool("opt {dir}/sharded_sum.fir --pass=concretize,propagate");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_EQ(unknown.out, "");
  expectContains(unknown.err, "there is no pass \"propagate\"; there are: concretize, ");
}

TEST(ToolOpt, APassThatNeedsThoseBeforeItSaysSo) {
  for (const char* file : {"sharded_sum.fir", "uneven.fir"}) {
    const ToolRun run = tool(std::string("opt --pass=localize {dir}/") + file);
    EXPECT_EQ(run.code, 2) << run.err;
    EXPECT_EQ(run.out, "");
    expectContains(run.err, "[opt] localize cannot be applied to this program: ");
    expectContains(run.err, "it may rely on passes before it: --pass=concretize,check-annotations,");
    expectContains(run.err, ",plan-redistributions,pack-redistributions,localize");
  }
}

TEST(ToolOpt, SizesComeAfterPropagation) {
  const ToolRun spread = tool("opt {dir}/mlp_of_any_size.fir --pass=propagate-shardings");
  EXPECT_EQ(spread.code, 0) << spread.err;
  expectContains(spread.out, "T4 = tanh(T3) : Float[6, 64] mesh M0 outer_split(1, tp) parallelize(1, DIDx)");
  const ToolRun both = tool("opt {dir}/mlp_of_any_size.fir --pass=propagate-shardings,specialize --mesh tp=4");
  EXPECT_EQ(both.code, 0) << both.err;
  expectContains(both.out, "mesh M0 {tp: 4} [0, 1, 2, 3]");
  expectContains(both.out, "T4 = tanh(T3) : Float[6, 64] mesh M0 outer_split(1, 4) parallelize(1, DIDx)");
}

// As the file of a failed pass asks for it: a program for a class of sizes, with the sizes for which it was planned.
TEST(ToolOpt, PlansAClassForGivenSizes) {
  const std::string passes =
      " --pass=check-annotations,fold-windows,privatize-casts,propagate-shardings,split-scans,merge-top-k,"
      "insert-bounds-checks,partialize-reductions,decompose-reshardings,optimize-reshards,combine-variance,remove-"
      "unneeded-sets,"
      "plan-redistributions";
  const ToolRun run = tool("opt {dir}/rows_of_a_class.fir --size i0.per4=12" + passes);
  EXPECT_EQ(run.code, 0) << run.err;
  expectContains(run.out, "T2 = redistribute(T1, plan=");
  const ToolRun without = tool("opt {dir}/rows_of_a_class.fir" + passes);
  expectContains(without.out, "T2 = redistribute(T1) : ");
  const ToolRun unknown = tool("opt {dir}/rows_of_a_class.fir --size i0=12" + passes);
  EXPECT_EQ(unknown.code, 2);
  expectContains(unknown.err, "no input has the symbol i0");
}

// As the file of a failed pass asks for it: after all passes of its stage before it, the failure is that of the pass.
TEST(ToolOpt, APassThatFailsAfterThoseBeforeItFailsAsInARun) {
  const std::string file = temporaryDirectory() + "/unknown_part.fir";
  std::ofstream(file) << "fusion {\n"
                         "  symbol i0 {lower: 2}\n"
                         "  symbol i1 {lower: 2}\n"
                         "  mesh M0 {x: 2} [0, 1]\n"
                         "  T0 = input() : Float[i0, 4] mesh M0 outer_split(1, 2) parallelize(1, DIDx)\n"
                         "  T3 = input() : Float[i1] mesh M0\n"
                         "  T1 = reduce(T0, op=sum) : Float[p{2}, r{i1}, r{ceilDiv(ceilDiv(i0, i1), 2)}, 4] "
                         "root[r{i0}, 4; outer_split(0, i1), inner_split(1, 2), reorder[2, 0, 1, 3]] mesh M0 "
                         "parallelize(0, DIDx)\n"
                         "  T2 = redistribute(T1, op=sum, dim=0) : Float[r{2}, 4] mesh M0\n"
                         "  output T2\n"
                         "  output T3\n"
                         "}\n";
  const std::string before =
      "check-annotations,fold-windows,privatize-casts,propagate-shardings,split-scans,merge-top-k,insert-bounds-checks,"
      "partialize-reductions,";
  const ToolRun run = tool("opt " + file + " --pass=" + before + "decompose-reshardings");
  EXPECT_EQ(run.code, 3) << run.err;
  expectContains(run.err, "[preseg, decompose-reshardings] ");
  EXPECT_EQ(tool("opt " + file + " --pass=decompose-reshardings").code, 2);
}

TEST(ToolExplain, CostsInTheSizesOfTheMesh) {
  const ToolRun run = tool("explain {dir}/mlp_of_any_size.fir --mesh tp=2");
  EXPECT_EQ(run.code, 0) << run.err;
  expectContains(
      run.out,
      "as functions of tp, for all sizes that lead to these steps\n  bytes that all ranks receive: tp*768 - 768");
}

TEST(ToolOpt, PrintsThePipelineWithReasons) {
  const ToolRun run = tool("opt --print-pipeline");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.out.find("specialize: "), 0u);
  size_t at = run.out.find("\nconcretize: ");
  ASSERT_NE(at, std::string::npos);
  for (const auto& row : presegPasses()) {
    const size_t next = run.out.find("\n" + std::string(row.name) + ": " + std::string(row.reason));
    ASSERT_NE(next, std::string::npos) << row.name << "\n" << run.out;
    EXPECT_GE(next, at);
    at = next;
  }
  EXPECT_GT(run.out.find("\nlocalize: "), at);
  at = run.out.find("\nlocalize: ");
  for (const auto& row : localPasses()) {
    const size_t next = run.out.find("\n" + std::string(row.name) + ": " + std::string(row.reason));
    ASSERT_NE(next, std::string::npos) << row.name << "\n" << run.out;
    EXPECT_GE(next, at);
    at = next;
  }
}

TEST(ToolOpt, PassesOverTheLocalProgram) {
  const ToolRun run = tool("opt {dir}/product_of_transposed.fir --pass=fold-transposes");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.out, R"(fusion {
  T0 = input() : Float[3, 4] contiguity[t, t]
  T1 = input() : Float[5, 4] contiguity[t, t]
  T2 = permute(T1, order=[1, 0]) : Float[4, 5]
  T3 = matmul(T0, T2) : Float[3, 5, r{4}]
  output T3
}
# T2 strides [1, 4] alignment 64 view
)");
}

TEST(ToolCompile, WritesKernelsForAGpuThatIsNotThere) {
  const ToolRun run = tool("compile {dir}/softmax.fir --size i0=64 --size i1=1000 --arch sm_90a -o {tmp}/gpu");
  const std::string base = temporaryDirectory() + "/gpu/00_normalization_T7";
  expectContains(fileText(base + ".tile"), "gpu");
  expectContains(fileText(base + ".cu"), "__global__");
  if (!cudaCapabilities().nvrtc) {
    EXPECT_EQ(run.code, 3);
    expectContains(run.err, "the texts are written, the cubins are not: ");
    GTEST_SKIP() << "no NVRTC";
  }
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(fileText(base + ".cubin").substr(1, 3), "ELF");
  expectContains(run.out, "1 kernel for sm_90a\n");
}

TEST(ToolCompile, WritesKernelsForThisMachine) {
  const ToolRun run = tool("compile {dir}/column_and_row_sums.fir --arch cpu -o {tmp}/cpu");
  EXPECT_EQ(run.code, 0) << run.err;
  expectContains(run.out, "2 kernels for cpu\n");
  expectContains(fileText(temporaryDirectory() + "/cpu/01_reduction_T3.ll"), "define void @kernel");
  EXPECT_FALSE(fileText(temporaryDirectory() + "/cpu/01_reduction_T3.s").empty());
  expectContains(fileText(temporaryDirectory() + "/cpu/local.fir"), "fusion {");
}

TEST(ToolCompile, WritesNothingForAnArchitectureThatIsNot) {
  if (!cudaCapabilities().nvrtc) {
    GTEST_SKIP() << "no NVRTC";
  }
  for (const char* arch : {"sm_999", "sm_75", "sm_9x"}) {
    const ToolRun run =
        tool(std::string("compile {dir}/softmax.fir --size i0=8 --size i1=8 -o {tmp}/none --arch ") + arch);
    EXPECT_EQ(run.code, 2) << run.err;
    EXPECT_EQ(run.out, "");
    expectContains(run.err, std::string("kernels do not compile for \"") + arch + "\"; NVRTC ");
    expectContains(run.err, "sm_90");
    EXPECT_FALSE(std::filesystem::exists(temporaryDirectory() + "/none"));
  }
}

TEST(ToolCompile, ThePerRankProgramIsNoProgramToRun) {
  ASSERT_EQ(tool("compile {dir}/rows_to_columns.fir --arch cpu -o {tmp}/rank").code, 0);
  for (const char* command : {"run", "explain", "compile --arch cpu -o {tmp}/no"}) {
    const ToolRun run = tool(std::string(command) + " {tmp}/rank/local.fir");
    EXPECT_EQ(run.code, 2) << run.out << run.err;
    EXPECT_EQ(run.out, "");
    expectContains(run.err, "local.fir is the local program of one rank: ");
    expectContains(run.err, "give the global program, as written or planned");
  }
  EXPECT_EQ(tool("opt {tmp}/rank/local.fir --pass=fold-transposes").code, 0);
  EXPECT_EQ(tool("run {tmp}/rank/planned.fir --verify").code, 0) << "the planned program is a program";
}

TEST(ToolCompile, RefusesWhatItCannotDo) {
  for (const auto& [arguments, message] : std::initializer_list<std::pair<const char*, const char*>>{
           {"compile {dir}/softmax.fir --size i0=8 --size i1=8 --arch gfx90a -o {tmp}/no",
            "--arch is \"gfx90a\", expected cpu or "},
           {"compile {dir}/softmax.fir --size i0=8 --size i1=8 --arch sm_ -o {tmp}/no",
            "--arch is \"sm_\", expected cpu or "},
           {"compile {dir}/column_and_row_sums.fir --arch cpu -o /proc/nowhere",
            "cannot make the directory /proc/nowhere"},
           {"compile {dir}/softmax.fir --arch cpu", "the symbols i0, i1 in the sizes of the inputs have no value"}}) {
    const ToolRun run = tool(arguments);
    EXPECT_EQ(run.code, 2) << arguments;
    expectContains(run.err, message);
  }
}

}  // namespace
}  // namespace meshfuse
