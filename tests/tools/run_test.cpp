// meshfuse run: results, exit codes, and what it says of bad input.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tensor/npy.h"
#include "tools/tool.h"

namespace meshfuse {
namespace {

void expectRunRefused(const std::string& arguments, const std::string& message) {
  SCOPED_TRACE(arguments);
  const ToolRun run = tool(arguments);
  EXPECT_EQ(run.code, 2) << run.out << run.err;
  EXPECT_EQ(run.out, "");
  expectContains(run.err, message);
}

TEST(ToolRun, AReshapeThatHidesADigit) { EXPECT_EQ(tool("run {dir}/rows_on_two_ranks.fir --verify").code, 0); }

TEST(ToolRun, WindowsOfDimsThatAMeshOfAnySizeDoesNotDivide) {
  for (const char* ranks : {"1", "2", "3", "4"}) {
    for (const char* rows : {"1", "2", "5", "8", "11"}) {
      const ToolRun run =
          tool(std::string("run {dir}/joined_rows_of_any_size.fir --verify --mesh x=") + ranks + " --size i0=" + rows);
      EXPECT_EQ(run.code, 0) << ranks << " ranks, " << rows << " rows\n" << run.out << run.err;
    }
  }
}

// log(exp(x)) equals x or not, as it is rounded: no difference, and no proof.
TEST(ToolRun, ElementsThatRoundingDecidesAreNoDifference) {
  const std::string path = temporaryDirectory() + "/decided_by_rounding.fir";
  std::ofstream(path) << R"(fusion {
  T0 = input() : Float[64] contiguity[t]
  T1 = exp(T0) : Float[64]
  T2 = log(T1) : Float[64]
  T3 = eq(T2, T0) : Bool[64]
  output T3
})";
  const ToolRun run = tool("run --verify " + path);
  EXPECT_EQ(run.code, 0) << run.err;
  expectContains(run.out, "verify: for 64 of 64 elements of T3 rounding decides the result");
  expectContains(run.out, "the outputs agree with the reference interpreter, as far as it can tell");
}

TEST(ToolRun, OneRankAgreesWithTheReference) {
  const ToolRun run = tool("run {dir}/softmax.fir --size i0=30 --size i1=100 --verify");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.err, "");
  expectContains(run.out, "T7 Float[30, 100] on every rank: checksum ");
  expectContains(run.out, "kernel normalization T7[30, 100]: reduce, broadcast, sub, exp, reduce, broadcast, div\n");
  expectContains(run.out, "the outputs agree with the reference interpreter");
  EXPECT_EQ(run.out.find('\033'), std::string::npos) << "colours where there is no terminal";
}

TEST(ToolRun, ShardedSumIsOneKernelAndOneAllReduce) {
  const ToolRun run = tool("run {dir}/sharded_sum.fir --ranks 4 --verify");
  EXPECT_EQ(run.code, 0) << run.err;
  expectContains(run.out, "T2 Float[3] R on {x: 4}[0, 1, 2, 3]: checksum ");
  expectContains(run.out, "all-reduce T2[3] among [0, 1, 2, 3]: ");
  expectContains(run.out, "kernel reduction T5[r{2}, 3]: add, reduce\n");
  expectContains(run.out, "agree with the reference");
}

// Three elements among four ranks: rank 0 combines none of them, and receives the three sums.
TEST(ToolRun, SaysWhyPlannedAndCountedBytesDiffer) {
  const ToolRun run = tool("run {dir}/sharded_sum.fir");
  expectContains(run.out,
                 "  planned 18 bytes, counted by the transport 12 bytes\n  they differ: an all-reduce is planned as ");
  const ToolRun exact = tool("run {dir}/rows_to_columns.fir");
  EXPECT_EQ(exact.out.find("they differ"), std::string::npos) << exact.out;
}

TEST(ToolRun, RanksFollowFromTheMesh) {
  for (const char* file : {"two_meshes.fir", "tensor_parallel_mlp.fir --size i0=12", "rows_to_columns.fir",
                           "column_and_row_sums.fir", "neighbours.fir"}) {
    const ToolRun run = tool(std::string("run --verify {dir}/") + file);
    EXPECT_EQ(run.code, 0) << file << "\n" << run.out << run.err;
  }
}

TEST(ToolRun, SizesOfTheMeshAreGiven) {
  for (const char* flags : {"--mesh tp=1", "--mesh tp=2", "--ranks 3", "--mesh tp=4 --ranks 4"}) {
    const ToolRun run = tool(std::string("run --verify {dir}/mlp_of_any_size.fir ") + flags);
    EXPECT_EQ(run.code, 0) << flags << "\n" << run.out << run.err;
  }
  const ToolRun half = tool("run --verify {dir}/mesh_without_ranks.fir --size i0=8 --ranks 4");
  EXPECT_EQ(half.code, 0) << half.err;
}

TEST(ToolRun, TheSeedMakesTheInputs) {
  const std::string softmax = "run {dir}/softmax.fir --size i0=4 --size i1=8";
  EXPECT_EQ(tool(softmax).out, tool(softmax + " --seed 0").out);
  EXPECT_NE(tool(softmax).out, tool(softmax + " --seed 1").out);
}

TEST(ToolRun, ReadsAndWritesFiles) {
  const Tensor x = Tensor::of({1, 2, 3, 4, 5, 6}, {2, 3});
  writeNpy(temporaryDirectory() + "/x.npy", x);
  const ToolRun run = tool("run {dir}/softmax.fir --input T0={tmp}/x.npy --save {tmp}/out");
  ASSERT_EQ(run.code, 0) << run.err;
  const Tensor y = readNpy(temporaryDirectory() + "/out/T7.npy");
  ASSERT_EQ(y.numel(), 6);
  const double e[] = {0.09003057, 0.24472847, 0.66524096};
  for (int64_t i = 0; i < 6; i++) {
    EXPECT_NEAR(y.at({i / 3, i % 3}), e[i % 3], 1e-6);
  }
}

TEST(ToolRun, SavesFilesWithTheNamesOfOutputs) {
  writeNpy(temporaryDirectory() + "/x.npy", Tensor::of({1, 2}, {2}));
  const ToolRun run = tool("run {dir}/named_outputs.fir --input x={tmp}/x.npy --verify --save {tmp}/names");
  ASSERT_EQ(run.code, 0) << run.err;
  const std::map<std::string, std::vector<double>> expected = {
      {"doubled", {2, 4}}, {"layer.0_scale_", {-1, -2}}, {"layer.0_scale", {3, 4}}, {"T5", {5, 6}}};
  for (const auto& [file, values] : expected) {
    EXPECT_EQ(readNpy(temporaryDirectory() + "/names/" + file + ".npy").toVector(), values) << file;
  }
  EXPECT_NE(run.out.find("  doubled Float[2]"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("  layer.0/scale Float[2]"), std::string::npos) << run.out;
}

TEST(ToolRun, KnowsInputsAndOutputsByName) {
  writeNpy(temporaryDirectory() + "/named.npy", Tensor::of({1, 2, 3, 4}, {1, 4}));
  writeNpy(temporaryDirectory() + "/twice.npy", Tensor::of({2, 4, 6, 8}, {1, 4}));
  const ToolRun run = tool("run {dir}/named.fir --input x={tmp}/named.npy --input scale=2 --expect y={tmp}/twice.npy");
  EXPECT_EQ(run.code, 0) << run.err;
  const ToolRun explained = tool("explain {dir}/named.fir --size i0=2");
  EXPECT_NE(explained.out.find("T0 x "), std::string::npos) << explained.out;
  EXPECT_NE(explained.out.find("T2 y "), std::string::npos) << explained.out;
}

TEST(ToolRun, DifferenceIsExitCodeOne) {
  writeNpy(temporaryDirectory() + "/x.npy", Tensor::of({1, 2, 3, 4, 5, 6}, {2, 3}));
  writeNpy(temporaryDirectory() + "/right.npy",
           Tensor::of({0.09003057, 0.24472847, 0.66524096, 0.09003057, 0.24472847, 0.66524096}, {2, 3}));
  writeNpy(temporaryDirectory() + "/wrong.npy",
           Tensor::of({0.09003057, 0.24472847, 0.66524096, 0.09003057, 0.25, 0.66524096}, {2, 3}));
  const std::string command = "run {dir}/softmax.fir --input T0={tmp}/x.npy --expect T7={tmp}/";
  EXPECT_EQ(tool(command + "right.npy").code, 0);
  const ToolRun run = tool(command + "wrong.npy");
  EXPECT_EQ(run.code, 1);
  EXPECT_EQ(run.err, "");
  expectContains(run.out, "verify: T7 differs from the file: ");
  expectContains(run.out, "[1, 1]");
}

TEST(ToolRun, ScalarsIndicesAndResultsInPlace) {
  const ToolRun run =
      tool("run {dir}/scaled_embedding.fir --input S2=0.5 --verify --profile --profile-json {tmp}/profile.json");
  EXPECT_EQ(run.code, 0) << run.err;
  expectContains(run.out, "times of rank 0, the shortest of 5 calls\nrank 0: ");
  expectContains(fileText(temporaryDirectory() + "/profile.json"), "{\"rank\":0,\"seconds\":0.");
}

TEST(ToolRun, RanksMayHaveNothing) {
  const ToolRun run = tool("run {dir}/uneven_rows.fir --verify");
  EXPECT_EQ(run.code, 0) << run.err;
  expectContains(run.out, "all-to-all-v");
}

// A directory that cannot be made, is none, or is open to others: kernels are compiled, and one line says why none is kept.
TEST(ToolRun, WithoutADiskCacheIfItsDirectoryCannotBeUsed) {
  const std::string file = temporaryDirectory() + "/no_directory";
  std::ofstream(file) << "x";
  for (const std::string& directory : {file, file + "/below", std::string("/proc/none/cache"), std::string("/tmp")}) {
    const ToolRun run =
        tool("run {dir}/softmax.fir --size i0=4 --size i1=8 --verify", "env MESHFUSE_CACHE_DIR=" + directory);
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_TRUE(run.err.starts_with("meshfuse: kernels are compiled without a disk cache: [disk cache] ")) << run.err;
    EXPECT_EQ(std::ranges::count(run.err, '\n'), 1) << run.err;
  }
}

TEST(ToolRun, RefusesBadInput) {
  expectRunRefused("run {dir}/malformed.fir", "malformed.fir:3:8: there is no op 'addd'");
  expectRunRefused("run {dir}/nothing.fir", "cannot open ");
  expectRunRefused("run {dir}/softmax.fir --size i0=4",
                   "the symbols i1 in the sizes of the inputs have no value; give them: --size i1=128");
  expectRunRefused("run {dir}/softmax.fir --size i0=4 --size i1=four", "i1 is \"four\", expected a number");
  expectRunRefused("run {dir}/softmax.fir --size i0=4 --size i1=4 --size i7=4",
                   "no input has the symbol i7; there are: i0, i1");
  expectRunRefused("run {dir}/misplanned.fir",
                   "the plan in the text of T1[8, 4] does not lead from S0(x) R on {x: 2}[0, 1] to R R on {x: 2}[0, "
                   "1]: the last step, all_to_all(x), ends at "
                   "a different state than R R on {x: 2}[0, 1]; leave out plan=");
  for (const char* how : {"run", "explain"}) {
    const std::string start = std::string(how) + " {dir}/";
    expectRunRefused(
        start + "one_axis_on_two_dims.fir",
        "T0: DIDx, axis x of {y: 2, x: 2}[0, 1, 2, 3], is bound to two loop dims, 0 and 2; an axis owns one digit of "
        "a tensor: leave one of them serial, or bind it to one that is free: DIDy (y)");
    expectRunRefused(
        start + "axis_of_no_mesh.fir",
        "T0: loop dim 0 is bound to DIDz, but mesh {y: 2, x: 2}[0, 1, 2, 3] has 2 axes; bind it to one of DIDy (y), "
        "DIDx (x)");
    expectRunRefused(start + "rank_twice_in_a_mesh.fir",
                     "[mesh] device 1 is listed twice in [1, 1]; list each rank once");
  }
  expectRunRefused("run {dir}/uneven.fir", "or an uneven part, and the cuts do not nest");
  expectRunRefused("run {dir}/mesh_without_ranks.fir --size i0=4", "mesh axis tp of ");
  expectRunRefused("run {dir}/mlp_of_any_size.fir", "has no size; give it: --mesh tp=4, or --ranks");
  expectRunRefused("run {dir}/mlp_of_any_size.fir --mesh pp=4", "mesh axis tp of ");
  expectRunRefused("run {dir}/mlp_of_any_size.fir --mesh tp=4 --mesh pp=4",
                   "[specialize] no mesh has an axis pp; those of symbolic size are: tp");
  expectRunRefused("run {dir}/mlp_of_any_size.fir --mesh tp=4 --ranks 3", "got --ranks 3; give --ranks 4");
  expectRunRefused("run {dir}/mesh_without_ranks.fir --size i0=4 --ranks 3", "3 ranks are no multiple of the 2 along");
  expectRunRefused("run {dir}/sharded_sum.fir --mesh x=3", "axis x of {x: 4}[0, 1, 2, 3] has size 4, got 3");
  expectRunRefused("run {dir}/sharded_sum.fir --ranks 3", "give --ranks 4");
  expectRunRefused("run {dir}/sharded_sum.fir --ranks -1", "--ranks is -1");
  expectRunRefused("run {dir}/scaled_embedding.fir --input S2=half", "S2 is \"half\", expected a number");
  expectRunRefused("run {dir}/scaled_embedding.fir --input T9=x.npy", "the program has no input T9");
  expectRunRefused("run {dir}/named.fir --size i0=2 --input scal=1",
                   "no input scal; did you mean scale?; it has: input x (T0), input scale (S1)");
  expectRunRefused("run {dir}/named.fir --size i0=2 --input scale=1 --input S1=2", "gives input scale (S1) twice");
  expectRunRefused("run {dir}/named.fir --size i0=2 --expect x=y.npy",
                   "no output x; did you mean y?; it has: output y (T2)");
  expectRunRefused("run {dir}/softmax.fir --input T0={dir}/softmax.fir", "softmax.fir");
  expectRunRefused("run {dir}/softmax.fir --expect T3=x.npy --size i0=4 --size i1=4", "the program has no output T3");
}

TEST(ToolRun, RefusesFilesThatDoNotFit) {
  writeNpy(temporaryDirectory() + "/three.npy", Tensor::zeros({2, 3, 4}, DataType::Float));
  writeNpy(temporaryDirectory() + "/double.npy", Tensor::zeros({2, 3}, DataType::Double));
  writeNpy(temporaryDirectory() + "/small.npy", Tensor::zeros({4, 3}, DataType::Float));
  expectRunRefused("run {dir}/softmax.fir --input T0={tmp}/three.npy", "has 2 dims, the array in ");
  expectRunRefused("run {dir}/softmax.fir --input T0={tmp}/double.npy", "has type Float, the file ");
  expectRunRefused("run {dir}/sharded_sum.fir --input T0={tmp}/small.npy", "dim 0 of input 0 (T0");
}

TEST(ToolRun, ProcessesOfALauncher) {
  if (std::system("command -v mpirun >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "no mpirun";
  }
  const std::string launcher = "mpirun --allow-run-as-root --oversubscribe --bind-to none -np 2";
  const ToolRun run = tool("run {dir}/tensor_parallel_mlp.fir --mpi --size i0=8 --verify", launcher);
  EXPECT_EQ(run.code, 0) << run.out << run.err;
  expectContains(run.out, "all-reduce ");
  expectContains(run.out, "agree with the reference");
  EXPECT_EQ(run.out.find("outputs\n"), run.out.rfind("outputs\n")) << "one rank prints:\n" << run.out;
  const std::string chosen = "run {dir}/tensor_parallel_mlp.fir --mpi --size i0=8 --verify --algorithms all-reduce=";
  EXPECT_EQ(tool(chosen + "staged", launcher).code, 0);
  const ToolRun unknown = tool(chosen + "stagd", launcher);
  EXPECT_NE(unknown.code, 0);
  expectContains(unknown.err, "stagd");
  expectContains(unknown.err, "staged");
  const ToolRun wrong = tool("run {dir}/sharded_sum.fir --mpi", launcher);
  EXPECT_EQ(wrong.code, 2);
  expectContains(wrong.err, "the meshes of the program have 4 ranks, but the launcher started 2 processes");
}

TEST(ToolRun, TakesThreadsAndADeadline) {
  const std::string run = "run {dir}/softmax.fir --size i0=4 --size i1=8 ";
  EXPECT_EQ(tool(run + "--verify --threads 2").code, 0);
  EXPECT_EQ(tool(run + "--verify", "env MESHFUSE_THREADS=3").code, 0);
  expectContains(tool(run, "env MESHFUSE_THREADS=x").err, "MESHFUSE_THREADS is \"x\", expected a number of threads");
  expectContains(tool(run + "--threads 0").err, "--threads: Value 0 not in range 1 to 4096");
  expectContains(tool(run + "--deadline 1").err, "--deadline requires --mpi");
  expectContains(tool(run + "--algorithms all-reduce=staged").err, "--algorithms requires --mpi");
  // of two ranks that the other one never joins
  const std::string alone =
      "timeout 60 env -u PMIX_RANK -u PMIX_NAMESPACE RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29741 ";
  expectContains(tool(run + "--mpi --deadline 1", alone + "MESHFUSE_DEADLINE=90").err, "within 1000 ms");
  expectContains(tool(run + "--mpi", alone + "MESHFUSE_DEADLINE=1").err, "within 1000 ms");
  expectContains(tool(run + "--mpi", alone + "MESHFUSE_DEADLINE=1s").err,
                 "MESHFUSE_DEADLINE is \"1s\", expected a number of seconds");
}

TEST(ToolRun, SaysThatTheLauncherHasBoundItToOneCore) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof cores, &cores);
  if (CPU_COUNT(&cores) < 2 || std::system("command -v taskset >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "one core, or no taskset";
  }
  int64_t core = 0;
  while (!CPU_ISSET(core, &cores)) {
    core++;
  }
  const std::string run = "run {dir}/softmax.fir --size i0=4 --size i1=8 --mpi";
  const std::string rank = "env -u PMIX_RANK -u PMIX_NAMESPACE RANK=0 WORLD_SIZE=1 ";
  const std::string said = tool(run, rank + "taskset -c " + std::to_string(core)).err;
  expectContains(said, "the launcher has bound rank 0 to one of ");
  expectContains(said, "mpirun --bind-to none, or srun --cpu-bind=none");
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  EXPECT_EQ(tool(run, rank).err, "");
}

// One process of the picture a rank, its spans in rows; what collectives received is what the tool counted.
void expectTrace(const std::string& path, int ranks, int64_t bytesOfRankZero) {
  std::ifstream file(path);
  const nlohmann::json j = nlohmann::json::parse(file);
  std::map<int, std::map<int, std::vector<std::pair<double, double>>>> rows;
  std::map<int, int64_t> bytes;
  std::map<std::pair<int, int>, std::string> names;
  for (const auto& e : j["traceEvents"]) {
    if (e["name"] == "thread_name") {
      names[{e["pid"], e["tid"]}] = e["args"]["name"];
    }
    if (e["ph"] == "X") {
      rows[e["pid"]][e["tid"]].push_back({e["ts"], e["ts"].get<double>() + e["dur"].get<double>()});
      EXPECT_EQ(e["cat"], (names[{e["pid"], e["tid"]}])) << e;
      bytes[e["pid"]] += e["args"].value("bytes_received", 0);
    }
  }
  ASSERT_EQ(rows.size(), ranks);
  for (auto& [rank, own] : rows) {
    EXPECT_GE(own.size(), 3u) << "calls, kernels and collectives of rank " << rank;
    for (auto& [row, spans] : own) {
      std::sort(spans.begin(), spans.end());
      for (size_t k = 1; k < spans.size(); k++) {
        EXPECT_LE(spans[k - 1].second, spans[k].first + 1e-4) << "in row " << row << " of rank " << rank;
      }
    }
  }
  EXPECT_EQ(bytes[0], bytesOfRankZero);
}

TEST(ToolRun, TraceOfVirtualRanks) {
  const ToolRun run = tool("run {dir}/rows_to_columns.fir --trace {tmp}/trace.json");
  EXPECT_EQ(run.code, 0) << run.err;
  expectContains(run.out, "counted by the transport 0 bytes");  // rank 0 keeps what it has
  expectTrace(temporaryDirectory() + "/trace.json", 4, 0);
  const ToolRun nowhere = tool("run {dir}/softmax.fir --size i0=4 --size i1=4 --trace /proc/nowhere");
  EXPECT_EQ(nowhere.code, 2);
  expectContains(nowhere.err, "cannot write /proc/nowhere");
}

TEST(ToolRun, TraceOfProcesses) {
  if (std::system("command -v mpirun >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "no mpirun";
  }
  const ToolRun run = tool("run {dir}/tensor_parallel_mlp.fir --mpi --size i0=8 --trace {tmp}/mpi.json",
                           "mpirun --allow-run-as-root --oversubscribe --bind-to none -np 2");
  EXPECT_EQ(run.code, 0) << run.out << run.err;
  expectContains(run.out, "counted by the transport 512 bytes");
  expectTrace(temporaryDirectory() + "/mpi.json", 2, 512);
}

TEST(ToolRun, TraceThatTheEnvironmentAsksFor) {
  const std::string trace = temporaryDirectory() + "/environment.json";
  ASSERT_EQ(setenv("MESHFUSE_TRACE", trace.c_str(), 1), 0);
  const ToolRun run = tool("run {dir}/sharded_sum.fir");
  unsetenv("MESHFUSE_TRACE");
  EXPECT_EQ(run.code, 0) << run.err;
  for (int rank = 0; rank < 4; rank++) {
    std::ifstream file(temporaryDirectory() + "/environment.rank" + std::to_string(rank) + ".json");
    const nlohmann::json j = nlohmann::json::parse(file);
    for (const auto& e : j["traceEvents"]) {
      EXPECT_EQ(e["pid"], rank);
      EXPECT_TRUE(e["ph"] == "M" || (e["ts"].get<double>() >= 0 && e["ts"].get<double>() < 9007199254741.0));
    }
    EXPECT_GT(j["traceEvents"].size(), 8u);
  }
}

}  // namespace
}  // namespace meshfuse
