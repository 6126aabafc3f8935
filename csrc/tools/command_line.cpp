#include "tools/command_line.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/limits.h"
#include "base/nearest_word.h"
#include "base/ranges.h"
#include "meshfuse_config.h"
#include "tensor/device_id.h"

namespace meshfuse {

namespace {

constexpr const char* kExitCodes =
    "Exit codes: 0 success; 1 results differ from the reference; 2 bad input or command line; 3 internal or device "
    "failure.\n"
    "Environment: MESHFUSE_DUMP=PASS,.. or all, MESHFUSE_VERIFY=first|always, MESHFUSE_PRINT_MISSES=1, "
    "MESHFUSE_CACHE_DIR=DIR|off,\n"
    "MESHFUSE_FLIGHT_DIR=DIR, MESHFUSE_TRACE=FILE, MESHFUSE_THREADS=N, MESHFUSE_DEADLINE=SECONDS,\n"
    "MESHFUSE_CUDA_LIBRARIES=DIR, NO_COLOR=1.";

enum class FileArgument : uint8_t { Required, Optional };

// The library reads a number that does not fit as the largest that does.
const CLI::Validator kNumber{[](std::string& text) {
                               int64_t value = 0;
                               const char* const end = text.data() + text.size();
                               const auto read = std::from_chars(text.data(), end, value);
                               return read.ec == std::errc() && read.ptr == end
                                          ? std::string()
                                          : fmt::format("got {}, expected a number of 64 bits", text);
                             },
                             ""};

CLI::Option* addRepeated(CLI::App& command, const std::string& flag, std::vector<std::string>& values,
                         const std::string& help) {
  return command.add_option(flag, values, help)->allow_extra_args(false);
}

void addProgram(CLI::App& command, ProgramOptions& program, FileArgument presence = FileArgument::Required) {
  command.add_option("FILE", program.file, "program in the text form, .fir")
      ->required(presence == FileArgument::Required);
  addRepeated(command, "--size", program.sizes, "value of a symbol in the inputs' extents: i0=128; may be repeated");
  addRepeated(
      command, "--mesh", program.mesh,
      "size of a mesh axis whose size is a symbol: tp=4; may be repeated; --ranks determines the only one not given");
  addRepeated(command, "--input", program.inputs,
              "x=FILE.npy, or T0=FILE.npy by number: the global tensor; scale=0.5 for a scalar; may be repeated");
}

void addDevice(CLI::App& command, std::string& device) {
  command.add_option_function<std::string>(
      "--device",
      [&device](const std::string& text) {
        (void)DeviceId::parse(text);
        device = text;
      },
      "where the ranks run: cpu, cuda (each rank takes a GPU of its host), or one GPU such as cuda:0; default: cpu");
}

void addRun(CLI::App& app, RunOptions& o) {
  CLI::App* c =
      app.add_subcommand("run", "run a program on several ranks and print its outputs, collectives and kernels");
  addProgram(*c, o.program);
  c->add_option("--ranks", o.ranks,
                "virtual ranks, threads of this process; default: as many as the program's mesh has devices")
      ->check(kNumber);
  CLI::Option* mpi = c->add_flag("--mpi", o.mpi, "the ranks are the processes of mpirun or another launcher");
  addDevice(*c, o.device);
  c->add_option("--threads", o.threads,
                "threads of a rank; default: MESHFUSE_THREADS, else its part of the cores of its host")
      ->check(CLI::Range(int64_t{1}, kMostThreads));
  c->add_option("--deadline", o.deadline,
                "with --mpi: seconds that a rank waits for another one; default: MESHFUSE_DEADLINE, else 300")
      ->needs(mpi)
      ->check(CLI::Range(int64_t{1}, kMostDeadlineSeconds));
  c->add_option("--algorithms", o.algorithms,
                "with --mpi: the algorithms of collectives, such as all-reduce:large=staged,broadcast=tree; default: "
                "MESHFUSE_ALGORITHMS")
      ->needs(mpi);
  c->add_option("--seed", o.program.seed, "seed of the random values of inputs that are not given")
      ->check(kNumber)
      ->capture_default_str();
  c->add_flag("--verify", o.verify, "compare the outputs with the reference interpreter; exit code 1 if one differs");
  addRepeated(*c, "--expect", o.expected,
              "T5=FILE.npy: compare this output with a file, within the bounds of the op's rounding; may be repeated");
  c->add_flag("--profile", o.profile,
              "run five times more and print the shortest time of each step, and the bytes that it moves");
  c->add_option("--profile-json", o.profileTo, "the same as JSON, to this file");
  c->add_option(
      "--trace", o.traceTo,
      "run once more and write the kernels, collectives and waits of each rank with their times, as a Chrome trace");
  c->add_option("--save", o.saveTo,
                "directory for the outputs as .npy files, with the names of the outputs, such as T5.npy");
  c->footer(std::string(
                "Examples:\n"
                "  meshfuse run mlp.fir --ranks 4 --verify\n"
                "  meshfuse run mlp_of_any_size.fir --mesh tp=4\n"
                "  meshfuse run softmax.fir --size i0=128 --size i1=1000 --profile\n"
                "  meshfuse run mlp.fir --input T0=x.npy --expect T5=y.npy --save out\n"
                "  meshfuse run mlp.fir --trace run.json           # open it in https://ui.perfetto.dev\n"
                "  meshfuse run softmax.fir --size i0=128 --size i1=1000 --device cuda:0 --verify\n"
                "  mpirun -np 4 meshfuse run mlp.fir --mpi --verify\n"
                "Planned bytes follow from the plan alone; counted bytes are those that rank 0 received through the "
                "transport.\nThey may differ if there is an all-reduce, which is planned as the mean of its ranks.\n") +
            kExitCodes);
}

void addExplain(CLI::App& app, ExplainOptions& o) {
  CLI::App* c =
      app.add_subcommand("explain", "print shardings, edges, collectives, kernels and memory, with the reasons");
  addProgram(*c, o.program);
  c->add_option("--ranks", o.ranks, "number of ranks; default: as many as the program's mesh has devices")
      ->check(kNumber);
  c->add_option("--device", o.device,
                "cpu, a GPU such as cuda:0, or an architecture such as sm_90a, for which no GPU is needed")
      ->capture_default_str();
  c->add_flag("--json", o.json, "as JSON");
  c->add_option("--html", o.html, "write a page with pictures of all of it to this file");
  c->add_flag("--run", o.run, "with a timeline of a run on virtual ranks; for --html and --json");
  CLI::Option* machine =
      c->add_option("--machine", o.machine, "predict the time of each step for this machine; as for meshfuse plan");
  c->add_flag("--measure", o.measure, "measure the times too, on virtual ranks")->needs(machine);
  c->add_option("--seed", o.program.seed, "seed of the random inputs of that run")
      ->check(kNumber)
      ->capture_default_str();
  c->footer(std::string("Examples:\n"
                        "  meshfuse explain mlp.fir --ranks 4\n"
                        "  meshfuse explain mlp.fir --device sm_90a\n"
                        "  meshfuse explain mlp.fir --json | jq .communications\n"
                        "  meshfuse explain mlp.fir --html mlp.html --run\n"
                        "  meshfuse calibrate --ranks 4 -o machine.json\n"
                        "  meshfuse explain mlp.fir --machine machine.json --measure\n") +
            kExitCodes);
}

void addOpt(CLI::App& app, OptOptions& o) {
  CLI::App* c = app.add_subcommand("opt", "apply named passes to a program and print the result");
  addProgram(*c, o.program, FileArgument::Optional);
  addRepeated(*c, "--pass", o.passes, "names separated by commas, applied in this order; all: the whole pipeline")
      ->delimiter(',');
  c->add_flag("--print-pipeline", o.printPipeline, "print the passes in order, with the reason for their places");
  c->footer(std::string("Examples:\n"
                        "  meshfuse opt --print-pipeline\n"
                        "  meshfuse opt mlp.fir --pass=propagate-shardings\n"
                        "  meshfuse opt mlp.fir --pass=all --size i0=128\n") +
            kExitCodes);
}

void addCompile(CLI::App& app, EmitOptions& o) {
  CLI::App* c = app.add_subcommand(
      "compile", "print the steps of a rank and write its kernels as files: .tile, and .cu and .cubin, or .ll and .s");
  addProgram(*c, o.program);
  c->add_option("--arch", o.arch, "cpu, this machine's, or a GPU's architecture; no GPU is needed")
      ->capture_default_str();
  c->add_option("-o", o.directory, "directory to write to")->capture_default_str();
  c->footer(std::string("Examples:\n"
                        "  meshfuse compile softmax.fir --size i0=128 --size i1=1000 --arch sm_90a -o kernels\n"
                        "  meshfuse compile mlp.fir --arch cpu -o kernels\n"
                        "The schedule is made for the architecture. A program with a step that has no kernel there is "
                        "refused.\n") +
            kExitCodes);
}

void addBlame(CLI::App& app, BlameOptions& o) {
  CLI::App* c = app.add_subcommand(
      "blame", "merge the flight records of failed ranks and name the first call that differs between ranks");
  c->add_option("DIR", o.directory, "where the ranks wrote their records")->required();
  c->footer(std::string(
                "Ranks write their last 1,000 calls when one fails, to the directory that MESHFUSE_FLIGHT_DIR names.\n"
                "Example:\n"
                "  MESHFUSE_FLIGHT_DIR=flight mpirun -np 4 meshfuse run mlp.fir --mpi; meshfuse blame flight\n") +
            kExitCodes);
}

void addMachine(CLI::App& command, MachineOptions& o) {
  command.add_option(
      "--machine", o.machine,
      "a100, h100, h200, or a JSON file with the fields of DistributedConfig; the flags below replace fields");
  command.add_option("--machines", o.machines, "number of machines")->check(kNumber);
  command.add_option("--devices", o.devices, "devices of a machine")->check(kNumber);
  command.add_option("--memory", o.memory, "memory of a device: 80GB, 512MB, or bytes");
  command.add_option("--within", o.within, "bytes per second between devices of a machine: 300GB");
  command.add_option("--between", o.between, "bytes per second between machines: 25GB");
}

void addPlan(CLI::App& app, AutoPlanOptions& o) {
  CLI::App* c = app.add_subcommand("plan", "choose the sharding of every tensor for a description of machines");
  c->add_option("FILE", o.program.file, "program in the text form, .fir")->required();
  addRepeated(*c, "--size", o.program.sizes, "value of a symbol in the inputs' extents: i0=128; may be repeated");
  addRepeated(
      *c, "--mesh", o.program.mesh,
      "axes of the mesh, outermost first: dp=2,tp=4, or the sizes of the program's axes of symbolic size; default: the "
      "mesh of the program, or the one or two axes of the fastest plan")
      ->delimiter(',');
  addMachine(*c, o.machine);
  c->add_option("--seconds", o.seconds, "time limit of the search")->capture_default_str();
  c->add_flag("--uneven", o.uneven, "also consider blocks of unequal sizes");
  c->add_flag("--whole-state", o.wholeState, "optimizer state is whole on every rank");
  c->add_option("--micro-batches", o.microBatches,
                "also report the best pipeline for a batch that is split into so many equal parts")
      ->check(kNumber);
  c->add_option("--stages", o.stages,
                "number of stages of the pipeline, each on devices of its own; default: as many as are fastest")
      ->check(kNumber);
  c->add_flag("--json", o.json, "as JSON");
  c->add_option("-o", o.directory,
                "folder for plan.fir, the annotated program, and the report as plan.txt, plan.json and plan.html");
  c->footer(std::string("Examples:\n"
                        "  meshfuse plan mlp.fir --machines 2 --devices 4 --memory 80GB -o out\n"
                        "  meshfuse plan mlp.fir --machines 2 --devices 4 --mesh dp=2,tp=4 --size i0=1024 --json\n"
                        "  meshfuse plan gpt.fir --machines 4 --devices 8 --micro-batches 16 -o out\n"
                        "  meshfuse run out/plan.fir --verify\n") +
            kExitCodes);
}

void addSimulate(CLI::App& app, SimulateOptions& o) {
  CLI::App* c = app.add_subcommand(
      "simulate", "predict a call of an annotated program on all ranks of a description of machines, step by step");
  c->add_option("FILE", o.program.file, "program in the text form, .fir, with annotations: plan.fir")->required();
  addRepeated(*c, "--size", o.program.sizes, "value of a symbol in the inputs' extents: i0=128; may be repeated");
  addRepeated(*c, "--mesh", o.program.mesh, "size of a mesh axis whose size is a symbol: tp=4; may be repeated");
  addMachine(*c, o.machine);
  c->add_flag("--json", o.json, "as JSON");
  c->add_option("-o", o.directory, "folder for simulation.html, the timeline, and steps.txt, the times of all steps");
  c->footer(std::string("Examples:\n"
                        "  meshfuse plan gpt.fir --machines 128 --devices 8 -o out\n"
                        "  meshfuse simulate out/plan.fir --machines 128 --devices 8 -o out\n"
                        "Ranks that hold parts of equal sizes are compiled once. Nothing runs.\n") +
            kExitCodes);
}

void addCalibrate(CLI::App& app, CalibrateOptions& o) {
  CLI::App* c = app.add_subcommand(
      "calibrate", "measure the ranks that are present, and write the description of machines that --machine reads");
  CLI::Option* ranks = c->add_option("--ranks", o.ranks, "virtual ranks, threads of this process")
                           ->check(kNumber)
                           ->capture_default_str();
  c->add_flag("--mpi", o.mpi, "the ranks are the processes of mpirun or another launcher")->excludes(ranks);
  addDevice(*c, o.calibration.device);
  c->add_option("--seconds", o.calibration.seconds, "about how long the measurement takes, without compiling")
      ->capture_default_str();
  c->add_option("-o", o.file, "file to write, JSON")->required();
  c->footer(std::string("Examples:\n"
                        "  meshfuse calibrate --ranks 2 -o machine.json\n"
                        "  mpirun -np 8 meshfuse calibrate --mpi --device cuda -o machine.json\n"
                        "  meshfuse plan mlp.fir --machine machine.json -o out\n"
                        "All ranks measure at the same time. Run nothing else meanwhile.\n") +
            kExitCodes);
}

void addCapabilities(CLI::App& app) {
  CLI::App* c = app.add_subcommand(
      "capabilities",
      "list the libraries and GPUs that this build can use on this machine, and why it cannot use the others");
  c->footer(
      std::string(
          "Without a part, features are missing or slower; a program that needs it ends with an error that names it.\n"
          "Example:\n"
          "  meshfuse capabilities\n") +
      kExitCodes);
}

void expectSubcommand(const CLI::App& app, std::string_view word) {
  const std::vector<std::string> names =
      mapped(app.get_subcommands([](const CLI::App*) { return true; }), &CLI::App::get_name);
  check(word.starts_with('-') || contains(names, word), "[command line] there is no subcommand \"{}\"{}; there are: {}",
        word, nearestWord(word, names), fmt::join(names, ", "));
}

// The error for wrong flags, with a pointer to the help.
std::string refusal(const CLI::App& app, const CLI::ParseError& e) {
  const std::vector<CLI::App*> given = app.get_subcommands();
  const CLI::App& command = given.empty() ? app : *given[0];
  std::string what = e.what();
  for (const std::string& word : command.remaining()) {
    if (word.starts_with("--")) {
      std::vector<std::string> flags;
      for (const CLI::Option* o : command.get_options()) {
        if (!o->get_lnames().empty()) {
          flags.push_back("--" + o->get_lnames()[0]);
        }
      }
      what += nearestWord(word, flags);
    }
  }
  return fmt::format("[command line] {}; {} --help lists the options", what,
                     given.empty() ? "meshfuse" : "meshfuse " + command.get_name());
}

}  // namespace

Command readCommandLine(int argc, const char* const* argv) {
  CLI::App app{"meshfuse: a JIT fusion executor with multi-device scheduling", "meshfuse"};
  app.set_version_flag("--version", kVersion);
  app.require_subcommand(1);
  app.footer(std::string("meshfuse SUBCOMMAND --help says more, with examples.\n") + kExitCodes);
  RunOptions run;
  ExplainOptions explain;
  OptOptions opt;
  EmitOptions emit;
  BlameOptions blame;
  AutoPlanOptions plan;
  addRun(app, run);
  addExplain(app, explain);
  addOpt(app, opt);
  addCompile(app, emit);
  addBlame(app, blame);
  addPlan(app, plan);
  SimulateOptions simulate;
  addSimulate(app, simulate);
  CalibrateOptions calibrate;
  addCalibrate(app, calibrate);
  addCapabilities(app);
  if (argc > 1) {
    expectSubcommand(app, argv[1]);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // help and version
    std::ostringstream text;
    app.exit(e, text);
    return PrintedText{text.str()};
  } catch (const CLI::ParseError& e) {
    throwUserError(refusal(app, e));
  }
  for (const int64_t seed : {run.program.seed, explain.program.seed}) {
    check(seed >= 0, "[command line] --seed is {}, expected 0 or more", seed);
  }
  if (app.got_subcommand("run")) {
    return run;
  }
  if (app.got_subcommand("explain")) {
    return explain;
  }
  if (app.got_subcommand("opt")) {
    check(opt.printPipeline || !opt.program.file.empty(), "[opt] no file given; expected FILE or --print-pipeline");
    return opt;
  }
  if (app.got_subcommand("blame")) {
    return blame;
  }
  if (app.got_subcommand("plan")) {
    return plan;
  }
  if (app.got_subcommand("simulate")) {
    return simulate;
  }
  if (app.got_subcommand("calibrate")) {
    return calibrate;
  }
  if (app.got_subcommand("capabilities")) {
    return CapabilitiesOptions();
  }
  return emit;
}

}  // namespace meshfuse
