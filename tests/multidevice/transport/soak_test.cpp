// Many small collectives of changing teams with random delays: the same slots, stages, lines and chunks again and again, in
// every order of arrival. A short version runs always; MESHFUSE_SOAK=1000000 asks for a million calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/hash.h"
#include "multidevice/multidevice_test.h"
#include "multidevice/transport/processes.h"

namespace meshfuse {
namespace {

using namespace std::chrono_literals;

constexpr int kSoakRanks = 4;
constexpr int64_t kLargest = 1024;  // elements of a block

int64_t callsAskedFor(int64_t otherwise) {
  const char* text = std::getenv("MESHFUSE_SOAK");
  return text == nullptr ? otherwise : std::strtoll(text, nullptr, 10);
}

// What rank `r` has for position `to` of its team in call `i`.
int64_t value(int64_t i, int r, int64_t to) { return i * 100 + r * 10 + to; }

// One call of the team {ranks}, as this rank makes it, and whether the result is right.
class SoakCall {
 public:
  SoakCall(Communicator& comm, Team team, int64_t index, uint64_t random)
      : comm_(comm),
        team_(std::move(team)),
        n_(std::ssize(team_.ranks)),
        me_(std::find(team_.ranks.begin(), team_.ranks.end(), comm.rank()) - team_.ranks.begin()),
        index_(index),
        count_(static_cast<int64_t>((random >> 8) % 100) * ((random >> 20) % 8 == 0 ? 10 : 1)),
        kind_((random >> 30) % 11) {}

  bool isRight() {
    switch (kind_) {
      case 0:
        return reduces([&] { comm_.allReduce(team_, in_.data(), out_.data(), count_, DataType::Int, ReduceOp::Sum); },
                       {count_}, 0);
      case 1:
        return reduces(
            [&] { comm_.reduceScatter(team_, in_.data(), out_.data(), count_, DataType::Int, ReduceOp::Sum); },
            std::vector<int64_t>(n_, count_), me_);
      case 2:
        return moves([&] { comm_.allGather(team_, in_.data(), out_.data(), count_, DataType::Int); }, {count_},
                     std::vector<int64_t>(n_, count_), 0);
      case 3: {
        const std::vector<int64_t> counts(n_, count_);
        return moves([&] { comm_.allToAll(team_, in_.data(), out_.data(), count_, DataType::Int); }, counts, counts,
                     me_);
      }
      case 4: {
        const std::vector<int64_t> counts = ragged(0);
        return moves([&] { comm_.allGatherV(team_, in_.data(), out_.data(), counts, DataType::Int); }, {counts[me_]},
                     counts, 0);
      }
      case 5: {
        std::vector<int64_t> sent;
        for (int64_t j = 0; j < n_; ++j) {
          sent.push_back(ragged(me_)[j]);
        }
        std::vector<int64_t> received;
        for (int64_t j = 0; j < n_; ++j) {
          received.push_back(ragged(j)[me_]);
        }
        return moves([&] { comm_.allToAllV(team_, in_.data(), out_.data(), sent, received, DataType::Int); }, sent,
                     received, me_);
      }
      case 6:
        return broadcasts();
      case 7: {
        const std::vector<int64_t> counts(isRoot() ? static_cast<size_t>(n_) : 0, count_);
        return moves([&] { comm_.gather(team_, in_.data(), out_.data(), count_, DataType::Int, root()); }, {count_},
                     counts, 0);
      }
      case 8: {
        fill(std::vector<int64_t>(n_, count_));
        comm_.scatter(team_, in_.data(), out_.data(), count_, DataType::Int, root());
        const int64_t expected = value(index_, team_.ranks[root()], me_);
        return std::count(out_.begin(), out_.begin() + count_, expected) == count_ && out_[count_] == -1;
      }
      case 9: {
        const auto reduce = [&] {
          comm_.reduce(team_, in_.data(), out_.data(), count_, DataType::Int, {.op = ReduceOp::Sum, .root = root()});
        };
        return isRoot() ? reduces(reduce, {count_}, 0) : moves(reduce, {count_}, {}, 0);
      }
      default:
        comm_.barrier(team_);
        return true;
    }
  }

 private:
  // As many elements as rank `from` of the team has for each position; small, some zero.
  std::vector<int64_t> ragged(int64_t from) const {
    std::vector<int64_t> counts;
    for (int64_t j = 0; j < n_; ++j) {
      counts.push_back((count_ + from * 7 + j * 13) % 40);
    }
    return counts;
  }

  void fill(const std::vector<int64_t>& blocks) {
    in_.clear();
    for (size_t b = 0; b < blocks.size(); ++b) {
      in_.insert(in_.end(), blocks[b], value(index_, comm_.rank(), static_cast<int64_t>(b)));
    }
    out_.assign(kLargest * kSoakRanks, -1);
  }

  template <class Call>
  bool reduces(const Call& call, const std::vector<int64_t>& blocks, int64_t own) {
    fill(blocks);
    call();
    int64_t sum = 0;
    for (int r : team_.ranks) {
      sum += value(index_, r, own);
    }
    return std::count(out_.begin(), out_.begin() + count_, sum) == count_;
  }

  // `to`: for whom the blocks are that arrive.
  template <class Call>
  bool moves(const Call& call, const std::vector<int64_t>& sent, const std::vector<int64_t>& received, int64_t to) {
    fill(sent);
    call();
    auto at = out_.begin();
    bool right = true;
    for (size_t i = 0; i < received.size(); ++i) {
      right = right && std::count(at, at + received[i], value(index_, team_.ranks[i], to)) == received[i];
      at += received[i];
    }
    return right && *at == -1;
  }

  int root() const { return static_cast<int>(index_ % n_); }
  bool isRoot() const { return me_ == root(); }

  bool broadcasts() {
    std::vector<int64_t> data(count_, value(index_, comm_.rank(), 0));
    comm_.broadcast(team_, data.data(), count_, DataType::Int, root());
    return std::count(data.begin(), data.end(), value(index_, team_.ranks[root()], 0)) == count_;
  }

  Communicator& comm_;
  Team team_;
  int64_t n_;
  int64_t me_;
  int64_t index_;
  int64_t count_;
  uint64_t kind_;
  std::vector<int64_t> in_;
  std::vector<int64_t> out_;
};

std::string soak(Communicator& comm, int64_t calls) {
  uint64_t random = 1;  // the same on all ranks
  uint64_t delay = hashCombine(7, static_cast<uint64_t>(comm.rank()));
  for (int64_t i = 0; i < calls; ++i) {
    random = hashCombine(random, static_cast<uint64_t>(i));
    delay = hashCombine(delay, static_cast<uint64_t>(i));
    Team team;
    for (int r = 0; r < kSoakRanks; ++r) {
      if (r != static_cast<int>(random % 8)) {  // half of the calls leave one rank out
        team.ranks.push_back(r);
      }
    }
    if (std::ssize(team.ranks) < kSoakRanks && comm.rank() == static_cast<int>(random % 8)) {
      continue;
    }
    if (random >> 60 == 0) {
      std::reverse(team.ranks.begin(), team.ranks.end());
    }
    if (delay % 64 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(delay / 64 % 300));
    }
    if (!SoakCall(comm, team, i, random).isRight()) {
      return fmt::format("call {} is wrong on rank {}", i, comm.rank());
    }
  }
  return "done";
}

void expectDone(int64_t calls, const TransportOptions& options) {
  for (const ProcessOutcome& o : runProcesses(
           kSoakRanks, [&](Communicator& comm) { return soak(comm, calls); }, options, 1h)) {
    EXPECT_TRUE(o.ended);
    EXPECT_EQ(o.text, "done");
  }
}

class SoakTest : public testing::Test {
 protected:
  void SetUp() override {
    if (MultiDeviceTest::launched()) {
      GTEST_SKIP() << "starts ranks of its own; run it without a launcher";
    }
  }
};

TEST_F(SoakTest, Loopback) {
  runLoopback(kSoakRanks, [](Communicator& comm) { EXPECT_EQ(soak(comm, callsAskedFor(5'000)), "done"); });
}

TEST_F(SoakTest, Host) { expectDone(callsAskedFor(20'000), {.deadline = 60s}); }

TEST_F(SoakTest, Network) {
  if (const std::string why = whyNoNetwork(); !why.empty()) {
    GTEST_SKIP() << why;
  }
  expectDone(callsAskedFor(3'000), {.deadline = 60s, .messagesOnly = true});
}

}  // namespace
}  // namespace meshfuse
