#include "exec/call_descriptor.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/error.h"
#include "base/hash.h"
#include "base/ranges.h"
#include "host/program.h"
#include "ir/fusion.h"
#include "multidevice/transport/call.h"

namespace meshfuse {

namespace {

constexpr size_t kMostOfALine = 400;

std::string lineAt(const std::string& text, size_t begin) {
  return begin < text.size() ? text.substr(begin, text.find('\n', begin) - begin) : "(nothing)";
}

// Removes the first part of `text` and the separator after it, and returns the part.
std::string_view take(std::string_view& text, char separator) {
  const size_t end = std::min(text.find(separator), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

std::vector<std::string_view> sizesOf(std::string_view list) {
  std::vector<std::string_view> sizes;
  for (list = list.substr(std::min<size_t>(1, list.size())); !list.empty();) {
    sizes.push_back(take(list, ','));
  }
  return sizes;
}

// `, they differ in dims [0, 2]`; empty for scalars.
std::string dimsThatDiffer(const ArgumentDescriptor& a, const ArgumentDescriptor& b) {
  const std::vector<std::string_view> ofA = sizesOf(a.global);
  const std::vector<std::string_view> ofB = sizesOf(b.global);
  if (ofA.size() != ofB.size() || !a.global.starts_with('[')) {
    return "";
  }
  const std::vector<int64_t> dims = filtered(indices(ofA), [&](int64_t k) { return ofA[k] != ofB[k]; });
  return dims.empty()       ? std::string()
         : dims.size() == 1 ? fmt::format(", they differ in dim {}", dims[0])
                            : fmt::format(", they differ in dims {}", fmt::join(dims, ", "));
}

std::string textOf(const ArgumentDescriptor& a, int64_t rank) {
  const std::string global = a.local == a.global ? "" : fmt::format(" of a global {}", a.global);
  return fmt::format("{} {}{} on rank {}", a.type, a.local, global, rank);
}

}  // namespace

std::string firstDifference(const std::string& a, const std::string& b, int64_t rankA, int64_t rankB) {
  const size_t same = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  const size_t begin = same == 0 ? 0 : a.rfind('\n', same - 1) + 1;
  const auto line = 1 + std::count(a.begin(), a.begin() + static_cast<ptrdiff_t>(begin), '\n');
  return fmt::format("line {}: rank {} has \"{}\", rank {} has \"{}\"", line, rankA, lineAt(a, begin), rankB,
                     lineAt(b, begin));
}

std::string CallDescriptor::toString(size_t bytes) const {
  std::string message = fmt::format("{}\n{}\n", fusion, plan);
  std::string lines;
  size_t count = 0;
  for (const ArgumentDescriptor& a : arguments) {
    const std::string line = fmt::format("{}\t{}\t{}\t{}\n", a.input, a.type, a.local, a.global);
    if (lines.size() + line.size() > bytes / 2) {
      break;
    }
    lines += line;
    count++;
  }
  message += fmt::format("{}\n{}", count, lines);
  const std::string_view fits = std::string_view(text).substr(0, bytes - std::min(bytes, message.size()));
  message += fits.size() == text.size() ? fits : fits.substr(0, fits.rfind('\n') + 1);
  return message;
}

CallDescriptor CallDescriptor::parse(std::string_view text) {
  CallDescriptor descriptor;
  descriptor.fusion = take(text, '\n');
  descriptor.plan = take(text, '\n');
  const std::string_view number = take(text, '\n');
  size_t arguments = 0;
  (void)std::from_chars(number.data(), number.data() + number.size(), arguments);
  for (size_t i = 0; i < arguments && !text.empty(); i++) {
    std::string_view line = take(text, '\n');
    ArgumentDescriptor& a = descriptor.arguments.emplace_back();
    for (std::string* part : {&a.input, &a.type, &a.local, &a.global}) {
      *part = take(line, '\t');
    }
  }
  descriptor.text = text;
  return descriptor;
}

CallDescriptor descriptorOf(const Fusion& fusion) {
  CallDescriptor descriptor{.text = fusion.toString()};
  descriptor.fusion = hashText(descriptor.text).hex();
  return descriptor;
}

std::vector<ArgumentDescriptor> argumentDescriptors(const Fusion& fusion, std::span<const Argument> inputs,
                                                    const std::vector<std::vector<int64_t>>& globalSizes) {
  std::vector<ArgumentDescriptor> descriptors;
  for (int64_t i = 0; i < std::ssize(inputs); i++) {
    const std::string input = inputText(fusion, i);
    if (const Tensor* t = std::get_if<Tensor>(&inputs[i])) {
      std::vector<int64_t> local(t->sizes().begin(), t->sizes().end());
      std::vector<int64_t> global = globalSizes[i];
      if (global.size() > local.size()) {  // its elements are sizes
        global.erase(global.begin(), global.begin() + static_cast<ptrdiff_t>(local.size()));
        local = global;
      }
      descriptors.push_back({input, std::string(name(t->dtype())), fmt::format("[{}]", fmt::join(local, ", ")),
                             fmt::format("[{}]", fmt::join(global, ", "))});
    } else if (!globalSizes[i].empty()) {
      const std::string value = std::to_string(globalSizes[i][0]);
      descriptors.push_back({input, "Int", value, value});
    }
  }
  return descriptors;
}

// The activity of one rank in a call.
struct PlanDescriptors::Activity {
  enum class Kind { Unknown, Refuses, Compiles, Runs } kind = Kind::Unknown;
  std::string refusal = {};
  std::optional<CallDescriptor> call = {};  // empty if this rank has no plan with this number

  std::string toString(int64_t rank) const {
    return fmt::format("rank {} {}", rank, kind == Kind::Runs ? "runs a cached plan" : "compiles a plan");
  }
};

void PlanDescriptors::add(Communicator& communicator, const std::shared_ptr<const PlanDescriptor>& plan) {
  auto known = std::dynamic_pointer_cast<const PlanDescriptors>(communicator.programs());
  if (known == nullptr) {
    known = std::make_shared<const PlanDescriptors>();
    communicator.setPrograms(known);
  }
  std::lock_guard lock(known->mutex_);
  std::erase_if(known->plans_, [](const auto& p) { return p.expired(); });
  known->plans_.push_back(plan);
}

std::shared_ptr<const PlanDescriptor> PlanDescriptors::find(uint32_t program) const {
  std::lock_guard lock(mutex_);
  for (const std::weak_ptr<const PlanDescriptor>& known : plans_) {
    std::shared_ptr<const PlanDescriptor> plan = known.lock();
    for (int64_t n = 0; plan != nullptr && n < plan->communications; n++) {
      if (shortHash(programNumber(plan->identity, n)) == program) {
        return plan;
      }
    }
  }
  return nullptr;
}

PlanDescriptors::Activity PlanDescriptors::activityIn(const Call& call) const {
  if (call.message.starts_with(kRefusal)) {
    return {Activity::Kind::Refuses, std::string(call.message.substr(kRefusal.size()))};
  }
  if (call.message.starts_with(kNewPlan)) {
    std::string_view text = call.message;
    (void)take(text, '\n');
    return {Activity::Kind::Compiles, {}, CallDescriptor::parse(text)};
  }
  if (call.program == 0) {
    return {};
  }
  const std::shared_ptr<const PlanDescriptor> plan = find(call.program);
  return {Activity::Kind::Runs, {}, plan == nullptr ? std::optional<CallDescriptor>() : plan->call};
}

std::optional<std::string> PlanDescriptors::difference(const Call& a, const Call& b) const {
  const Activity x = activityIn(a);
  const Activity y = activityIn(b);
  using enum Activity::Kind;
  if (x.kind == Unknown || y.kind == Unknown) {
    return std::nullopt;
  }
  constexpr std::string_view kSameCalls = "every rank must make the same calls, of the same programs in the same order";
  if (x.kind == Refuses && y.kind == Refuses) {
    return fmt::format("{} on rank {}, {} on rank {}; they refuse different calls; {}", x.refusal, a.rank, y.refusal,
                       b.rank, kSameCalls);
  }
  if (y.kind == Refuses) {
    return difference(b, a);
  }
  if (x.kind == Refuses) {
    return fmt::format("{}; rank {} refuses the call, rank {} does not", x.refusal, a.rank, b.rank);
  }
  const std::string activities = x.kind != y.kind ? fmt::format("{}, {}", x.toString(a.rank), y.toString(b.rank))
                                 : x.kind == Runs ? "both run cached plans"
                                                  : "both compile plans";
  if (!x.call && !y.call) {
    return std::nullopt;
  }
  if (!x.call || !y.call) {
    return fmt::format("[run] ranks {} and {} call different programs: {}, which the other rank does not have; {}",
                       a.rank, b.rank, x.call ? y.toString(b.rank) : x.toString(a.rank), kSameCalls);
  }
  if (x.call->fusion != y.call->fusion) {
    return fmt::format("[run] ranks {} and {} call different programs, which differ in {}; {}; {}", a.rank, b.rank,
                       firstDifference(x.call->text, y.call->text, a.rank, b.rank).substr(0, 2 * kMostOfALine),
                       activities, kSameCalls);
  }
  for (int64_t i = 0; i < std::min(std::ssize(x.call->arguments), std::ssize(y.call->arguments)); i++) {
    const ArgumentDescriptor& p = x.call->arguments[i];
    const ArgumentDescriptor& q = y.call->arguments[i];
    if (p.type != q.type || p.global != q.global) {
      const std::string remedy =
          p.global.starts_with('[')
              ? fmt::format("pass every rank its shard of one global tensor, {} or {} (see Tensor::withGlobalShape)",
                            p.global, q.global)
              : fmt::format("pass every rank the same value, {} or {}", p.global, q.global);
      return fmt::format("[run] ranks {} and {} call one program with different arguments: {} is {} and {}{}; {}; {}",
                         a.rank, b.rank, p.input, textOf(p, a.rank), textOf(q, b.rank), dimsThatDiffer(p, q),
                         activities, remedy);
    }
  }
  if (x.call->plan != y.call->plan) {
    const bool areAllKnown =
        x.call->arguments.size() == y.call->arguments.size();  // of many arguments, some are left out
    return fmt::format(
        "[run] ranks {} and {} plan the same program for {} with other options or another environment: {}; give every "
        "rank the same options and environment",
        a.rank, b.rank, areAllKnown ? "the same arguments" : "other arguments, or", activities);
  }
  if (x.kind == Runs && y.kind == Runs) {
    return std::nullopt;  // two places of one plan: no mistake of the user
  }
  if (x.kind == y.kind) {
    return fmt::format("[run] ranks {} and {} have made different numbers of calls when they compile the same plan; {}",
                       a.rank, b.rank, kSameCalls);
  }
  return fmt::format(
      "[run] ranks {} and {} call the same program with the same arguments, but {}; every rank must make the "
      "same calls, of one executor cache with the same maxPlans on all ranks",
      a.rank, b.rank, activities);
}

}  // namespace meshfuse
