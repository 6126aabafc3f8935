// Agreement: the protocol by which the ranks of a communicator agree on a plan before it runs, and report failures of a rank.
//
//   Agreement agreement(communicator, {.maxPlans = 64});
//   const Agreement::Call call = agreement.call();       // takes the call lock
//   compile(fusion, inputs, call, device);               // where no plan fits the arguments
//   call.afterAgreement(plan, [&] { ... run it ... });
//
// Every rank makes the same calls in the same order. Ranks exchange messages when they compile, never when they run cached plans:
//
//   rank 0    rank 1                 result
//   compiles  compiles               they exchange hashes of their plans; different plans are one UserError on both
//   refuses   compiles or refuses    one UserError on both; another call may follow
//   runs      runs                   no exchange
//   runs      compiles or refuses    one DisagreementError on both, as the transport sees two different calls; the group is closed. On GPUs
//                                    with NCCL a refusal of arguments or results is one UserError on both; another call may follow
//   fails     runs                   rank 0 aborts, DeviceError on both; the group is closed
//
// A program whose collectives run beside kernels is aborted by any error within it but a refused index: peers may wait in lanes.
//
// Messages of different calls do not match: if a rank refuses a call after its peers have completed it, or compiles in a call of another
// number than its peers, all get an error, and the group is closed.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exec/argument_facts.h"
#include "multidevice/transport/communicator.h"

namespace meshfuse {

class Error;
class Fusion;
struct DeviceInfo;
struct PlanDescriptor;

// The first words of a line about a global size that a rank assumes, because it takes the shards of all ranks to have the same size.
inline constexpr std::string_view kAssumedSizes = "assuming even shards, ";

struct AgreementOptions {
  size_t maxPlans = 0;              // decides which calls compile, so all ranks must have the same
  std::string libraryVersion = {};  // default: that of this build
};

// A call that a rank plans; filled in while it plans.
struct PlanProposal {
  const Fusion& fusion;
  std::span<const Argument> inputs;
  std::vector<std::vector<int64_t>> sizes = {};  // of inputs, as globalSizes() gives them
  std::string assumedSizes = {};                 // lines that begin with kAssumedSizes
};

// A plan on which the ranks agree.
struct AgreedPlan {
  uint64_t identity = 0;       // a hash of the planned program: the same on all ranks
  bool communicates = false;   // some rank does
  bool redistributes = false;  // the program may communicate at other sizes, even if this plan does not
  std::shared_ptr<const PlanDescriptor> descriptor =
      {};  // only on several ranks, for a plan that communicates; exists while the plan may run
};

class Agreement {
 public:
  using Shapes = std::vector<ArgumentFacts>;
  class Call;
  class Busy;

  explicit Agreement(Communicator& communicator, AgreementOptions options = {})
      : communicator_(communicator), options_(std::move(options)) {}

  // Takes the call lock if there are several ranks: a call is one sequence of messages to the peers.
  [[nodiscard]] Call call();

 private:
  Communicator& communicator_;
  const AgreementOptions options_;
  int64_t calls_ = 0;
  std::optional<bool> redistributes_;  // some plan so far; nothing before the first
  // Shapes that the ranks have agreed on, most recently used first. Strides and alignments may differ from rank to rank and from
  // call to call, so whether ranks exchange must not depend on them: ranks that make the same calls have the same list. It does not depend
  // on what a rank does after the agreement either: a rank that fails there has agreed as its peers have.
  std::list<Shapes> agreed_;
  std::vector<Shapes> evicted_;
};

// One call of this rank.
class Agreement::Call {
 public:
  Communicator& communicator() const { return agreement_.communicator_; }

  // Runs the stages before the agreement. If they fail and the peers compare plans in this call, tells the peers: a UserError becomes one
  // UserError on all ranks, that of the first rank that refuses; any other error is a DeviceError on the peers.
  template <class Body>
  void beforeAgreement(const PlanProposal& proposal, Body&& body) const {
    try {
      body();
    } catch (const std::exception& why) {
      failBefore(proposal, why);
    }
  }

  // Compares the hash of (number of the call, platform, planned program) on all ranks, unless they agreed on these shapes before or
  // nothing communicates. Platform: version of the library, target of kernels, maxPlans. Processors, layouts, kernels and verification
  // may differ. UserError on every rank, with one text: the ranks that differ and the first differing line, or the error of a rank that
  // refuses.
  [[nodiscard]] AgreedPlan agree(const PlanProposal& proposal, const Fusion& global, const DeviceInfo& device) const;

  // Compiles or runs an agreed plan. If that fails and the plan communicates, tells the peers: a UserError is a refusal, since all ranks
  // may refuse the same call; any other error aborts the group.
  template <class Body>
  void afterAgreement(const AgreedPlan& plan, Body&& body) const {
    try {
      body();
    } catch (const std::exception&) {
      failAfter(plan);
    }
  }

  // Marks shapes as the most recently used. False if there are peers that have not agreed on them.
  bool use(const Shapes& shapes) const;
  // The shapes that agree() has evicted since the last call of this function: ranks will exchange for them again, so their plans go too,
  // also if this rank has failed to compile the plan that it agreed on.
  [[nodiscard]] std::vector<Shapes> takeEvicted() const;

 private:
  friend class Agreement;
  explicit Call(Agreement& agreement);
  bool hasPeers() const { return lock_.owns_lock(); }
  bool peersCompare(const PlanProposal& proposal) const;
  std::vector<std::string> exchange(std::string_view message) const;
  void keep(const Shapes& shapes, const AgreedPlan& plan) const;
  void compare(const PlanProposal& proposal, const PlanDescriptor& plan, const std::string& program,
               const DeviceInfo& device) const;
  // Handle the current exception and throw it again, or the error of the group.
  [[noreturn]] void failBefore(const PlanProposal& proposal, const std::exception& why) const;
  [[noreturn]] void failAfter(const AgreedPlan& plan) const;
  [[noreturn]] void refuse(const std::exception& why) const;

  Agreement& agreement_;
  std::unique_lock<std::mutex> lock_;
  int64_t number_ = 0;  // the same on all ranks
};

// Peers that wait for this rank extend their deadline while this lives.
class Agreement::Busy {
 public:
  explicit Busy(const Call& call) : communicator_(call.communicator()) { communicator_.setBusy(true); }
  ~Busy() { communicator_.setBusy(false); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  Communicator& communicator_;
};

// Whether some rank communicates in a planned program.
[[nodiscard]] bool communicates(const Fusion& global);

}  // namespace meshfuse
