// Random programs on ranks, called with several sizes in turn: each call gives the results of the reference and makes the collectives of
// its plan, and is refused if a program for its sizes alone is.
//
//   MESHFUSE_FUZZ_SEEDS=1000-1300 bin/test_fuzz --gtest_filter='FuzzSizes.*'
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ranges.h"
#include "exec/explain.h"
#include "exec/fusion_executor_cache.h"
#include "exec/planned_program.h"
#include "fuzz/checks.h"
#include "fuzz/graph.h"
#include "fuzz/program.h"
#include "fuzz/random.h"
#include "host/program.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/disagreement.h"
#include "multidevice/transport/loopback/loopback.h"

namespace meshfuse::fuzz {

namespace {

constexpr int64_t kCalls = 6;
constexpr int64_t kMostElementsOfAnInput = 1 << 15;

// The first two decisions of randomProgram(): the mesh x2, x4 or y2x2, and sizes that are symbols.
Program programOfAnySize(uint64_t seed) {
  constexpr std::array<char, 3> kMeshes = {10, 44, 67};
  const std::string choices{kMeshes[seed % kMeshes.size()], 0, 0, 0};
  return randomProgram(seed, choices);
}

// The elements of `t`, again and again, in another shape: values stay in their range.
Tensor repeated(const Tensor& t, const Shape& sizes) {
  const Tensor from = t.contiguous();
  const Shape strides = from.strides().empty() ? Shape() : Shape(from.strides().begin(), from.strides().end());
  Tensor to = Tensor::empty(sizes, t.dtype());
  const int64_t bytes = dataTypeSize(t.dtype());
  for (int64_t i = 0; i < to.numel(); i++) {
    int64_t rest = i;
    int64_t offset = 0;
    for (int64_t k = std::ssize(sizes) - 1; k >= 0; k--) {
      offset += rest % sizes[k] % from.sizes()[k] * strides[k];
      rest /= sizes[k];
    }
    std::memcpy(static_cast<char*>(to.data()) + i * bytes, static_cast<const char*>(from.data()) + offset * bytes,
                static_cast<size_t>(bytes));
  }
  return to;
}

// Equal sizes stay equal.
std::optional<std::vector<Argument>> resized(const Program& program, Random& random) {
  std::map<int64_t, int64_t> sizeFor;
  const int64_t all = random.between(1, 5);
  const bool together = random.chance(60);
  const int64_t more = random.chance(15) ? random.between(-1, 1) : 0;
  std::vector<Argument> result;
  for (const int64_t i : indices(program.inputs)) {
    const Tensor* t = std::get_if<Tensor>(&program.inputs[i]);
    if (t == nullptr) {
      result.push_back(program.inputs[i]);
      continue;
    }
    const std::vector<IntExpr> extents = program.fusion->inputs()[i]->asTensor()->shape();
    Shape sizes(t->sizes().begin(), t->sizes().end());
    int64_t elements = 1;
    for (const int64_t k : indices(sizes)) {
      if (!extents[k].isConst()) {
        sizes[k] =
            sizeFor.try_emplace(sizes[k], sizes[k] * (together ? all : random.between(1, 4)) + more).first->second;
      }
      elements *= sizes[k];
    }
    if (elements > kMostElementsOfAnInput) {
      return std::nullopt;
    }
    result.emplace_back(repeated(*t, sizes));
  }
  return result;
}

struct SizedCall {
  std::vector<Argument> inputs;
  std::optional<std::vector<BoundedTensor>> outputs;  // nothing: the reference refuses the sizes
};

std::vector<SizedCall> callsOf(const Program& program) {
  Random random(program.seed + 0x73697a6573);
  std::vector<SizedCall> calls;
  while (std::ssize(calls) < kCalls) {
    if (std::ssize(calls) > 3 && random.chance(40)) {
      calls.push_back(random.of(std::vector<SizedCall>(calls)));
      continue;
    }
    std::optional<std::vector<Argument>> inputs = calls.empty() ? program.inputs : resized(program, random);
    if (!inputs) {
      continue;
    }
    SizedCall& call = calls.emplace_back(std::move(*inputs));
    try {
      call.outputs = interpretWithBounds(*program.fusion, call.inputs, {.partials = program.ranks});
    } catch (const UserError&) {
    }
  }
  return calls;
}

struct Seen {
  int64_t ofClasses = 0;  // calls
  int64_t refused = 0;
  int64_t otherBytes = 0;     // than a plan for constant sizes
  int64_t communicating = 0;  // of classes
  std::map<std::string, int64_t> whyConstant;
};

class SizedRank {
 public:
  SizedRank(const Program& program, Communicator& comm)
      : program_(program),
        comm_(comm),
        random_(1000 * program.seed + static_cast<uint64_t>(comm.rank())),
        shared_(program.fusion->clone(), {.communicator = &comm, .threads = 1}),
        constant_(program.fusion->clone(), {.communicator = &comm, .threads = 1, .sharePlans = false}) {}

  std::string call(const SizedCall& sized, Seen* seen) {
    try {
      for (const int64_t i : indices(sized.inputs)) {
        for (int64_t rank = 0; rank < comm_.size() && std::holds_alternative<Tensor>(sized.inputs[i]); rank++) {
          (void)shardOf(i, std::get<Tensor>(sized.inputs[i]), rank);
        }
      }
    } catch (const UserError&) {
      return "";  // some rank has no shard of this size
    }
    isDisplaced_ = random_.chance(15);
    std::vector<Argument> local;
    for (const int64_t i : indices(sized.inputs)) {
      const Tensor* t = std::get_if<Tensor>(&sized.inputs[i]);
      local.push_back(t == nullptr ? sized.inputs[i] : Argument(shardOf(i, *t, comm_.rank()).clone()));
    }
    std::vector<Tensor> got;
    const std::string alone = refusal(constant_, local, got);
    const std::string refused = refusal(shared_, local, got);
    if (alone.empty() != refused.empty()) {
      return fmt::format("refused: \"{}\", and for constant sizes \"{}\"", refused, alone);
    }
    if (!refused.empty()) {
      if (seen != nullptr) {
        seen->refused++;
      }
      return "";
    }
    if (!sized.outputs) {
      return "not refused";
    }
    const std::vector<std::string> lines = shared_.explain().sizes;
    if (std::string wrong = wrongOutput(got, sized); !wrong.empty()) {
      return fmt::format("{}\n{}\n{}", wrong, fmt::join(lines, "\n"), shared_.planText());
    }
    const bool isConstant =
        std::ranges::none_of(lines, [](const std::string& l) { return l.find(" from ") != std::string::npos; });
    if (seen != nullptr) {
      seen->ofClasses += isConstant ? 0 : 1;
      seen->communicating += !isConstant && !shared_.commSteps().empty() ? 1 : 0;
      seen->otherBytes += bytesOf(shared_) == bytesOf(constant_) ? 0 : 1;
      for (const std::string& l : lines) {
        if (l.starts_with("all sizes")) {
          std::string key;
          for (const char c : l.substr(0, 120)) {
            key += ::isdigit(c) != 0 ? '#' : c;
          }
          seen->whyConstant[key]++;
        }
      }
    }
    comm_.resetCounters();
    const std::string again = refusal(shared_, local, got);
    const int64_t ofShared = bytesOf(comm_.counters());
    if (!again.empty()) {
      return "refused the second time: " + again;
    }
    if (std::string wrong = wrongOutput(got, sized); !wrong.empty()) {
      return fmt::format("the second time: {}\n{}\n{}", wrong, fmt::join(lines, "\n"), shared_.planText());
    }
    // ranks of programs that may refuse an index also tell each other whether they do
    std::vector<Tensor> others;
    comm_.resetCounters();
    (void)refusal(constant_, local, others);
    received = ofShared - (bytesOf(comm_.counters()) - bytesOf(constant_));
    planned = bytesOf(shared_);
    return "";
  }

  int64_t planned = 0;
  int64_t received = 0;

 private:
  Tensor shardOf(int64_t input, const Tensor& whole, int64_t rank) const {
    return shardTensor(whole, program_.fusion->inputs()[input]->asTensor(), rank);
  }

  static int64_t bytesOf(const FusionExecutorCache& cache) {
    return sumOf(cache.commSteps(), &CommRecord::bytesReceived);
  }

  static int64_t bytesOf(const TransferCounters& made) {
    return sumOf(made.of, &TransferCounters::Entry::bytesReceived);
  }

  // At an address that 64 does not divide.
  static Tensor displaced(const Tensor& t) {
    Tensor memory = Tensor::empty({t.numel() + 1}, t.dtype());
    Tensor result = memory.slice(0, 1, t.numel() + 1).view({t.sizes().begin(), t.sizes().end()});
    result.copyFrom(t);
    return t.globalShape().empty() ? result : result.withGlobalShape({t.globalShape().begin(), t.globalShape().end()});
  }

  // Programs may write to their inputs. Some inputs of some ranks are not laid out as those of peers.
  std::string refusal(FusionExecutorCache& cache, const std::vector<Argument>& inputs, std::vector<Tensor>& got) {
    std::vector<Argument> own;
    for (const Argument& a : inputs) {
      const Tensor* t = std::get_if<Tensor>(&a);
      const bool isDisplaced = t != nullptr && isDisplaced_ && t->numel() > 0 && t->isContiguous();
      own.push_back(t == nullptr ? a : Argument(isDisplaced ? displaced(*t) : t->clone()));
    }
    try {
      got = cache.runFusionWithInputs(own);
      return "";
    } catch (const DisagreementError&) {
      throw;
    } catch (const UserError& e) {
      return e.what();
    }
  }

  std::string wrongOutput(const std::vector<Tensor>& got, const SizedCall& sized) {
    const std::shared_ptr<const Fusion> plan = shared_.planned();
    for (const int64_t i : indices(got)) {
      const BoundedTensor& whole = (*sized.outputs)[i];
      const TensorView* tv = plan->outputs()[i]->asTensor();
      const BoundedTensor part{shardTensor(whole.value, tv, comm_.rank()).contiguous(),
                               shardTensor(whole.error, tv, comm_.rank()).contiguous(), 0};
      if (const std::optional<std::string> d = difference(got[i], part)) {
        return fmt::format("output {} of rank {}: {}", i, comm_.rank(), *d);
      }
    }
    return "";
  }

  const Program& program_;
  Communicator& comm_;
  Random random_;
  bool isDisplaced_ = false;
  FusionExecutorCache shared_;
  FusionExecutorCache constant_;
};

std::string textOf(const SizedCall& call) {
  return joined(call.inputs, " ", [](const Argument& a) {
    const Tensor* t = std::get_if<Tensor>(&a);
    return t == nullptr ? std::string("-") : fmt::format("[{}]", fmt::join(t->sizes(), ", "));
  });
}

TEST(FuzzSizes, EachCallIsThatOfItsSizesAlone) {
  uint64_t first = 1;
  uint64_t last = 12;
  if (const char* text = std::getenv("MESHFUSE_FUZZ_SEEDS")) {
    char* rest = nullptr;
    first = std::strtoull(text, &rest, 10);
    last = *rest == '-' ? std::strtoull(rest + 1, nullptr, 10) : first;
  }
  Seen seen;
  int64_t calls = 0;
  for (uint64_t seed = first; seed <= last; seed++) {
    const Program program = programOfAnySize(seed);
    const std::vector<SizedCall> sized = callsOf(program);
    calls += std::ssize(sized);
    std::mutex mutex;
    std::string failure;
    std::vector<int64_t> received(sized.size());
    std::vector<int64_t> planned(sized.size());
    LoopbackOptions options;
    options.deadline = std::chrono::seconds(20);
    try {
      runLoopback(
          program.ranks,
          [&](Communicator& comm) {
            SizedRank rank(program, comm);
            for (const int64_t n : indices(sized)) {
              const std::string wrong = rank.call(sized[n], comm.rank() == 0 ? &seen : nullptr);
              const std::lock_guard lock(mutex);
              received[n] += std::exchange(rank.received, 0);
              planned[n] += std::exchange(rank.planned, 0);
              if (!wrong.empty() && failure.empty()) {
                failure = fmt::format("call {} of {}: {}", n, textOf(sized[n]), wrong);
              }
            }
          },
          options);
    } catch (const std::exception& e) {
      failure += std::string("thrown: ") + e.what();
    }
    EXPECT_EQ(failure, "") << "seed " << seed << ", mesh " << program.mesh << ", calls " << joined(sized, "; ", textOf)
                           << "\n"
                           << program.fusion->toString();
    EXPECT_EQ(received, planned) << "seed " << seed;
  }
  fmt::print(
      "{} calls: {} with programs of classes ({} communicate), {} refused, {} with other bytes than for constant "
      "sizes\n",
      calls, seen.ofClasses, seen.communicating, seen.refused, seen.otherBytes);
  EXPECT_GT(seen.ofClasses, 0);
  EXPECT_GT(seen.communicating, 0);
  for (const auto& [why, count] : seen.whyConstant) {
    fmt::print("  {} {}\n", count, why);
    EXPECT_EQ(why.find(kInternalError), std::string::npos) << why;
  }
}

}  // namespace

}  // namespace meshfuse::fuzz
