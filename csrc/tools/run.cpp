// meshfuse run: executes a program on virtual ranks, or on the processes of a launcher.
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include "analysis/pass_context.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/ranges.h"
#include "exec/explain.h"
#include "exec/fusion_executor_cache.h"
#include "exec/local_device.h"
#include "interpret/bounds.h"
#include "ir/fusion.h"
#include "multidevice/sharding/held_part.h"
#include "multidevice/sharding/shard_state.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/host/world.h"
#include "multidevice/transport/loopback/loopback.h"
#include "preseg_passes/check_annotations.h"
#include "preseg_passes/concretize.h"
#include "tensor/npy.h"
#include "tools/output_file.h"
#include "tools/program.h"
#include "tools/terminal.h"
#include "tools/traced_run.h"

namespace meshfuse {

namespace {

constexpr int64_t kProfiledCalls = 5;

// The input of all ranks; immutable while they run.
struct Job {
  const RunOptions& options;
  std::unique_ptr<Fusion> fusion;
  std::vector<Argument> inputs;       // global
  std::map<size_t, Tensor> expected;  // by output
};

struct Output {
  std::string name;
  std::string sharding;
  Tensor global;
  std::string difference;  // between the replicas of one element; empty: none
};

// The report of rank 0.
struct Report {
  std::vector<Output> outputs;
  Explanation explanation;
  int64_t transferred = 0;  // bytes, as counted by the transport
  std::optional<Profile> profile;
  std::string trace;
};

Job prepare(const RunOptions& options, std::optional<int64_t> ranks) {
  Job job{options, loadSizedProgram(options.program, ranks), {}, {}};
  job.inputs = inputValues(*job.fusion, options.program);
  job.expected = expectedOutputs(*job.fusion, options.expected);
  // reports all wrong shardings and sizes before tensors are sharded
  std::unique_ptr<Fusion> sized = concretize(*job.fusion, inputShapes(*job.fusion, options.program));
  PassContext context(*sized);
  checkAnnotations(*sized, context);
  return job;
}

// The global tensor of a result. Replicas of the same elements on several ranks are compared.
Output gather(Communicator& comm, std::string name, const TensorView* tv, const Tensor& part) {
  const Tensor mine = part.to(DeviceId::cpu()).contiguous();
  const ShardState state = shardState(tv);
  std::vector<std::vector<int64_t>> sizes;  // by rank: shards may be uneven
  std::vector<int64_t> bytes;
  std::vector<int64_t> offsets{0};
  for (int64_t rank = 0; rank < comm.size(); rank++) {
    sizes.push_back(heldPart(state, rank).sizes());
    bytes.push_back(dataTypeSize(mine.dtype()) * productOf(sizes.back()));
    offsets.push_back(offsets.back() + bytes.back());
  }
  std::vector<char> all(offsets.back());
  comm.allGatherV(comm.world(), mine.data(), all.data(), bytes, DataType::Bool);
  auto partOf = [&](int64_t rank) {
    return Tensor::wrap(all.data() + offsets[rank], sizes[rank], contiguousStrides(sizes[rank]), mine.dtype());
  };
  auto bytesOf = [](const Tensor& t) { return std::string_view(static_cast<const char*>(t.data()), t.nbytes()); };
  Output out{std::move(name), "on every rank", {}, ""};
  if (!tv->hasDeviceMesh()) {
    out.global = partOf(0).clone();
  } else {
    out.sharding = state.toString();
    out.global = unshardTensor(mapped(tv->getDeviceMesh().devices(), partOf), tv);
  }
  for (int64_t r = 0; r < comm.size() && out.difference.empty(); r++) {
    const Tensor held = shardTensor(out.global, tv, r).contiguous();
    if (bytesOf(held) != bytesOf(partOf(r))) {
      out.difference = fmt::format("rank {} and another one hold different copies of the same elements", r);
    }
  }
  return out;
}

std::vector<Argument> onDevice(DeviceId device, std::vector<Argument> inputs) {
  bool hasTensors = false;
  for (Argument& input : inputs) {
    if (Tensor* const t = std::get_if<Tensor>(&input)) {
      *t = t->to(device);
      hasTensors = true;
    }
  }
  check(hasTensors || device == DeviceId::cpu(),
        "[command line] --device is {}, but the program has no tensor as input: it would run on the CPU; leave "
        "--device out",
        device.toString());
  return inputs;
}

Report runRank(Communicator& comm, const Job& job) {
  const std::vector<Argument> inputs =
      onDevice(localDevice(job.options.device, comm), inputsOfRank(*job.fusion, job.inputs, comm.rank()));
  Trace trace(comm.rank());
  FusionExecutorCache cache(
      job.fusion->clone(),
      {.communicator = &comm, .threads = job.options.threads, .trace = job.options.traceTo.empty() ? nullptr : &trace});
  comm.resetCounters();
  std::vector<Tensor> outputs = cache.runFusionWithInputs(inputs);
  Report report;
  report.transferred = sumOf(comm.counters().of, &TransferCounters::Entry::bytesReceived);
  report.explanation = cache.explain();
  std::shared_ptr<const Fusion> planned = cache.planned();
  for (int64_t i = 0; i < std::ssize(outputs); i++) {
    const std::string& given = job.fusion->outputNames()[i];
    report.outputs.push_back(gather(comm, given.empty() ? fmt::format("T{}", job.fusion->outputs()[i]->id()) : given,
                                    planned->outputs()[i]->asTensor(), outputs[i]));
  }
  if (job.options.profile || !job.options.profileTo.empty()) {
    report.profile = cache.profile(inputs, kProfiledCalls);
  }
  if (!job.options.traceTo.empty()) {
    trace.clear();
    comm.barrier(comm.world());
    (void)cache.runFusionWithInputs(inputs);
    report.trace = gatherTrace(comm, trace);
  }
  return report;
}

std::string summary(const Tensor& t) {
  const int64_t n = t.numel();
  const std::string_view bytes(static_cast<const char*>(t.data()), t.nbytes());
  std::string text = fmt::format("checksum {}", hashText(bytes).hex().substr(0, 16));
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  double total = 0;
  int64_t odd = 0;  // elements that are not finite
  const char* at = bytes.data();
  for (int64_t k = 0; k < n; k++, at += dataTypeSize(t.dtype())) {
    const double value = loadElement(at, t.dtype());
    if (std::isfinite(value)) {
      low = std::min(low, value);
      high = std::max(high, value);
      total += value;
    } else {
      odd++;
    }
  }
  if (odd < n) {
    text += fmt::format(", min {:.6g}, max {:.6g}, mean {:.6g}", low, high, total / static_cast<double>(n - odd));
  }
  return odd == 0 ? text : text + fmt::format(", {} not finite", odd);
}

std::string whyCountsDiffer(const Explanation& e) {
  return std::ranges::count(e.communications, Collective::AllReduce, &ExplainedCommunication::kind) > 0
             ? "they differ: an all-reduce is planned as the mean over its ranks of the algorithm with the fewest "
               "bytes, 2 (n - 1) / n of the tensor;\n  a rank combines one part of it, and parts may be uneven; of a "
               "small tensor a rank may read the whole from every other"
             : "they differ: the run moved fewer or more bytes than planned";
}

void print(const Report& report, const Terminal& terminal) {
  fmt::print("{}\n", terminal.heading("outputs"));
  for (const Output& out : report.outputs) {
    fmt::print("  {} {}[{}] {}: {}\n", out.name, name(out.global.dtype()), fmt::join(out.global.sizes(), ", "),
               out.sharding, summary(out.global));
  }
  const Explanation& e = report.explanation;
  if (!e.communications.empty()) {
    fmt::print("{}\n", terminal.heading("collectives, bytes that rank 0 receives as planned"));
    for (const ExplainedCommunication& c : e.communications) {
      fmt::print("  {} {} among [{}]: {}\n", c.name(), c.tensor, fmt::join(c.team, ", "), bytesText(c.bytesReceived));
    }
    fmt::print("  planned {}, counted by the transport {}\n", bytesText(e.bytesReceived()),
               bytesText(report.transferred));
    if (report.transferred != e.bytesReceived()) {
      fmt::print("  {}\n", whyCountsDiffer(e));
    }
  }
  fmt::print("{}\n", terminal.heading("kernels and library calls of each rank"));
  for (const ExplainedStep& s : e.steps) {
    if (s.kind != "communicate" && s.kind != "view") {
      fmt::print("  {} {}: {}\n", s.kind, s.name, fmt::join(s.ops, ", "));
    }
  }
  if (report.profile) {
    fmt::print("{}\n{}", terminal.heading(fmt::format("times of rank 0, the shortest of {} calls", kProfiledCalls)),
               report.profile->text());
  }
  fmt::print("{} {}\n", terminal.heading("peak memory of rank 0:"), bytesText(e.peakBytes));
}

// True if all results equal those of the reference interpreter, or of the files of --expect.
bool verifyOutputs(const Job& job, const Report& report, int64_t ranks, const Terminal& terminal) {
  std::vector<BoundedTensor> references = interpretWithBounds(*job.fusion, job.inputs, {.partials = ranks});
  bool same = true;
  bool certain = true;
  for (int64_t i = 0; i < std::ssize(report.outputs); i++) {
    const Output& out = report.outputs[i];
    const auto found = job.expected.find(i);
    const Tensor* file = found == job.expected.end() ? nullptr : &found->second;
    if (file == nullptr && !job.options.verify) {
      continue;
    }
    Tensor& expected = references[i].value;
    std::string difference = out.difference;
    if (file != nullptr && !std::ranges::equal(file->sizes(), expected.sizes())) {
      difference =
          fmt::format("sizes [{}], expected [{}]", fmt::join(expected.sizes(), ", "), fmt::join(file->sizes(), ", "));
    } else if (difference.empty()) {
      expected = file != nullptr ? file->contiguous() : expected;
      const int64_t unsure = std::exchange(references[i].uncertain, 0);
      difference = compare(out.global, references[i]).value_or("");
      if (difference.empty() && unsure > std::max<int64_t>(1, out.global.numel() / 100)) {
        fmt::print(
            "verify: for {} of {} elements of {} rounding decides the result, so they cannot be verified; choose other "
            "inputs\n",
            unsure, out.global.numel(), out.name);
        certain = false;
      }
    }
    if (!difference.empty()) {
      fmt::print("{} {} differs from the {}: {}\n", terminal.bad("verify:"), out.name,
                 file == nullptr ? "reference" : "file", difference);
      same = false;
    }
  }
  if (same) {
    fmt::print("{} the outputs agree with {}{}\n", terminal.good("verify:"),
               job.options.verify ? "the reference interpreter" : "the files",
               certain ? "" : ", as far as it can tell");
  } else {
    fmt::print("MESHFUSE_VERIFY=always compares each step with the reference and names the first that is wrong\n");
  }
  return same;
}

// Writes each output to a file of its name. Names may have slashes and colons, which no file of the directory may: `a/b` is a_b.npy, or
// a_b_.npy where there is an output `a_b` too.
void save(const Report& report, const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  check(!error, "[run] cannot make the directory {}: {}; give --save another one", directory, error.message());
  std::vector<std::string> names = mapped(report.outputs, &Output::name);
  for (int64_t i : indices(names)) {
    if (names[i].find_first_of("/:") != std::string::npos) {
      std::ranges::replace_if(
          names[i], [](char c) { return c == '/' || c == ':'; }, '_');
      while (std::ranges::count(names, names[i]) > 1) {
        names[i] += '_';
      }
    }
    const std::string path = fmt::format("{}/{}.npy", directory, names[i]);
    writeNpy(path, report.outputs[i].global);
    fmt::print("wrote {}\n", path);
  }
}

int64_t finish(const Job& job, const Report& report, int64_t ranks) {
  const Terminal terminal(STDOUT_FILENO);
  print(report, terminal);
  if (!job.options.saveTo.empty()) {
    save(report, job.options.saveTo);
  }
  if (!job.options.profileTo.empty()) {
    writeOutputFile(job.options.profileTo, report.profile->json());
    fmt::print("wrote {}\n", job.options.profileTo);
  }
  if (!job.options.traceTo.empty()) {
    writeOutputFile(job.options.traceTo, report.trace);
    fmt::print("wrote {}: the last run, for https://ui.perfetto.dev\n", job.options.traceTo);
  }
  const bool compares = job.options.verify || !job.expected.empty();
  return !compares || verifyOutputs(job, report, ranks, terminal) ? kSuccess : kDifference;
}

// If one rank fails, every rank throws; rank 0 alone prints the error.
int64_t runOnProcesses(const RunOptions& options) {
  TransportOptions transport;
  transport.algorithms = options.algorithms;
  if (options.deadline) {
    transport.deadline = std::chrono::seconds(*options.deadline);
  }
  std::unique_ptr<Communicator> world = openWorld(transport);
  try {
    check(!options.ranks || *options.ranks == world->size(),
          "[command line] --ranks is {}, but the launcher started {} processes; make both equal",
          options.ranks.value_or(0), world->size());
    const Job job = prepare(options, world->size());
    const int64_t ranks = rankCount(*job.fusion, {});
    check(
        !hasMesh(*job.fusion) || ranks <= world->size(),
        "[command line] the meshes of the program have {} ranks, but the launcher started {} processes; start as many",
        ranks, world->size());
    const Report report = runRank(*world, job);
    return world->rank() == 0 ? finish(job, report, world->size()) : kSuccess;
  } catch (const Error& e) {
    world->abort(e.what());
    if (world->rank() == 0) {
      throw;
    }
    return dynamic_cast<const UserError*>(&e) != nullptr ? kBadInput : kFailure;
  }
}

}  // namespace

int64_t runProgram(const RunOptions& options) {
  if (options.mpi) {
    return runOnProcesses(options);
  }
  const Job job = prepare(options, options.ranks);
  const int64_t ranks = virtualRankCount(*job.fusion, options.ranks);
  Report report;
  runLoopback(ranks, [&](Communicator& comm) {
    Report own = runRank(comm, job);
    if (comm.rank() == 0) {
      report = std::move(own);
    }
  });
  return finish(job, report, ranks);
}

}  // namespace meshfuse
