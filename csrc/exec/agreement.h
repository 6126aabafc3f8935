// Agreement: the protocol by which the ranks of a communicator agree on a plan before it runs, and report failures of a rank.
//
//   Agreement agreement(communicator, {.maxPlans = 64});
//   const Agreement::Call call = agreement.call();       // takes the call lock
//   compile(fusion, inputs, call, device);               // where no plan fits the arguments
//   call.afterAgreement(plan, [&] { ... run it ... });
//
// Every rank makes the same calls in the same order. Ranks exchange messages for new shapes, never when they run cached plans. Below, a rank
// compiles for new shapes also if it takes a program of a class for them: the ranks then compare the sizes.
//
//   rank 0    rank 1                 result
//   compiles  compiles               they exchange hashes of their plans; different plans are one UserError on both
//   refuses   compiles or refuses    one UserError on both; another call may follow
//   runs      runs                   no exchange
//   runs      compiles or refuses    one DisagreementError on both, as the transport sees two different calls; the group is closed. On GPUs
//                                    with NCCL a refusal of arguments or results is one UserError on both; another call may follow
//   fails     runs                   rank 0 aborts, DeviceError on both; the group is closed
//
// A program whose collectives run beside kernels is aborted by any error within it but a refused index: peers may wait on the threads of
// their collectives (Communicator::lane()).
//
// Messages of different calls do not match: if a rank refuses a call after its peers have completed it, or compiles in a call of another
// number than its peers, all get an error, and the group is closed.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exec/agreed_programs.h"
#include "exec/call_descriptor.h"
#include "multidevice/transport/communicator.h"

namespace meshfuse {

class Error;
class Fusion;
struct DeviceInfo;

// The first words of a line about a global size that a rank assumes, because it takes the shards of all ranks to have the same size.
inline constexpr std::string_view kAssumedSizes = "assuming even shards, ";

struct AgreementOptions {
  size_t maxPlans = 0;              // plans that are kept; the same on all ranks: it decides which calls compile
  bool sharesPlans = true;          // one plan may hold for several sizes; the same on all ranks
  std::string libraryVersion = {};  // default: that of this build
};

// A call that a rank plans; filled in while it plans.
struct PlanProposal {
  const Fusion& fusion;
  std::span<const Argument> inputs;
  std::vector<std::vector<int64_t>> sizes = {};  // of inputs, as globalSizes() gives them
  std::string assumedSizes = {};                 // lines that begin with kAssumedSizes

  [[nodiscard]] AgreedPrograms::Shapes shapes() const;
};

class Agreement {
 public:
  using Shapes = AgreedPrograms::Shapes;
  class Call;
  class Busy;

  explicit Agreement(Communicator& communicator, AgreementOptions options = {})
      : communicator_(communicator), options_(std::move(options)), programs_(options_.maxPlans) {}

  // Takes the call lock if there are several ranks: a call is one sequence of messages to the peers.
  [[nodiscard]] Call call();

 private:
  Communicator& communicator_;
  const AgreementOptions options_;
  int64_t calls_ = 0;
  std::optional<bool> redistributes_;  // some plan so far; nothing before the first
  AgreedPrograms programs_;
  std::optional<CallDescriptor> ofFusion_;  // of all calls: without arguments and plan
};

// One call of this rank.
class Agreement::Call {
 public:
  Communicator& communicator() const { return agreement_.communicator_; }

  // Runs the stages before the agreement. If they fail and the peers compare plans in this call, tells the peers: a UserError becomes one
  // UserError on all ranks, that of the first rank that refuses; any other error is a DeviceError on the peers. If they fail before the sizes
  // of the call are known, this rank tells its peers unless nothing has redistributed: then they may run a program without messages, and it
  // fails alone.
  template <class Body>
  void beforeAgreement(const PlanProposal& proposal, Body&& body) const {
    try {
      body();
    } catch (const std::exception& why) {
      failBefore(proposal, !proposal.sizes.empty(), why);
    }
  }

  // Runs the stages before the agreement as the peers expect of this call: beforeAgreement(), or afterAgreement() if they run a program that
  // was agreed in an earlier call.
  template <class Body>
  void beforeAgreement(const PlanProposal& proposal, const ProgramChoice& choice, Body&& body) const {
    if (choice.isAgreed()) {
      afterAgreement(choice.program->agreed, std::forward<Body>(body));
    } else {
      try {
        body();
      } catch (const std::exception& why) {
        failBefore(proposal, choice.isNew || !proposal.sizes.empty(), why);
      }
    }
  }

  // Whether this rank plans calls of this fusion without its peers: there are none, or no tensor is on a mesh and the first plan has been
  // compared. It then agrees on nothing.
  [[nodiscard]] bool plansAlone(const Fusion& fusion) const;
  // Whether ranks compare plans in this call, if they have not agreed on its shapes. Ranks compare their first plan; later ones once some
  // plan redistributes, or if sizes may be assumed and every mesh has all ranks. (A rank outside of a mesh has no shard from which to
  // assume a global size.)
  [[nodiscard]] bool peersCompare(const Fusion& fusion) const;

  // What this call does, the same on all ranks; see exec/agreed_programs.h. A rank that plans alone plans a program for `wanted`. So it does
  // if peers compare nothing: `wanted` must then be constant.
  [[nodiscard]] ProgramChoice choose(const PlanProposal& proposal, const ShapeClass& wanted,
                                     const SymbolValues& values) const;

  // Agrees on a program, if this rank has planned one: sets program->agreed. Compares the hash of (number of the call, platform, planned
  // program) on all ranks if the shapes are in no list of agreed_programs.h, and if peersCompare() is true or this plan communicates or
  // redistributes. Platform: version of the library, target of kernels, maxPlans, sharePlans. Processors, layouts, kernels and verification
  // may differ. UserError on every rank, with one text: the ranks that differ and the first differing line, or the error of a rank that
  // refuses. On a program of a class the ranks agree for later: agreeOnSizes() follows in this call. Nothing is agreed without a
  // comparison, but this rank remembers the shapes.
  void agree(const PlanProposal& proposal, const std::shared_ptr<PlannedProgram>& program,
             const DeviceInfo& device) const;

  // Agrees that a program of a class runs for new sizes, `proposal.sizes`, when this rank has all that it needs to run it. The plan for these
  // sizes. Compares the sizes on all ranks; errors as of agree(). Exchanges nothing if the ranks agreed on these shapes before.
  [[nodiscard]] AgreedPlan agreeOnSizes(const PlanProposal& proposal,
                                        const std::shared_ptr<const PlannedProgram>& ofClass,
                                        const SymbolValues& values) const;

  // Runs a stage that follows planning, of a proposal with its sizes, as the peers expect of this call: beforeAgreement() if agreeOnSizes() is
  // to come, with the peers waiting there, else afterAgreement().
  template <class Body>
  void afterPlanning(const PlanProposal& proposal, const PlannedProgram& program, Body&& body) const {
    if (!program.sizes.isConstant() && hasPeers() && agreed(proposal.shapes()) == nullptr) {
      beforeAgreement(proposal, std::forward<Body>(body));
    } else {
      afterAgreement(program.agreed, std::forward<Body>(body));
    }
  }

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

  bool hasPeers() const { return lock_.owns_lock(); }
  // The fusion with the sizes of the call, and with its text if peers may ask for it.
  [[nodiscard]] SizedFusion sized(const PlanProposal& proposal) const;
  // As AgreedPrograms has it; null and empty without peers.
  std::shared_ptr<const PlannedProgram> agreed(const Shapes& shapes) const;
  [[nodiscard]] std::vector<Shapes> takeEvicted() const;

 private:
  friend class Agreement;
  explicit Call(Agreement& agreement);
  std::vector<std::string> exchange(std::string_view message) const;
  CallDescriptor describe(const PlanProposal& proposal) const;
  const CallDescriptor& ofFusion(const Fusion& fusion) const;
  // `hashed`: the text whose hash, together with the number of the call, must be the same on all ranks. `text`: if the hashes differ, the
  // ranks exchange their sizes followed by this text, and the error names the first line that differs.
  void compare(const PlanProposal& proposal, const CallDescriptor& call, std::string_view hashed,
               std::string_view text) const;
  // Handle the current exception and throw it again, or the error of the group.
  [[noreturn]] void failBefore(const PlanProposal& proposal, bool isNew, const std::exception& why) const;
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
