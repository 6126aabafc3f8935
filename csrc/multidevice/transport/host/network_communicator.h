// The communicator of ranks on several hosts: messages between every two ranks of a team.
//
// Each rank sends every other rank a head (the record of the call and small data), and large data as a second message. Ranks compare heads
// before they wait for any data. Reductions work in team order, so results have the same bits as on one host, unless the table of
// algorithms contains `order=any`.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/ranges.h"
#include "multidevice/transport/algorithms.h"
#include "multidevice/transport/call.h"
#include "multidevice/transport/flight_recorder.h"
#include "multidevice/transport/host/network_link.h"
#include "multidevice/transport/host/network_watch.h"
#include "multidevice/transport/host/world.h"
#include "multidevice/transport/lanes.h"

namespace meshfuse {

class NetworkRejoin;

class NetworkCommunicator final : public Communicator {
 public:
  // hosts: a number for each rank; ranks of one host have the same number. Empty: every rank is on a host of its own.
  NetworkCommunicator(std::shared_ptr<Bootstrap> bootstrap, const TransportOptions& options, std::string world,
                      std::vector<int64_t> hosts = {});
  // The lane of a team.
  NetworkCommunicator(NetworkCommunicator& whole, const Team& team);
  ~NetworkCommunicator() override;

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  std::string_view transport() const override { return "network"; }
  bool sparesProcessor() const override;  // while a message is on its way to another host
  std::shared_ptr<void> allocate(size_t bytes) override { return allocateOrdinary(bytes); }

  void run(const CollectiveCall& call) override;
  void transfer(std::span<const Transfer> transfers) override;
  void await(const Team& team, const std::function<bool()>& ready) override;
  Communicator* lane(const Team& team) override;
  std::vector<std::string> exchange(std::string_view message) override;

  void setStep(int64_t step, std::string_view what) override;
  void setBusy(bool busy) override { watch_.setBusy(busy); }
  void abort(std::string_view reason) override;

 private:
  Survivors survivors() override;
  // The data that this rank sends to and receives from one member of the team.
  struct Parcel {
    const void* out = nullptr;
    int64_t outBytes = 0;
    void* in = nullptr;
    int64_t inBytes = 0;
  };
  // The positions of a team's ranks by host, in the order in which hosts first appear.
  using Hosts = std::vector<std::vector<int64_t>>;
  // The data that a rank sends and receives in one step; -1: no peer.
  struct Hop {
    int64_t to = -1;
    const std::byte* out = nullptr;
    int64_t outBytes = 0;
    int64_t from = -1;
    std::byte* in = nullptr;
    int64_t inBytes = 0;
  };
  struct Pending {
    NetworkLink::Operation operation;
    int64_t peer;
    int64_t expected;  // bytes of a received message; -1: a sent message, or any number
  };
  enum class Tag : uint64_t { Head = 1, Data = 2, Transfer = 3 };

  // Begins the record of a call, which runs until leave().
  void enter(const CallRecord& record);
  void leave();
  // The sizes of nearly equal parts of the elements of a call, one for each rank.
  static std::vector<int64_t> partsOf(const CollectiveCall& call);
  // The positions of the other ranks in a team.
  auto positionsOfOthers(const Team& team) const {
    return indices(team.ranks) | std::views::filter([this, &team](int64_t i) { return team.ranks[i] != rank_; });
  }
  // One parcel for each member, in team order; the parcel of this rank is ignored.
  void swapParcels(const Team& team, const CallRecord& record, std::span<const Parcel> parcels);
  void pass(std::span<const Hop> hops);
  void pass(const Hop& hop) { pass({&hop, 1}); }
  // `full`: the position of a rank that has all blocks from the start and receives none; -1: no rank.
  void passAround(const Team& team, int64_t position, const Blocks& blocks, int64_t elementBytes, std::byte* out,
                  int64_t full = -1);
  Algorithm algorithmFor(const CollectiveCall& call) const;
  Algorithm algorithmOfAllReduce(const CollectiveCall& call) const;
  Hosts hostsOf(const Team& team) const;
  // Each returns the bytes received.
  int64_t carry(const CollectiveCall& call, Algorithm algorithm);
  int64_t swapBlocks(const CollectiveCall& call);
  int64_t gatherAround(const CollectiveCall& call);
  int64_t passDown(const CollectiveCall& call);
  int64_t passParts(const CollectiveCall& call);
  int64_t reduceByGathering(const CollectiveCall& r, Algorithm algorithm);
  int64_t reduceByDoubling(const CollectiveCall& r);
  int64_t reduceAround(const CollectiveCall& r);
  int64_t reduceByHost(const CollectiveCall& r);
  // chain: the rank of each host that reduces this part; this rank is at `here`. inputs: the inputs of this host's ranks, of `count`
  // elements that begin at `from`; their results are in the output.
  int64_t passFromHostToHost(const CollectiveCall& r, std::span<const int64_t> chain, int64_t here,
                             std::span<const std::byte* const> inputs, int64_t from, int64_t count);
  // idle: called regularly if no message has progressed for long.
  void waitForAll(std::vector<Pending>& pending, const std::function<void()>& idle = {});
  // Fails the call if an awaited sender is in a collective, or sends messages of another program, instead.
  void checkCome(const std::vector<Pending>& pending);
  void tellThoseWhoComeLater();
  // Calls `wait`. If it throws, cancels the messages of the failed call and closes the library: afterwards it touches no memory of the
  // caller.
  template <class Wait>
  void orAbandon(std::initializer_list<std::vector<Pending>*> messages, const Wait& wait) {
    try {
      wait();
    } catch (...) {
      for (std::vector<Pending>* pending : messages) {
        for (Pending& p : *pending) {
          link_->abandon(p.operation);
        }
      }
      link_->close();
      throw;
    }
  }
  void connect();
  void awaitNews();
  // Writes this communicator's record before it throws.
  void throwIfFailed();
  [[noreturn]] void failCall(const GroupFailure& failure);
  [[noreturn]] void failedMessage(int64_t peer, const std::string& error);
  // The bytes of an exchange's message that came with its head.
  static std::string_view messageIn(const CallRecord& call, const std::byte* head);
  void checkHeads(const Team& team, const CallRecord& record, std::span<const Parcel> parcels);
  const std::string& worldName() const { return recorder_.place().world; }
  std::string peerName(int64_t rank) const;  // [rank 1/4]
  // Where this rank is: the call of the communicator or of one of its lanes; if none is in a call, the last step.
  std::string place() const;
  struct Place {
    int64_t known = 0;  // 2: the call; 1: the step of the last call; 0: neither
    std::string text;
  };
  Place ownPlace() const;
  // The lane bits of a tag: 0 for the whole communicator, else some bits of the team's hash. Sequence numbers wrap around, which is safe:
  // fewer messages are in flight.
  uint64_t tag(Tag kind, uint32_t sequence, int64_t source) const {
    return static_cast<uint64_t>(kind) << 62 | static_cast<uint64_t>(lane_) << (kSequenceBits + kSourceBits) |
           static_cast<uint64_t>(sequence & ((1U << kSequenceBits) - 1)) << kSourceBits | static_cast<uint64_t>(source);
  }
  // The tag of a transfer contains its program; in a lane some bits of it. Messages with one tag arrive in the order in which they were
  // sent.
  uint64_t transferTag(uint32_t program, int64_t source) const {
    return isLane_ ? tag(Tag::Transfer, program, source)
                   : static_cast<uint64_t>(program) << kSourceBits | static_cast<uint64_t>(source);
  }
  static constexpr int64_t kSourceBits = 16;
  static constexpr int64_t kSequenceBits = 22;
  static constexpr int64_t kLaneBits = 24;
  static constexpr uint64_t kAllButProgram = ~(uint64_t{0xffffffff} << kSourceBits);

  std::shared_ptr<Bootstrap> bootstrap_;
  int64_t rank_;
  int64_t size_;
  TransportOptions options_;
  AlgorithmTable algorithms_;
  std::vector<int64_t> hosts_;  // by rank
  FlightRing flight_{};
  FlightRecorder recorder_;
  FlightEvent* event_ = nullptr;   // of the call under way
  mutable std::mutex placeMutex_;  // guards the data of place(), which the watch's thread reads too
  CallRecord call_;
  bool inCall_ = false;
  int64_t step_ = -1;
  std::string what_;
  std::unique_ptr<NetworkWatch> ownWatch_;  // a lane uses the watch of the whole communicator
  NetworkWatch& watch_;
  std::shared_ptr<NetworkLink> link_;  // closed after a failure
  uint32_t lane_ = 0;                  // the lane bits of a tag
  std::atomic<bool> sharesLink_ = false;
  std::vector<uint32_t> calls_;     // with each peer
  std::vector<std::byte> heads_;    // sent and received, of the call under way
  bool leaving_ = false;            // this rank leaves, without a failure
  std::map<uint32_t, Team> teams_;  // of the lanes
  Lanes lanes_;
  std::shared_ptr<NetworkRejoin> rejoin_;  // of the last shrink(): late ranks read the notes on its connections
  std::jthread answers_;                   // answers ranks that rejoin too late
};

}  // namespace meshfuse
