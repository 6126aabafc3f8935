#include "exec/agreement.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "exec/accounts.h"
#include "ir/fusion.h"
#include "multidevice/sharding/plan_options.h"
#include "multidevice/sharding/window_fetch.h"
#include "multidevice/transport/communicator.h"
#include "multidevice/transport/disagreement.h"
#include "schedule/group.h"

namespace meshfuse {

namespace {

constexpr std::string_view kNoPlan = "no plan: ";
constexpr std::string_view kPlatform = "platform: ";
constexpr size_t kMostOfAnAccount = 3500;

bool refuses(const std::string& answer) { return answer.starts_with(kNoPlan) || answer.starts_with(kBadCall); }

// What the first rank that refuses says, where all that do name a mistake of the user; empty if none refuses. Ranks that do not say
// the same are told who does.
std::string refusalOf(const std::vector<std::string>& answers) {
  const auto first = std::ranges::find_if(answers, refuses);
  if (first == answers.end()) {
    return {};
  }
  std::vector<size_t> ranks;
  for (size_t r = 0; r < answers.size(); r++) {
    deviceCheck(!answers[r].starts_with(kNoPlan), "[agreement] rank {} has no plan: {}", r,
                answers[r].substr(std::min(kNoPlan.size(), answers[r].size())));
    if (answers[r] == *first) {
      ranks.push_back(r);
    }
  }
  std::string text = first->substr(kBadCall.size());
  if (ranks.size() < answers.size()) {
    text += fmt::format("; so say ranks [{}] of {}", fmt::join(ranks, ", "), answers.size());
  }
  return text;
}

}  // namespace

bool communicates(const Fusion& global) {
  const std::vector<Expr*> exprs = global.exprs();
  return std::ranges::any_of(exprs, [&](const Expr* e) {
    if (fetchesWindow(e)) {
      return std::ranges::any_of(e->attributes().plan, [](const std::string& step) { return step != "slice"; });
    }
    if (e->kind() != ExprKind::Redistribute || !e->input(0)->asTensor()->hasDeviceMesh()) {
      return false;
    }
    const std::shared_ptr<const RedistributionPlan> plan =
        planIn(global, shardState(e->input(0)->asTensor()), shardState(e->tensorOutput()));
    return std::ranges::any_of(plan->steps, &CommStep::communicates);
  });
}

std::string platformText(std::string_view libraryVersion, const DeviceInfo& device, size_t maxPlans) {
  return fmt::format("{0}meshfuse {1}\n{0}kernels for {2}\n{0}{3} plans kept\n", kPlatform, libraryVersion,
                     device.target == tile::Target::Cpu ? "a CPU" : device.architecture, maxPlans);
}

void agreeOnPlan(Communicator& communicator, const SharedText& shared, const CallAccount& account, int64_t call) {
  const std::string text = fmt::format("call {}\n{}{}", call, shared.platform, shared.program);
  communicator.setStep(-1, "compares its plan");
  std::vector<std::string> hashes = communicator.exchange(
      fmt::format("{}{}\n{}", kMakesAPlan, hashText(text).hex(), account.toString(kMostOfAnAccount)));
  communicator.setStep(-1, "");
  // The account tells those who make another call.
  for (std::string& hash : hashes) {
    hash = refuses(hash) ? hash : hash.substr(0, hash.find('\n'));
  }
  if (std::string refusal = refusalOf(hashes); !refusal.empty()) {
    throwUserError(std::move(refusal));
  }
  std::vector<int> different;
  for (size_t r = 0; r < hashes.size(); r++) {
    if (hashes[r] != hashes[0]) {
      different.push_back(static_cast<int>(r));
    }
  }
  if (different.empty()) {
    return;
  }
  std::vector<std::string> texts = communicator.exchange(
      fmt::format("call {}\n{}{}{}{}", call, shared.platform, shared.assumed, shared.sizes, shared.program));
  int other = different[0];
  const std::string difference = firstDifference(texts[0], texts[static_cast<size_t>(other)], 0, other);
  check(difference.find('"' + std::string(kAssumedSizes)) == std::string::npos,
        "[run] the parts of ranks [{}] differ in size from that of rank 0, and nothing says how large the whole is: "
        "{}; give "
        "it with Tensor::withGlobalShape, or as a constant size",
        fmt::join(different, ", "), difference);
  check(difference.find('"' + std::string(kPlatform)) == std::string::npos,
        "[agreement] ranks [{}] do not run on the platform of rank 0: {}; start all ranks with one build of the "
        "library, the same options, and devices of one model",
        fmt::join(different, ", "), difference);
  throwUserError(
      fmt::format("[agreement] the plans of ranks [{}] differ from that of rank 0 in {}; every rank must make the same "
                  "calls with the same fusion, mesh and global shapes",
                  fmt::join(different, ", "), difference));
}

void refuseCall(Communicator& communicator, const Error& why) {
  const bool isUsers = dynamic_cast<const UserError*>(&why) != nullptr;
  std::vector<std::string> answers;
  if (communicator.size() > 1) {
    try {
      communicator.setProgram(0);
      communicator.setStep(-1, isUsers ? "refuses the call" : fmt::format("refuses the call: {}", why.what()));
      answers = communicator.exchange(std::string(isUsers ? kBadCall : kNoPlan) + why.what());
      communicator.setStep(-1, "");
    } catch (const DisagreementError&) {
      throw;  // the peers do not refuse: all are told alike
    } catch (const Error&) {
      // the peers are gone or agree on another failure; this rank's own error says more
      answers.clear();
    }
  }
  const bool areUsers = std::ranges::none_of(answers, [](const std::string& a) { return a.starts_with(kNoPlan); });
  if (isUsers && areUsers && !answers.empty()) {
    throwUserError(refusalOf(answers));
  }
  throw;
}

}  // namespace meshfuse
