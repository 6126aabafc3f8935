#include "exec/agreement.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/ranges.h"
#include "device/device_failure.h"
#include "exec/arguments.h"
#include "host/program.h"
#include "ir/fusion.h"
#include "meshfuse_config.h"
#include "multidevice/transport/disagreement.h"
#include "schedule/group.h"

namespace meshfuse {

namespace {

constexpr std::string_view kNoPlan = "no plan: ";
constexpr std::string_view kPlatform = "platform: ";
constexpr size_t kMostOfADescriptor = 3500;
constexpr int64_t kMostStepsOfAnOp = 8;
constexpr uint64_t kExchangeOfCall = 0x61677265656d656e;

bool refuses(const std::string& answer) { return answer.starts_with(kNoPlan) || answer.starts_with(kRefusal); }

// Throws the error that the peers get if it has the text of this rank's error: it names the rank too.
void throwIfItTells(const DeviceError& ofGroup, const std::exception& own) {
  if (std::string_view(ofGroup.what()).find(own.what()) != std::string_view::npos) {
    throw ofGroup;
  }
}

// The error of the first rank that refuses; empty if none does. DeviceError if some rank failed by no mistake of the user.
std::string refusalOf(const std::vector<std::string>& answers) {
  const auto first = std::ranges::find_if(answers, refuses);
  if (first == answers.end()) {
    return {};
  }
  for (int64_t r = 0; r < std::ssize(answers); r++) {
    deviceCheck(!answers[r].starts_with(kNoPlan), "[agreement] rank {} could not compile a plan: {}", r,
                answers[r].substr(std::min(kNoPlan.size(), answers[r].size())));
  }
  const std::vector<int64_t> ranks = filtered(indices(answers), [&](int64_t r) { return answers[r] == *first; });
  const std::string who =
      fmt::format("; ranks [{}] of {} refuse the call with this error", fmt::join(ranks, ", "), answers.size());
  return first->substr(kRefusal.size()) + (ranks.size() < answers.size() ? who : "");
}

bool isOnAllRanks(const Fusion& fusion, int64_t ranks) {
  return std::ranges::all_of(fusion.tensors(), [&](const TensorView* tv) {
    return !tv->hasDeviceMesh() || std::ssize(tv->getDeviceMesh().devices()) == ranks;
  });
}

// One line for each dim of each input.
std::string textOfSizes(const Fusion& fusion, const std::vector<std::vector<int64_t>>& sizes) {
  std::string text;
  for (int64_t i = 0; i < std::ssize(sizes); i++) {
    const Val* in = fusion.inputs()[i];
    const int64_t dims = in->isTensor() ? std::ssize(in->asTensor()->shape()) : 0;
    for (int64_t k = 0; k < std::ssize(sizes[i]) && in->isTensor(); k++) {
      text += k < dims ? fmt::format("dim {} of {} is {}\n", k, inputText(fusion, i), sizes[i][k])
                       : fmt::format("element {} of {} is {}\n", k - dims, inputText(fusion, i), sizes[i][k]);
    }
  }
  return text;
}

std::string platformText(const AgreementOptions& options, const DeviceInfo& device) {
  return fmt::format("{0}meshfuse {1}\n{0}kernels for {2}\n{0}matrix products by {3}\n{0}{4} plans kept, {5}\n",
                     kPlatform, options.libraryVersion.empty() ? kVersion : options.libraryVersion,
                     device.target == tile::Target::Cpu ? "a CPU" : device.architecture,
                     device.library.empty() ? "kernels" : device.library, options.maxPlans,
                     options.sharesPlans ? "shared between sizes" : "one for each size");
}

// UserError for plans that differ. `texts`: of all ranks. `different`: ranks with another text than rank 0.
[[noreturn]] void throwDifference(const std::vector<std::string>& texts, const std::vector<int64_t>& different) {
  const int64_t other = different[0];
  const std::string difference = firstDifference(texts[0], texts[other], 0, other);
  check(difference.find('"' + std::string(kAssumedSizes)) == std::string::npos,
        "[run] the shards of ranks [{}] differ in size from that of rank 0, and the global size is not given: {}; pass "
        "each rank its shard, not the whole tensor, or give the global size with Tensor::withGlobalShape, or as a "
        "constant size in the fusion",
        fmt::join(different, ", "), difference);
  check(difference.find('"' + std::string(kPlatform)) == std::string::npos,
        "[agreement] ranks [{}] have another platform than rank 0: {}; start all ranks with one build of the "
        "library, the same options, and devices of one model with the same libraries",
        fmt::join(different, ", "), difference);
  throwUserError(
      fmt::format("[agreement] the plans of ranks [{}] differ from that of rank 0 in {}; every rank must make the same "
                  "calls with the same fusion, mesh and global shapes",
                  fmt::join(different, ", "), difference));
}

}  // namespace

bool communicates(const Fusion& global) {
  return std::ranges::any_of(global.exprs(), [](const Expr* e) { return e->attributes().communications() > 0; });
}

Agreement::Call Agreement::call() { return Call(*this); }

Agreement::Call::Call(Agreement& agreement) : agreement_(agreement) {
  if (communicator().size() > 1) {
    lock_ = std::unique_lock(communicator().sequence());
    number_ = ++agreement.calls_;
  }
}

AgreedPrograms::Shapes PlanProposal::shapes() const { return {sizes, deviceOf(inputs).kind}; }

std::shared_ptr<const PlannedProgram> Agreement::Call::agreed(const Shapes& shapes) const {
  return hasPeers() ? agreement_.programs_.find(shapes) : nullptr;
}

std::vector<Agreement::Shapes> Agreement::Call::takeEvicted() const {
  return hasPeers() ? agreement_.programs_.takeEvicted() : std::vector<Shapes>();
}

ProgramChoice Agreement::Call::choose(const PlanProposal& proposal, const ShapeClass& wanted,
                                      const SymbolValues& values) const {
  if (plansAlone(proposal.fusion)) {
    return {.sizes = wanted};
  }
  ProgramChoice choice = agreement_.programs_.choose(proposal.shapes(), wanted, values);
  invariant(choice.sizes.isConstant() || choice.isAgreed() || peersCompare(proposal.fusion),
            "[agreement] a program of a class that no rank compares");
  return choice;
}

bool Agreement::Call::plansAlone(const Fusion& fusion) const {
  return !hasPeers() ||
         (agreement_.redistributes_.has_value() && std::ranges::none_of(fusion.tensors(), &TensorView::hasDeviceMesh));
}

bool Agreement::Call::peersCompare(const Fusion& fusion) const {
  return hasPeers() && (agreement_.redistributes_.value_or(true) ||
                        (mayAssumeSizes(fusion) && isOnAllRanks(fusion, communicator().size())));
}

void Agreement::Call::agree(const PlanProposal& proposal, const std::shared_ptr<PlannedProgram>& program,
                            const DeviceInfo& device) const {
  if (program == nullptr) {
    return;
  }
  AgreedPlan& plan = program->agreed;
  const std::string& text = *program->text;
  std::shared_ptr<PlanDescriptor> descriptor;
  beforeAgreement(proposal, [&] {
    const Hash128 hash = hashText(text);
    const PlanFacts facts = factsOf(*program);
    plan = {.identity = hash.lo, .communicates = facts.communicates, .redistributes = facts.redistributes};
    if (hasPeers()) {
      descriptor = std::make_shared<PlanDescriptor>(
          PlanDescriptor{describe(proposal), plan.identity, kMostStepsOfAnOp * facts.exprs});
      descriptor->call.plan = hash.hex();
    }
  });
  if (!hasPeers()) {
    return;
  }
  // If only this rank's shard has another size, it compares alone: no peer makes the call, and the deadline ends it.
  const bool isNew = agreed(proposal.shapes()) == nullptr && !agreement_.programs_.isUncompared(proposal.shapes());
  const bool compares = isNew && (peersCompare(proposal.fusion) || plan.communicates || plan.redistributes);
  if (compares) {
    const std::string all = platformText(agreement_.options_, device) + text;
    const bool isOfClass = !program->sizes.isConstant();  // whose text has no sizes
    compare(proposal, descriptor->call, isOfClass ? textOfSizes(proposal.fusion, proposal.sizes) + all : all, all);
  }
  if (plan.communicates) {
    PlanDescriptors::add(communicator(), descriptor);
    plan.descriptor = descriptor;
  }
  agreement_.redistributes_ = agreement_.redistributes_.value_or(false) || plan.redistributes;
  if (*agreement_.redistributes_) {
    agreement_.programs_.forgetUncompared();
  }
  if (compares && program->sizes.isConstant()) {
    agreement_.programs_.keep(proposal.shapes(), program);
  } else if (isNew && !compares && !plansAlone(proposal.fusion)) {
    agreement_.programs_.keepUncompared(proposal.shapes(), program);
  }
}

AgreedPlan Agreement::Call::agreeOnSizes(const PlanProposal& proposal,
                                         const std::shared_ptr<const PlannedProgram>& ofClass,
                                         const SymbolValues& values) const {
  AgreedPlan plan = ofClass->agreed;
  plan.identity = identityFor(plan.identity, values);
  if (!hasPeers()) {
    return plan;
  }
  CallDescriptor call;
  afterPlanning(proposal, *ofClass, [&] { call = describe(proposal); });
  if (!plansAlone(proposal.fusion) && agreed(proposal.shapes()) == nullptr) {
    const std::string text = fmt::format("a program of a class, {:x}\n", ofClass->agreed.identity);
    compare(proposal, call, textOfSizes(proposal.fusion, proposal.sizes) + text, text);
    agreement_.programs_.keep(proposal.shapes(), ofClass);
  }
  if (plan.communicates) {
    call.plan = plan.descriptor->call.plan;
    const auto descriptor = std::make_shared<PlanDescriptor>(
        PlanDescriptor{std::move(call), plan.identity, plan.descriptor->communications});
    PlanDescriptors::add(communicator(), descriptor);
    plan.descriptor = descriptor;
  }
  return plan;
}

SizedFusion Agreement::Call::sized(const PlanProposal& proposal) const {
  return {proposal.fusion, proposal.sizes, proposal.assumedSizes,
          hasPeers() ? std::string_view(ofFusion(proposal.fusion).text) : std::string_view()};
}

const CallDescriptor& Agreement::Call::ofFusion(const Fusion& fusion) const {
  std::optional<CallDescriptor>& known = agreement_.ofFusion_;
  if (!known) {
    known = descriptorOf(fusion);
  }
  return *known;
}

CallDescriptor Agreement::Call::describe(const PlanProposal& proposal) const {
  CallDescriptor descriptor = ofFusion(proposal.fusion);
  descriptor.arguments = argumentDescriptors(proposal.fusion, proposal.inputs, proposal.sizes);
  return descriptor;
}

// The program of the messages is the number of the call.
std::vector<std::string> Agreement::Call::exchange(std::string_view message) const {
  struct OfCall {
    OfCall(Communicator& c, int64_t number) : comm(c) {
      comm.setProgram(hashCombine(kExchangeOfCall, static_cast<uint64_t>(number)));
    }
    ~OfCall() { comm.setProgram(0); }
    Communicator& comm;
  };
  const OfCall ofCall(communicator(), number_);
  return communicator().exchange(message);
}

void Agreement::Call::compare(const PlanProposal& proposal, const CallDescriptor& call, std::string_view hashed,
                              std::string_view text) const {
  const std::string hash = hashText(fmt::format("call {}\n{}", number_, hashed)).hex();
  communicator().setStep(-1, "compares its plan");
  // the descriptor is for peers that make another call
  std::vector<std::string> answers =
      exchange(fmt::format("{}{}\n{}", kNewPlan, hash, call.toString(kMostOfADescriptor)));
  communicator().setStep(-1, "");
  for (std::string& answer : answers) {
    answer = refuses(answer) ? answer : answer.substr(0, answer.find('\n'));
  }
  if (std::string refusal = refusalOf(answers); !refusal.empty()) {
    throwUserError(std::move(refusal));
  }
  const std::vector<int64_t> different =
      filtered(indices(answers), [&](int64_t r) { return answers[r] != answers[0]; });
  if (!different.empty()) {
    // sizes first: they differ if one rank takes a program that another one plans
    throwDifference(exchange(fmt::format("call {}\n{}{}{}", number_, proposal.assumedSizes,
                                         textOfSizes(proposal.fusion, proposal.sizes), text)),
                    different);
  }
}

// While nothing redistributes, peers whose arguments this rank does not have may run a program without messages.
void Agreement::Call::failBefore(const PlanProposal& proposal, bool isNew, const std::exception& why) const {
  if (!peersCompare(proposal.fusion) || !(isNew || agreement_.redistributes_.value_or(true))) {
    throw;
  }
  refuse(why);
}

void Agreement::Call::failAfter(const AgreedPlan& plan) const {
  if (!hasPeers() || !plan.communicates) {
    throw;
  }
  try {
    throw;
  } catch (const DisagreementError&) {
    throw;  // the peers get this error too
  } catch (const UserError& why) {
    refuse(why);
  } catch (const DeviceError& why) {
    // A binding gives the hint to what fails in its steps. What else fails in the first call fails before them.
    communicator().abort(number_ > 1 ? explained(why) : why.what());
    try {
      communicator().barrier(communicator().world());
    } catch (const DeviceError& ofGroup) {
      throwIfItTells(ofGroup, why);
    }
    throw;
  } catch (const std::exception& why) {
    communicator().abort(why.what());
    throw;
  }
}

void Agreement::Call::refuse(const std::exception& why) const {
  const bool isUsers = dynamic_cast<const UserError*>(&why) != nullptr;
  std::vector<std::string> answers;
  try {
    communicator().setStep(-1, isUsers ? "refuses the call" : fmt::format("refuses the call: {}", why.what()));
    answers = exchange(std::string(isUsers ? kRefusal : kNoPlan) + why.what());
    communicator().setStep(-1, "");
  } catch (const DisagreementError&) {
    throw;  // the peers run a cached plan: all ranks get this error
  } catch (const DeviceError& ofGroup) {
    if (isUsers) {
      throwIfItTells(ofGroup, why);
    }
    // the peers have ended or report another failure: this rank's own error has more detail
  } catch (const Error&) {
    // as above
  }
  const bool areUsers = std::ranges::none_of(answers, [](const std::string& a) { return a.starts_with(kNoPlan); });
  if (isUsers && areUsers && !answers.empty()) {
    throwUserError(refusalOf(answers));
  }
  throw;
}

}  // namespace meshfuse
