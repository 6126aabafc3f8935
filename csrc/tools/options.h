// The options of the command line's subcommands, and the subcommands. command_line.cpp fills in the structs; each function is in the file
// with the name of its subcommand, prints to standard output, returns an exit code and does not catch errors of the library.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "exec/calibrate.h"

namespace meshfuse {

// Exit codes of `meshfuse`.
enum ExitCode : int64_t {
  kSuccess = 0,
  kDifference = 1,  // results differ from the reference
  kBadInput = 2,    // UserError, or wrong flags
  kFailure = 3,     // InternalError, DeviceError
};

// Virtual ranks are threads, and each of them compiles: more ranks would occupy a machine for minutes.
constexpr int64_t kMaxVirtualRanks = 256;

// A .fir file with the sizes and values of its inputs.
struct ProgramOptions {
  std::string file;
  std::vector<std::string> sizes;   // "i0=128"
  std::vector<std::string> inputs;  // "x=x.npy", "T0=x.npy", "S1=0.5"
  std::vector<std::string> mesh;    // "tp=4"
  int64_t seed = 0;
};

struct RunOptions {
  ProgramOptions program;
  std::optional<int64_t> ranks = {};  // default: one more than the highest rank of the program's meshes
  bool mpi = false;
  std::string device = "cpu";            // on which ranks run; as in exec/local_device.h
  int64_t threads = 0;                   // of a rank; 0: the default of ExecutorOptions
  std::string algorithms = {};           // with `mpi`; empty: those of TransportOptions
  std::optional<int64_t> deadline = {};  // seconds, with `mpi`; default: that of TransportOptions
  bool verify = false;
  std::vector<std::string> expected;  // "T5=y.npy"
  bool profile = false;
  std::string profileTo;  // file for the profile as JSON; empty: none
  std::string saveTo;     // directory for the outputs as .npy files; empty: none
  std::string traceTo;    // file for the trace of one more run; empty: none
};

struct ExplainOptions {
  ProgramOptions program;
  std::optional<int64_t> ranks = {};
  std::string device = "cpu";  // for which the ranks compile: cpu, such as cuda:0, or an architecture such as sm_90a
  bool json = false;
  std::string html;      // file for the page; empty: none
  bool run = false;      // with a timeline of a run on virtual ranks
  std::string machine;   // for which times are predicted: a name or a file, see tools/machine_file.h; empty: none are
  bool measure = false;  // measure times too, on virtual ranks
};

struct OptOptions {
  ProgramOptions program;
  std::vector<std::string> passes;
  bool printPipeline = false;
};

struct EmitOptions {
  ProgramOptions program;
  std::string arch = "sm_90a";
  std::string directory = "kernels";
};

struct BlameOptions {
  std::string directory;
};

struct MachineOptions {
  std::string machine;  // a name or a file, see tools/machine_file.h; empty: the defaults of DistributedConfig
  // Instead of those of the description:
  std::optional<int64_t> machines;
  std::optional<int64_t> devices;  // of a machine
  std::string memory;              // "80GB"
  std::string within;              // bandwidth of a device inside a machine, bytes per second: "300GB"
  std::string between;             // the same between machines
};

struct AutoPlanOptions {
  ProgramOptions program;  // `mesh`: the axes in the order given, each with its size
  MachineOptions machine;
  double seconds = 10;  // time limit
  bool uneven = false;
  bool wholeState = false;
  std::optional<int64_t> microBatches;  // also the best pipeline with so many
  std::optional<int64_t> stages;        // of it
  bool json = false;
  std::string directory;  // for plan.fir, plan.txt, plan.json and plan.html; empty: none
};

struct SimulateOptions {
  ProgramOptions program;
  MachineOptions machine;
  bool json = false;
  std::string directory;  // for simulation.html and steps.txt; empty: none
};

struct CalibrateOptions {
  CalibrationOptions calibration;
  int64_t ranks = 1;  // virtual
  bool mpi = false;
  std::string file;
};

struct CapabilitiesOptions {};

[[nodiscard]] int64_t runProgram(const RunOptions& options);
[[nodiscard]] int64_t explainProgram(const ExplainOptions& options);
[[nodiscard]] int64_t optimizeProgram(const OptOptions& options);
[[nodiscard]] int64_t compileProgram(const EmitOptions& options);
[[nodiscard]] int64_t blameRanks(const BlameOptions& options);
[[nodiscard]] int64_t planProgram(const AutoPlanOptions& options);
[[nodiscard]] int64_t simulateRanks(const SimulateOptions& options);
[[nodiscard]] int64_t calibrateMachine(const CalibrateOptions& options);
[[nodiscard]] int64_t listCapabilities(const CapabilitiesOptions& options);

}  // namespace meshfuse
