// The command line: flags, help, exit codes. Each subcommand is in the file of its name.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/error.h"
#include "meshfuse_config.h"
#include "tools/options.h"
#include "tools/terminal.h"

namespace meshfuse {

namespace {

constexpr const char* kExitCodes =
    "Exit codes: 0 success; 1 results differ from the reference; 2 bad input or command line; 3 internal or device "
    "failure.\n"
    "Environment: MESHFUSE_DUMP=PASS,.. or all, MESHFUSE_VERIFY=first|always, MESHFUSE_PRINT_MISSES=1, "
    "MESHFUSE_CACHE_DIR=DIR|off,\n"
    "NO_COLOR=1.";

void addProgram(CLI::App& command, ProgramOptions& program, bool fileRequired = true) {
  CLI::Option* file = command.add_option("FILE", program.file, "program in the text form, .fir");
  if (fileRequired) {
    file->required();
  }
  command.add_option("--size", program.sizes, "value of a symbol in the inputs' extents: i0=128; may be repeated")
      ->allow_extra_args(false);
  command
      .add_option("--input", program.inputs, "T0=FILE.npy, the global tensor, or S1=0.5 for a scalar; may be repeated")
      ->allow_extra_args(false);
}

void addRun(CLI::App& app, RunOptions& o) {
  CLI::App* c =
      app.add_subcommand("run", "run a program on several ranks and print its outputs, collectives and kernels");
  addProgram(*c, o.program);
  c->add_option("--ranks", o.ranks,
                "virtual ranks, threads of this process; default: as many as the program's mesh has devices");
  c->add_flag("--mpi", o.mpi, "the ranks are the processes of mpirun or another launcher");
  c->add_option("--seed", o.program.seed, "of inputs that are not given: random values")->capture_default_str();
  c->add_flag("--verify", o.verify, "compare the outputs with the reference interpreter; exit code 1 if one differs");
  c->add_option("--expect", o.expected,
                "T5=FILE.npy: compare this output with a file, within the bounds of the op's rounding; may be repeated")
      ->allow_extra_args(false);
  c->add_flag("--profile", o.profile, "run once more and print the time of each step");
  c->add_option("--save", o.saveTo, "directory for the outputs as .npy files");
  c->footer(std::string("Examples:\n"
                        "  meshfuse run mlp.fir --ranks 4 --verify\n"
                        "  meshfuse run softmax.fir --size i0=128 --size i1=1000 --profile\n"
                        "  meshfuse run mlp.fir --input T0=x.npy --expect T5=y.npy --save out\n"
                        "  mpirun -np 4 meshfuse run mlp.fir --mpi --verify\n") +
            kExitCodes);
}

void addExplain(CLI::App& app, ExplainOptions& o) {
  CLI::App* c =
      app.add_subcommand("explain", "print shardings, edges, collectives, kernels and memory, with the reasons");
  addProgram(*c, o.program);
  c->add_option("--ranks", o.ranks, "number of ranks; default: as many as the program's mesh has devices");
  c->add_flag("--json", o.json, "as JSON");
  c->footer(std::string("Examples:\n"
                        "  meshfuse explain mlp.fir --ranks 4\n"
                        "  meshfuse explain mlp.fir --json | jq .communications\n") +
            kExitCodes);
}

void addOpt(CLI::App& app, OptOptions& o) {
  CLI::App* c = app.add_subcommand("opt", "apply named passes to a program and print the result");
  addProgram(*c, o.program, false);
  c->add_option("--pass", o.passes, "names separated by commas, applied in this order; all: the whole pipeline")
      ->delimiter(',')
      ->allow_extra_args(false);
  c->add_flag("--print-pipeline", o.printPipeline, "print the passes in order, with the reason for their places");
  c->footer(std::string("Examples:\n"
                        "  meshfuse opt --print-pipeline\n"
                        "  meshfuse opt mlp.fir --pass=propagate-shardings\n"
                        "  meshfuse opt mlp.fir --pass=all --size i0=128\n") +
            kExitCodes);
}

void addCompile(CLI::App& app, EmitOptions& o) {
  CLI::App* c = app.add_subcommand("compile",
                                   "write the kernels of a program as files: .tile, and .cu and .cubin, or .ll and .s");
  addProgram(*c, o.program);
  c->add_option("--arch", o.arch, "cpu, or a GPU's architecture; no GPU is needed")->capture_default_str();
  c->add_option("-o", o.directory, "directory to write to")->capture_default_str();
  c->footer(std::string("Examples:\n"
                        "  meshfuse compile softmax.fir --size i0=128 --size i1=1000 --arch sm_90a -o kernels\n"
                        "  meshfuse compile mlp.fir --arch cpu -o kernels\n") +
            kExitCodes);
}

int commandLine(int argc, char** argv) {
  CLI::App app{"meshfuse: a JIT fusion executor with multi-device scheduling", "meshfuse"};
  app.set_version_flag("--version", kVersion);
  app.require_subcommand(1);
  app.footer(std::string("meshfuse SUBCOMMAND --help says more, with examples.\n") + kExitCodes);
  RunOptions run;
  ExplainOptions explain;
  OptOptions opt;
  EmitOptions emit;
  addRun(app, run);
  addExplain(app, explain);
  addOpt(app, opt);
  addCompile(app, emit);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);  // help and version are no errors
    return code == 0 ? kSuccess : kBadInput;
  }
  if (app.got_subcommand("run")) {
    return runProgram(run);
  }
  if (app.got_subcommand("explain")) {
    return explainProgram(explain);
  }
  if (app.got_subcommand("opt")) {
    check(opt.printPipeline || !opt.program.file.empty(), "[opt] no file given; expected FILE or --print-pipeline");
    return optimizeProgram(opt);
  }
  return compileProgram(emit);
}

}  // namespace

}  // namespace meshfuse

int main(int argc, char** argv) {
  using namespace meshfuse;
  const Terminal terminal(STDERR_FILENO);
  auto say = [&](std::string_view kind, const char* what) {
    std::fflush(stdout);
    fmt::print(stderr, "{} {}\n", terminal.bad(fmt::format("meshfuse: {}:", kind)), what);
  };
  try {
    return commandLine(argc, argv);
  } catch (const UserError& e) {
    say("error", e.what());
    return kBadInput;
  } catch (const DeviceError& e) {
    say("device error", e.what());
    return kFailure;
  } catch (const std::exception& e) {
    say("internal error", e.what());
    return kFailure;
  }
}
