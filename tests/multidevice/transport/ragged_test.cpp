// Collectives with a count for each rank against the plain reference, on any transport; and what happens where counts differ.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/hash.h"
#include "multidevice/multidevice_test.h"
#include "multidevice/transport/processes.h"
#include "multidevice/transport/reference.h"

namespace meshfuse {
namespace {

using namespace std::chrono_literals;

using Counts = std::vector<int64_t>;

// Ranks that never get a thing, ranks that get little and ranks that get much.
int64_t countOf(uint64_t seed, int64_t i, int64_t j, int64_t scale) {
  const uint64_t r = hashCombine(hashCombine(seed, static_cast<uint64_t>(i)), static_cast<uint64_t>(j));
  return r % 4 == 0 ? 0 : static_cast<int64_t>(r / 4 % static_cast<uint64_t>(r % 4 == 1 ? 5 : scale));
}

// A buffer in shared or ordinary memory, as the seed has it for this rank; null where it is empty.
struct SeededBuffer {
  SeededBuffer(Communicator& comm, uint64_t seed, const Bytes& content) : bytes(content.size()) {
    const bool shared = hashCombine(seed, static_cast<uint64_t>(comm.rank())) % 2 == 0;
    memory = shared ? comm.allocate(bytes) : allocateOrdinary(bytes);
    std::copy(content.begin(), content.end(), static_cast<std::byte*>(memory.get()));
  }
  void* get() const { return bytes == 0 ? nullptr : memory.get(); }
  Bytes content() const {
    const auto* p = static_cast<const std::byte*>(memory.get());
    return Bytes(p, p + bytes);
  }
  size_t bytes;
  std::shared_ptr<void> memory;
};

Bytes blank(DataType type, int64_t count) { return Bytes(count * dataTypeSize(type)); }

std::string wrong(std::string_view what, const SeededBuffer& got, const Bytes& expected, DataType type, uint64_t seed) {
  const int64_t at = firstDifference(got.content(), expected, type);
  return at < 0 ? "" : fmt::format("{} of {}, seed {}: element {} differs; ", what, name(type), seed, at);
}

// Called by the members of the team; "" if all is well.
std::string checkRagged(Communicator& comm, const Team& team, DataType type, int64_t scale, uint64_t seed) {
  const auto n = std::ssize(team.ranks);
  const int64_t me = std::find(team.ranks.begin(), team.ranks.end(), comm.rank()) - team.ranks.begin();
  const auto own = static_cast<size_t>(me);
  Counts counts;
  Counts begins;
  int64_t total = 0;
  for (int64_t i = 0; i < n; ++i) {
    begins.push_back(total);
    counts.push_back(countOf(seed, i, 99, scale));
    total += counts.back();
  }
  std::vector<Bytes> blocks;
  std::vector<Bytes> whole;
  for (int64_t i = 0; i < n; ++i) {
    const int r = team.ranks[i];
    blocks.push_back(testData(type, counts[i], r, seed));
    whole.push_back(testData(type, total, r, seed + 1));
  }
  std::string text;
  const SeededBuffer block(comm, seed + 2, blocks[own]);
  const SeededBuffer all(comm, seed + 3, blank(type, total));
  comm.allGatherV(team, block.get(), all.get(), counts, type);
  text += wrong("all-gather-v", all, concatenated(blocks), type, seed);

  const SeededBuffer in(comm, seed + 4, whole[own]);
  const SeededBuffer out(comm, seed + 5, blank(type, counts[own]));
  comm.reduceScatterV(team, in.get(), out.get(), counts, type, ReduceOp::Sum);
  text += wrong("reduce-scatter-v", out,
                elements(referenceReduce(whole, type, ReduceOp::Sum), type, begins[own], counts[own]), type, seed);

  // Rank i sends rank j what the seed says, of its own data.
  Counts sent;
  Counts received;
  std::vector<Bytes> expected;
  for (int64_t j = 0; j < n; ++j) {
    sent.push_back(countOf(seed, me, j, scale));
    received.push_back(countOf(seed, j, me, scale));
    int64_t before = 0;
    int64_t theirs = 0;
    for (int64_t k = 0; k < n; ++k) {
      before += k < me ? countOf(seed, j, k, scale) : 0;
      theirs += countOf(seed, j, k, scale);
    }
    expected.push_back(elements(testData(type, theirs, team.ranks[j], seed + 6), type, before, received.back()));
  }
  const SeededBuffer from(comm, seed + 7,
                          testData(type, std::accumulate(sent.begin(), sent.end(), int64_t{0}), comm.rank(), seed + 6));
  const SeededBuffer to(comm, seed + 8, blank(type, std::accumulate(received.begin(), received.end(), int64_t{0})));
  comm.resetCounters();
  comm.allToAllV(team, from.get(), to.get(), sent, received, type);
  const int64_t foreign =
      (std::accumulate(received.begin(), received.end(), int64_t{0}) - received[own]) * dataTypeSize(type);
  if (comm.counters()[Collective::AllToAll].bytesReceived != foreign) {
    text += fmt::format("all-to-all-v counts {} bytes, expected {}; ",
                        comm.counters()[Collective::AllToAll].bytesReceived, foreign);
  }
  return text + wrong("all-to-all-v", to, concatenated(expected), type, seed);
}

std::string checkManyRagged(Communicator& comm) {
  std::vector<Team> teams = {comm.world(), comm.world()};
  std::reverse(teams[1].ranks.begin(), teams[1].ranks.end());
  teams.push_back({{comm.size() - 1, 0}});
  teams.push_back({{0}});
  std::string text;
  uint64_t seed = 1;
  for (const Team& team : teams) {
    for (DataType type : {DataType::Float, DataType::BFloat16, DataType::Int, DataType::Bool}) {
      for (int64_t scale : {3, 700, 20'000, 150'000}) {
        seed += 100;
        if (std::find(team.ranks.begin(), team.ranks.end(), comm.rank()) != team.ranks.end()) {
          text += checkRagged(comm, team, type, scale, seed);
        }
      }
    }
  }
  return text;
}

class RaggedTest : public MultiDeviceTest {};

TEST_F(RaggedTest, EveryRankGetsItsCount) {
  runOnRanks([](Communicator& comm) { EXPECT_EQ(checkManyRagged(comm), ""); });
}

TEST_F(RaggedTest, OneRankAlone) {
  const std::unique_ptr<Communicator> self = makeSelfCommunicator();
  EXPECT_EQ(checkRagged(*self, self->world(), DataType::Float, 100, 7), "");
}

TEST_F(RaggedTest, AllCountsMayBeZero) {
  runOnRanks([](Communicator& comm) {
    const Counts none(comm.size());
    comm.allGatherV(comm.world(), nullptr, nullptr, none, DataType::Float);
    comm.reduceScatterV(comm.world(), nullptr, nullptr, none, DataType::Float, ReduceOp::Sum);
    comm.allToAllV(comm.world(), nullptr, nullptr, none, none, DataType::Float);
  });
}

TEST_F(RaggedTest, CallersMistakesAreUserErrors) {
  runOnRanks([](Communicator& comm) {
    Counts counts(comm.size(), 1);
    counts.pop_back();
    std::vector<float> data(16);
    EXPECT_THROW(comm.allGatherV(comm.world(), data.data(), data.data(), counts, DataType::Float), UserError);
    counts.push_back(-1);
    EXPECT_THROW(comm.reduceScatterV(comm.world(), data.data(), data.data(), counts, DataType::Float, ReduceOp::Sum),
                 UserError);
    counts.back() = 1;
    Counts other = counts;
    other[comm.rank()] = 2;
    EXPECT_THROW(comm.allToAllV(comm.world(), data.data(), data.data(), counts, other, DataType::Float), UserError);
  });
}

// Counts on which the ranks disagree; the error each of them gets.
std::string disagreeAboutCounts(Communicator& comm, bool pairwise) {
  std::vector<float> in(64);
  std::vector<float> out(64);
  Counts counts = {4, 5, 6};
  Counts received = counts;
  try {
    if (pairwise) {  // rank 0 sends rank 2 what rank 2 does not expect
      received.assign(3, counts[comm.rank()]);
      received[0] += comm.rank() == 2 ? 1 : 0;
      comm.allToAllV(comm.world(), in.data(), out.data(), counts, received, DataType::Float);
    } else {
      if (comm.rank() == 1) {
        std::swap(counts[0], counts[2]);
      }
      comm.allGatherV(comm.world(), in.data(), out.data(), counts, DataType::Float);
    }
    comm.barrier(comm.world());
  } catch (const DeviceError& e) {
    return e.what();
  }
  return "no error";
}

void expectSaid(const std::vector<std::string>& texts, bool pairwise) {
  for (const std::string& text : texts) {
    EXPECT_NE(
        text.find(pairwise ? "rank 0 sends rank 2 6 elements, rank 2 expects 7" : "give different counts by rank"),
        std::string::npos)
        << text;
    EXPECT_NE(text.find(pairwise ? "all-to-all-v of Float" : "all-gather-v of 15 Float"), std::string::npos) << text;
  }
}

TEST_F(RaggedTest, CountsThatDifferAreErrorsOnAllRanks) {
  if (launched()) {
    GTEST_SKIP() << "starts ranks of its own; run it without a launcher";
  }
  for (bool pairwise : {false, true}) {
    std::vector<std::string> texts(3);
    runLoopback(3, [&](Communicator& comm) { texts[comm.rank()] = disagreeAboutCounts(comm, pairwise); });
    expectSaid(texts, pairwise);
    for (bool messagesOnly : {false, true}) {
      if (messagesOnly && !whyNoNetwork().empty()) {
        continue;
      }
      texts.clear();
      for (const ProcessOutcome& o :
           runProcesses(3, [&](Communicator& comm) { return disagreeAboutCounts(comm, pairwise); },
                        {.deadline = kFailureDeadline, .messagesOnly = messagesOnly})) {
        texts.push_back(o.text);
      }
      expectSaid(texts, pairwise);
    }
  }
}

TEST_F(RaggedTest, ProcessesOfOneHostAndOfSeveral) {
  if (launched()) {
    GTEST_SKIP() << "starts ranks of its own; run it without a launcher";
  }
  for (bool messagesOnly : {false, true}) {
    for (const ProcessOutcome& o :
         runProcesses(3, [](Communicator& comm) { return std::string(comm.transport()) + checkManyRagged(comm); },
                      {.deadline = kFailureDeadline, .messagesOnly = messagesOnly})) {
      if (!messagesOnly || whyNoNetwork().empty()) {
        EXPECT_EQ(o.text, messagesOnly ? "network" : "host");
      }
    }
  }
}

// A send that is still under way is not taken for a part of an all-to-all-v.
TEST_F(RaggedTest, MessagesAndAllToAllsKeepApart) {
  if (launched()) {
    GTEST_SKIP() << "starts ranks of its own; run it without a launcher";
  }
  auto outcomes =
      runProcesses(2,
                   [](Communicator& comm) -> std::string {
                     std::vector<float> data(8, static_cast<float>(comm.rank()));
                     std::vector<float> got(16);
                     const Counts counts = {4, 4};
                     try {
                       if (comm.rank() == 0) {
                         const Communicator::Transfer t{Communicator::Transfer::Direction::Send, 1, data.data(), 16};
                         comm.transfer({&t, 1});
                       }
                       comm.allToAllV(comm.world(), data.data(), got.data(), counts, counts, DataType::Float);
                       comm.barrier(comm.world());
                     } catch (const DeviceError& e) {
                       return e.what();
                     }
                     return "no error";
                   },
                   {.deadline = kFailureDeadline});
  for (const ProcessOutcome& o : outcomes) {
    EXPECT_NE(o.text.find("disagree about the order of a send and an all-to-all-v"), std::string::npos) << o.text;
  }
}

}  // namespace
}  // namespace meshfuse
