#include "fuzz/checks.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <exception>
#include <mutex>

#include "base/ranges.h"
#include "device/open.h"
#include "exec/fusion_executor_cache.h"
#include "exec/local_device.h"
#include "host/program.h"
#include "ir/text.h"
#include "memory_of_call.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/loopback/loopback.h"

namespace meshfuse::fuzz {

namespace {

// On a GPU the second call makes a graph, and the third one replays it.
constexpr int64_t kCallsOnDevices = 3;

std::vector<Argument> copies(const std::vector<Argument>& inputs) {
  std::vector<Argument> result;
  for (const Argument& a : inputs) {
    const Tensor* t = std::get_if<Tensor>(&a);
    if (t == nullptr || !t->isContiguous()) {
      result.push_back(a);  // programs write to contiguous inputs only
    } else {
      result.emplace_back(t->clone());
    }
  }
  return result;
}

int64_t launches(const FusionExecutorCache& cache) {
  int64_t n = 0;
  for (const Step& s : cache.hostProgram()->steps) {
    n += s.kind == HostStepKind::Launch ? 1 : 0;
  }
  return n;
}

// Runs `body` and makes a failure of what it throws.
std::optional<Failure> guarded(const std::string& stage, const std::function<std::optional<Failure>()>& body) {
  try {
    return body();
  } catch (const std::exception& e) {
    return Failure{stage, e.what()};
  }
}

}  // namespace

std::optional<std::string> difference(const Tensor& got, const BoundedTensor& expected) {
  BoundedTensor e = expected;
  e.uncertain = 0;  // the fuzzer counts them over all programs: the one element of a small tensor may be uncertain
  return compare(got, e);
}

const std::vector<BoundedTensor>& Reference::of(bool sharded) const {
  return sharded && !onRanks.empty() ? onRanks : onOneRank;
}

void Certainty::add(const BoundedTensor& t) {
  const std::vector<double> values = t.value.toVector();
  const double* errors = t.error.data_as<double>();
  const bool isExact = !isFloatingPoint(t.value.dtype());
  for (size_t i = 0; i < values.size(); i++) {
    elements++;
    const double known = isExact ? 0x1p-53 : std::max(0.01, 0.01 * std::abs(values[i]));
    vague += std::isfinite(errors[i]) && errors[i] < known ? 0 : 1;
  }
  uncertain += t.uncertain;
}

void Certainty::add(const Certainty& other) {
  elements += other.elements;
  vague += other.vague;
  uncertain += other.uncertain;
}

Reference referenceOf(const Program& program) {
  Reference r;
  r.onOneRank = interpretWithBounds(*program.fusion, program.inputs);
  if (program.ranks > 1) {
    r.onRanks = interpretWithBounds(*program.fusion, program.inputs, {.partials = program.ranks});
  }
  for (const BoundedTensor& t : r.of(true)) {
    r.certainty.add(t);
  }
  return r;
}

std::optional<Failure> checkText(const Program& program) {
  return guarded("text", [&]() -> std::optional<Failure> {
    std::vector<std::string> errors = verify(*program.fusion);
    if (!errors.empty()) {
      return Failure{"text", "the verifier objects: " + errors[0]};
    }
    std::string text = program.fusion->toString();
    std::string again = parseFusion(text)->toString();
    if (text != again) {
      return Failure{"text", "printed, parsed and printed again it is\n" + again};
    }
    return std::nullopt;
  });
}

std::optional<Failure> checkOneRank(const Program& program, const Reference& reference, bool verify,
                                    Observed* observed) {
  return guarded("one rank", [&]() -> std::optional<Failure> {
    FusionExecutorCache cache(withoutShardings(*program.fusion),
                              {.threads = 1, .verify = verify ? Verify::Always : Verify::Off});
    std::vector<Tensor> got = cache.runFusionWithInputs(copies(program.inputs));
    if (observed != nullptr) {
      observed->kernels = launches(cache);
    }
    for (size_t i = 0; i < got.size(); i++) {
      if (std::optional<std::string> d = difference(got[i], reference.onOneRank[i])) {
        return Failure{"one rank", fmt::format("output {}: {}\n{}", i, *d, cache.hostProgram()->toString())};
      }
    }
    return std::nullopt;
  });
}

namespace {

struct Bytes {
  int64_t planned = 0;
  int64_t received = 0;
};

// The calls that a rank has made against those of its plan, kind by kind, transfers aside. Adds the bytes of both: their sums over all ranks
// are equal, those of one rank need not be, because the parts of an all-reduce may be uneven.
std::optional<std::string> otherCollectives(const HostProgram& plan, const TransferCounters& made, Bytes& bytes) {
  std::array<int64_t, kCollectives> planned = {};
  for (const int64_t i : indices(plan.steps)) {
    if (plan.steps[i].kind == HostStepKind::Communicate) {
      planned[static_cast<int64_t>(plan.steps[i].comm.kind)]++;
      bytes.planned += plan.sizes().steps[i].comm.bytesReceived;
    }
  }
  std::optional<std::string> wrong;
  for (int64_t k = 0; k < kCollectives; k++) {
    const auto kind = static_cast<Collective>(k);
    bytes.received += made[kind].bytesReceived;
    // a transfer is any number of sends and receives; what follows them carries no data
    if (kind > Collective::Transfer && kind < Collective::Send && made[kind].calls != planned[k]) {
      wrong = fmt::format("calls of {}: {}, {} planned", name(kind), made[kind].calls, planned[k]);
    }
  }
  return wrong;
}

// The calls of one rank.
class RankCheck {
 public:
  RankCheck(const Program& program, const Reference& reference, const RanksCheck& how, Communicator& comm)
      : program_(program),
        reference_(reference),
        comm_(comm),
        own_(localDevice(how.device, comm)),
        measuresMemory_(how.measuresMemory),
        cache_(program.fusion->clone(),
               {.communicator = &comm, .threads = 1, .verify = how.verify ? Verify::Always : Verify::Off}) {}

  const FusionExecutorCache& cache() const { return cache_; }
  std::string plan() const {
    return fmt::format("planned:\n{}{}", cache_.planText(), cache_.hostProgram()->toString());
  }

  // With tensors of its own. Those of the call before are kept until this one has ended, so addresses change from call to call.
  std::optional<std::string> call() {
    std::vector<Argument> local;
    for (size_t i = 0; i < program_.inputs.size(); i++) {
      const Tensor* t = std::get_if<Tensor>(&program_.inputs[i]);
      const Val* in = program_.fusion->inputs()[i];
      local.push_back(t == nullptr ? program_.inputs[i]
                                   : Argument(shardTensor(*t, in->asTensor(), comm_.rank()).clone().to(own_)));
    }
    comm_.resetCounters();
    std::vector<Tensor> got = cache_.runFusionWithInputs(local);
    made_ = comm_.counters();
    const std::shared_ptr<const Fusion> planned = cache_.planned();
    std::optional<std::string> wrong;
    if (const std::string text = planned->toString(); parseFusion(text)->toString() != text) {
      wrong = "printed, parsed and printed again the plan is another one";
    }
    for (size_t i = 0; i < got.size() && !wrong; i++) {
      const BoundedTensor& whole = reference_.onRanks[i];
      const TensorView* tv = planned->outputs()[i]->asTensor();
      const BoundedTensor part{shardTensor(whole.value, tv, comm_.rank()).contiguous(),
                               shardTensor(whole.error, tv, comm_.rank()).contiguous(), 0};
      if (const std::optional<std::string> d = difference(got[i], part)) {
        wrong = fmt::format("output {} of rank {}: {}", i, comm_.rank(), *d);
      }
    }
    arguments_ = std::move(local);
    results_ = std::move(got);
    return wrong;
  }

  // Of one more call.
  std::optional<std::string> otherMemory() {
    const int64_t planned = cache_.hostProgram()->sizes().peakBytes;
    const std::optional<int64_t> bytes = memoryOfCall(comm_, cache_.hostProgram(), arguments_, results_);
    if (!bytes) {
      return measuresMemory_ ? std::optional(fmt::format("rank {}: the memory of {} is shared or is not counted",
                                                         comm_.rank(), own_.toString()))
                             : std::nullopt;
    }
    return *bytes == planned
               ? std::nullopt
               : std::optional(fmt::format("rank {}: bytes of memory: {}, {} planned", comm_.rank(), *bytes, planned));
  }

  // Of the last call.
  std::optional<std::string> otherCollectives(Bytes& bytes) const {
    return fuzz::otherCollectives(*cache_.hostProgram(), made_, bytes);
  }

 private:
  const Program& program_;
  const Reference& reference_;
  Communicator& comm_;
  const DeviceId own_;
  const bool measuresMemory_;
  FusionExecutorCache cache_;
  TransferCounters made_;
  std::vector<Argument> arguments_;
  std::vector<Tensor> results_;
};

}  // namespace

std::optional<Failure> checkRanks(const Program& program, const Reference& reference, const RanksCheck& how,
                                  Observed* observed) {
  std::mutex mutex;
  std::optional<Failure> first;
  std::vector<Bytes> ofCalls(how.calls);
  std::string plan;
  std::optional<Failure> thrown = guarded("ranks", [&]() -> std::optional<Failure> {
    LoopbackOptions options;
    options.deadline = std::chrono::seconds(60);
    runLoopback(
        program.ranks,
        [&](Communicator& comm) {
          RankCheck rank(program, reference, how, comm);
          for (int64_t call = 0; call < how.calls; call++) {
            std::optional<std::string> wrong = rank.call();
            std::lock_guard lock(mutex);
            if (call > 0 && !wrong) {  // the first one also agrees on the plan
              wrong = rank.otherCollectives(ofCalls[call]);
            }
            plan = rank.plan();
            if (wrong && !first) {
              first = Failure{"ranks", fmt::format("call {}: {}\n{}", call + 1, *wrong, plan)};
            }
          }
          const std::optional<std::string> wrong = rank.otherMemory();
          std::lock_guard lock(mutex);
          if (wrong && !first) {
            first = Failure{"ranks", fmt::format("{}\n{}", *wrong, rank.plan())};
          }
          if (observed != nullptr && comm.rank() == 0) {
            for (const CommRecord& c : rank.cache().commSteps()) {
              observed->communication.push_back(c.kind);
            }
          }
        },
        options);
    return std::nullopt;
  });
  for (const Bytes& b : ofCalls) {
    if (!first && !thrown && b.received != b.planned) {
      first = Failure{"ranks", fmt::format("bytes received: {}, {} planned\n{}", b.received, b.planned, plan)};
    }
  }
  return first ? first : thrown;
}

std::optional<Failure> checkProgram(const Program& program, bool verify, Observed* observed) {
  if (std::optional<Failure> f = checkText(program)) {
    return f;
  }
  Reference reference;
  if (std::optional<Failure> f = guarded("reference", [&]() -> std::optional<Failure> {
        reference = referenceOf(program);
        return std::nullopt;
      })) {
    return f;
  }
  if (observed != nullptr) {
    observed->certainty = reference.certainty;
  }
  if (std::optional<Failure> f = checkOneRank(program, reference, verify, observed)) {
    return f;
  }
  return program.ranks > 1 ? checkRanks(program, reference, {.verify = verify}, observed) : std::nullopt;
}

namespace {

std::string contentsOf(FILE* file) {
  std::string text;
  std::rewind(file);
  for (int c = 0; (c = std::fgetc(file)) != EOF;) {
    text += static_cast<char>(c);
  }
  std::fclose(file);
  return text;
}

// Runs a check in a process of its own, which has so many seconds.
std::optional<Failure> inChild(unsigned seconds, const std::function<std::optional<Failure>()>& body) {
  int ends[2];
  FILE* const errors = std::tmpfile();
  if (pipe(ends) != 0 || errors == nullptr) {
    return Failure{"child", "no pipe or no temporary file"};
  }
  pid_t child = fork();
  if (child == 0) {
    for (int s : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGILL}) {
      ::signal(s, SIG_DFL);
    }
    dup2(fileno(errors), STDERR_FILENO);
    alarm(seconds);
    std::optional<Failure> f = body();
    std::string text = f ? f->stage + "\n" + f->message : "";
    for (size_t at = 0; at < text.size();) {
      ssize_t n = write(ends[1], text.data() + at, text.size() - at);
      if (n <= 0) {
        break;
      }
      at += static_cast<size_t>(n);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, n);
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  const std::string said = contentsOf(errors);
  if (WIFSIGNALED(status)) {
    return Failure{"crash", WTERMSIG(status) == SIGALRM ? fmt::format("no end within {} s", seconds)
                                                        : fmt::format("signal {}\n{}", WTERMSIG(status), said)};
  }
  if (status != 0) {  // as a simulated GPU ends it that has found a mistake
    return Failure{"crash", fmt::format("status {}\n{}", WEXITSTATUS(status), said)};
  }
  if (text.empty()) {
    return std::nullopt;
  }
  size_t line = text.find('\n');
  return Failure{text.substr(0, line), text.substr(line + 1)};
}

}  // namespace

std::optional<Failure> checkInChild(const Program& program, bool verify) {
  return inChild(60, [&] { return checkProgram(program, verify); });
}

std::optional<Failure> checkOnDevicesInChild(const Program& program, std::string_view device) {
  return inChild(300, [&] {
    return guarded("ranks", [&] {
      const bool measuresMemory = device == "cuda" && gpusOfThisMachine().count >= program.ranks;
      return checkRanks(program, referenceOf(program),
                        {.device = device, .calls = kCallsOnDevices, .measuresMemory = measuresMemory});
    });
  });
}

}  // namespace meshfuse::fuzz
