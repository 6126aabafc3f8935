// The table of algorithms: its text, its agreement, and every algorithm of every collective and size against the plain reference.
#include "multidevice/transport/algorithms.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

#include "base/error.h"
#include "multidevice/multidevice_test.h"
#include "multidevice/transport/check_collectives.h"
#include "multidevice/transport/flight_recorder.h"
#include "multidevice/transport/processes.h"
#include "multidevice/transport/reference.h"
#include "sanitized.h"

namespace meshfuse {
namespace {

using namespace std::chrono_literals;

TEST(AlgorithmTable, TextChangesWhatItNames) {
  const AlgorithmTable table = AlgorithmTable::parse(
      "all-reduce=whole,all-reduce:large=staged,all-gather:small=slots,all-gather=ring,broadcast:medium=tree");
  EXPECT_EQ(table.onHost(Collective::AllReduce, SizeClass::Small), Algorithm::Whole);
  EXPECT_EQ(table.onHost(Collective::AllReduce, SizeClass::Large), Algorithm::Staged);
  EXPECT_EQ(table.onNetwork(Collective::AllReduce, SizeClass::Large), Algorithm::Whole);
  EXPECT_EQ(table.onHost(Collective::AllGather, SizeClass::Small), Algorithm::Slots);
  EXPECT_EQ(table.onHost(Collective::AllGather, SizeClass::Medium), Algorithm::Default);
  EXPECT_EQ(table.onNetwork(Collective::AllGather, SizeClass::Small), Algorithm::Ring);
  EXPECT_EQ(table.onNetwork(Collective::Broadcast, SizeClass::Medium), Algorithm::Tree);
  EXPECT_EQ(table.onNetwork(Collective::Broadcast, SizeClass::Large), Algorithm::Default);
  EXPECT_EQ(table.onHost(Collective::Barrier, SizeClass::Small), Algorithm::Default);
  EXPECT_EQ(AlgorithmTable::parse("").onHost(Collective::AllReduce, SizeClass::Small), Algorithm::Default);
  EXPECT_FALSE(table.anyOrder());
  EXPECT_TRUE(AlgorithmTable::parse("order=any,all-reduce=ring").anyOrder());
  EXPECT_TRUE(AlgorithmTable::parse("all-reduce:medium=push").pushes());
  EXPECT_FALSE(AlgorithmTable::parse("all-reduce:medium=push,all-reduce=pull").pushes());
}

TEST(AlgorithmTable, ErrorsListTheLegalWords) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"all-reduce", "'all-reduce' is no choice of an algorithm, expected collective=algorithm or"},
      {"allreduce=pull",
       "there is no collective 'allreduce', expected one of all-reduce, all-gather, reduce-scatter, all-to-all, "
       "broadcast"},
      {"broadcast=pull,barrier=pull", "'barrier=pull': there is no collective 'barrier'"},
      {"all-reduce:huge=pull", "there is no size 'huge', expected one of small, medium, large"},
      {"all-reduce=tree",
       "all-reduce has no algorithm 'tree', expected one of default, slots, pull, push, staged, whole, parts, "
       "doubling, ring, hierarchical"},
      {"all-gather=push", "all-gather has no algorithm 'push'"},
      {"order=some", "'order=some': there is no order 'some', expected one of team, any"},
      {"order=any,order=team", ""},
      {"all-to-all:small=", "all-to-all has no algorithm '', expected one of default, slots, pull, staged, pairs"},
      {"broadcast=ring", "expected one of default, slots, pull, staged, pairs, tree, scatter"},
      {"all-gather=slots", "slots are for small inputs only, write all-gather:small=slots"},
      {"all-gather=pull,", ""},
      {",all-gather=pull", "'' is no choice"},
  };
  for (const auto& [text, expected] : cases) {
    std::string error;
    try {
      static_cast<void>(AlgorithmTable::parse(text));
    } catch (const UserError& e) {
      error = e.what();
    }
    EXPECT_NE(error.find(expected), std::string::npos) << text << ": " << error;
    EXPECT_EQ(error.empty(), expected.empty()) << text << ": " << error;
  }
}

class AlgorithmsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (MultiDeviceTest::launched()) {
      GTEST_SKIP() << "starts processes of its own; run it without a launcher";
    }
  }
};

std::vector<std::string> textsOf(int ranks, const std::function<std::string(Communicator&)>& body,
                                 const std::function<TransportOptions(int)>& options) {
  RankProcesses processes(ranks, [&](int rank) { return body(*openWorld(options(rank))); });
  while (!processes.haveEnded() && processes.age() < 100s) {
    std::this_thread::sleep_for(2ms);
  }
  std::vector<std::string> texts;
  for (const ProcessOutcome& o : processes.outcomes()) {
    EXPECT_TRUE(o.ended) << o.text;
    texts.push_back(o.text);
  }
  return texts;
}

TEST_F(AlgorithmsTest, RanksMustAgree) {
  for (const bool byVariable : {false, true}) {  // of the environment
    const auto texts = textsOf(
        3, [](Communicator&) { return std::string("opened"); },
        [=](int rank) {
          const char* text = rank == 2 ? "" : "all-reduce=pull";
          setenv("MESHFUSE_ALGORITHMS", byVariable ? text : "", 1);
          return TransportOptions{.deadline = kFailureDeadline, .algorithms = byVariable ? "" : text};
        });
    for (const std::string& text : texts) {
      EXPECT_NE(text.find("ranks 0 and 2 disagree: rank 0 has 'all-reduce=pull', rank 2 has ''"), std::string::npos)
          << text;
    }
  }
}

TEST_F(AlgorithmsTest, AWrongTextIsAnErrorOfAllRanksAndTheVariableIsRead) {
  const auto texts = textsOf(
      2, [](Communicator&) { return std::string("opened"); },
      [](int) {
        setenv("MESHFUSE_ALGORITHMS", "all-reduce=quick", 1);
        return TransportOptions{.deadline = kFailureDeadline};
      });
  for (const std::string& text : texts) {
    EXPECT_NE(text.find("has no algorithm 'quick'"), std::string::npos) << text;
  }
}

constexpr std::string_view kHostAlgorithms[] = {
    "all-reduce:small=slots,all-gather:small=slots,reduce-scatter:small=slots,"
    "all-to-all:small=slots,broadcast:small=slots",
    "all-reduce=pull,all-gather=pull,reduce-scatter=pull,all-to-all=pull,broadcast=pull",
    "all-reduce=staged,all-gather=staged,reduce-scatter=staged,all-to-all=staged,"
    "broadcast=staged",
    "all-reduce=whole", "all-reduce=push"};
constexpr std::string_view kNetworkAlgorithms[] = {
    "all-reduce=whole,all-gather=pairs,reduce-scatter=pairs,all-to-all=pairs,"
    "broadcast=pairs",
    "all-reduce=parts,all-gather=ring,broadcast=tree", "broadcast=scatter", ""};

// All collectives of small, medium and large inputs, in every kind of memory and some teams.
std::string checkSizes(Communicator& comm) {
  std::string text;
  uint64_t seed = 1;
  for (const Team& team : {comm.world(), Team{{2, 0}}, Team{{1, 2, 0}}}) {
    for (int64_t count : {0, 1, 500, 5001, 70'001, 264'001}) {
      if (kSanitized && (count == 500 || count == 70'001)) {
        continue;
      }
      for (BufferPlace place : {BufferPlace::Shared, BufferPlace::Ordinary, BufferPlace::Mixed}) {
        const bool large = count > 100'000;
        const DataType type = large || seed % 2 == 0 ? DataType::Float : DataType::BFloat16;
        if (!large || (team.ranks.size() > 3 && place != BufferPlace::Mixed)) {
          text += checkAllCollectives(comm, team, type, count, ++seed, place);
        }
      }
    }
  }
  return text + "done";
}

TEST_F(AlgorithmsTest, EveryOneOfTheHost) {
  for (std::string_view algorithms : kHostAlgorithms) {
    for (const std::string& text : textsOf(4, checkSizes, [&](int) {
           return TransportOptions{.deadline = kFailureDeadline, .algorithms = std::string(algorithms)};
         })) {
      EXPECT_EQ(text, "done") << algorithms;
    }
  }
}

TEST_F(AlgorithmsTest, EveryOneOfTheNetwork) {
  if (const std::string why = whyNoNetwork(); !why.empty()) {
    GTEST_SKIP() << why;
  }
  for (std::string_view algorithms : kNetworkAlgorithms) {
    for (const std::string& text : textsOf(4, checkSizes, [&](int) {
           return TransportOptions{
               .deadline = kFailureDeadline, .algorithms = std::string(algorithms), .messagesOnly = true};
         })) {
      EXPECT_EQ(text, "done") << algorithms;
    }
  }
}

// All-reduces of integers are the same in any order, so every algorithm carries them; of floating types those that keep the team's.
std::string checkAllReduces(Communicator& comm, bool mixed) {
  std::string text;
  uint64_t seed = 1;
  Team turned = comm.world();
  std::rotate(turned.ranks.begin(), turned.ranks.begin() + 1, turned.ranks.end());
  const Team teams[] = {comm.world(), turned};
  for (const Team& team : teams) {
    for (int64_t count : {0, 1, 3, 500, 5001, 300'001}) {
      if (kSanitized && count == 300'001 && &team != &teams[0]) {
        continue;
      }
      const DataType floating = ++seed % 2 == 0 ? DataType::BFloat16 : DataType::Half;
      for (const auto& [type, op] :
           {std::pair(DataType::Int32, ReduceOp::Sum), std::pair(DataType::Bool, ReduceOp::Xor),
            std::pair(floating, ReduceOp::Sum), std::pair(floating, ReduceOp::And)}) {
        if (mixed && type == floating) {
          continue;
        }
        std::vector<Bytes> inputs;
        for (int r : team.ranks) {
          inputs.push_back(testData(type, count, r, seed, type == DataType::Half));
        }
        Bytes data = inputs[static_cast<size_t>(std::find(team.ranks.begin(), team.ranks.end(), comm.rank()) -
                                                team.ranks.begin())];
        Bytes out(data.size());
        const Bytes expected = referenceReduce(inputs, type, op);
        comm.allReduce(team, data.data(), out.data(), count, type, op);
        comm.allReduce(team, data.data(), data.data(), count, type, op);
        if (firstDifference(out, expected, type) >= 0 || firstDifference(data, expected, type) >= 0) {
          text += fmt::format("{} {} in a team from {}; ", count, name(type), team.ranks[0]);
        }
      }
    }
  }
  return text + "done";
}

TEST_F(AlgorithmsTest, AllReducesOfRanksOnSeveralHosts) {
  if (const std::string why = whyNoNetwork(); !why.empty()) {
    GTEST_SKIP() << why;
  }
  // Which host a rank is on is what it says. Hosts alike and not, their ranks side by side and mixed; all on one.
  const std::pair<std::string_view, std::vector<std::string_view>> layouts[] = {
      {"AABB", {"hierarchical", "default"}}, {"AAAB", {"hierarchical"}},
      {"ABAB", {"hierarchical", "default"}}, {"AAAA", {"hierarchical"}},
      {"ABCD", {"hierarchical", "ring"}},    {"AABBCC", {"hierarchical"}},
      {"AAABBCC", {"doubling", "default"}},  {"ABABABABA", {"doubling", "ring"}}};
  for (const auto& [layout, ways] : layouts) {
    for (std::string_view way : ways) {
      if (kSanitized && layout == "ABABABABA" && way == "ring") {
        continue;  // of nine processes
      }
      const std::string algorithms = fmt::format("all-reduce={}", way);
      const auto options = [&, &layout = layout](int rank) {
        setenv("MESHFUSE_HOST", std::string(1, layout[rank]).c_str(), 1);
        return TransportOptions{.deadline = kFailureDeadline, .algorithms = algorithms, .messagesOnly = true};
      };
      const bool keepsOrder = way == "default" || (way == "hierarchical" && layout != "ABAB");
      for (const std::string& text : textsOf(
               static_cast<int>(layout.size()), [&](Communicator& comm) { return checkAllReduces(comm, !keepsOrder); },
               options)) {
        EXPECT_EQ(text, "done") << layout << ", " << way;
      }
    }
  }
}

// With `order=any` floating sums may differ from the reference in their last bits, but not from rank to rank; 16-bit ones are still
// rounded once.
TEST_F(AlgorithmsTest, AnyOrderGivesAllRanksTheSameBits) {
  if (const std::string why = whyNoNetwork(); !why.empty()) {
    GTEST_SKIP() << why;
  }
  for (std::string_view algorithms : {"order=any", "order=any,all-reduce=ring", "order=any,all-reduce=doubling",
                                      "order=any,all-reduce=hierarchical"}) {
    constexpr int64_t kCount = 5000;
    const auto texts = textsOf(
        5,
        [](Communicator& comm) {
          std::string text;
          for (DataType type : {DataType::Float, DataType::BFloat16}) {
            std::vector<Bytes> inputs;
            for (int r = 0; r < comm.size(); ++r) {
              inputs.push_back(testData(type, kCount, r, 7));
            }
            Bytes out(inputs[0].size());
            comm.allReduce(comm.world(), inputs[comm.rank()].data(), out.data(), kCount, type, ReduceOp::Sum);
            const Bytes expected = referenceReduce(inputs, type, ReduceOp::Sum);
            int64_t worst = 0;  // in units of the last place: the bits of floats of one sign are in their order
            for (int64_t i = 0; i < kCount; ++i) {
              const Bytes a = elements(out, type, i, 1);
              const Bytes b = elements(expected, type, i, 1);
              int32_t bits[2] = {0, 0};
              std::memcpy(&bits[0], a.data(), a.size());
              std::memcpy(&bits[1], b.data(), b.size());
              worst = std::max<int64_t>(worst, std::abs(bits[0] - bits[1]));
            }
            const std::string_view all(reinterpret_cast<const char*>(out.data()), out.size());
            text += fmt::format("{}: {}, bits {:x}; ", name(type), worst <= 4 ? "near" : "far",
                                std::hash<std::string_view>()(all));
          }
          return text;
        },
        [&](int rank) {
          setenv("MESHFUSE_HOST", rank < 2 ? "A" : "B", 1);
          return TransportOptions{
              .deadline = kFailureDeadline, .algorithms = std::string(algorithms), .messagesOnly = true};
        });
    for (const std::string& text : texts) {
      EXPECT_EQ(text, texts[0]) << algorithms;
      EXPECT_EQ(text.find("far"), std::string::npos) << algorithms << ": " << text;
    }
  }
}

// What the flight record of rank 0 says of a call of each kind and size.
std::vector<std::string> waysTaken(int ranks, std::string_view algorithms, bool messagesOnly,
                                   std::string_view layout = "") {
  const std::filesystem::path directory =
      std::filesystem::temp_directory_path() / fmt::format("meshfuse_ways_{}", getpid());
  std::filesystem::remove_all(directory);
  textsOf(
      ranks,
      [](Communicator& comm) {
        for (int64_t count : {100, 10'000, 600'000}) {
          const int64_t n = comm.size();
          const std::shared_ptr<void> memory = comm.allocate(2 * count * 4);
          auto* in = static_cast<float*>(memory.get());
          float* out = in + count;
          std::fill(in, in + count, 1.0f);
          comm.allReduce(comm.world(), in, out, count, DataType::Float, ReduceOp::Sum);
          comm.allGather(comm.world(), in, out, count / n, DataType::Float);
          comm.reduceScatter(comm.world(), in, out, count / n, DataType::Float, ReduceOp::Sum);
          comm.allToAll(comm.world(), in, out, count / n, DataType::Float);
          comm.broadcast(comm.world(), in, count, DataType::Float, 0);
        }
        comm.barrier(comm.world());
        comm.abort("all is said");
        comm.barrier(comm.world());  // throws, and writes the record
        return std::string("done");
      },
      [&](int rank) {
        if (!layout.empty()) {
          setenv("MESHFUSE_HOST", std::string(1, layout[rank]).c_str(), 1);
        }
        return TransportOptions{.deadline = kFailureDeadline,
                                .algorithms = std::string(algorithms),
                                .flightDirectory = directory.string(),
                                .messagesOnly = messagesOnly};
      });
  std::vector<std::string> ways;
  for (const auto& file : std::filesystem::directory_iterator(directory)) {
    const FlightRecord record = readFlightRecord(file.path().string());
    for (const FlightRecord::Entry& e : record.calls) {
      if (record.rank == 0 && e.event.call.kind <= Collective::Broadcast) {
        ways.push_back(fmt::format("{}={}", name(e.event.call.kind), name(e.event.way)));
      }
    }
  }
  std::filesystem::remove_all(directory);
  return ways;
}

// Every algorithm of every collective, on its transport, and what the table takes by itself.
TEST_F(AlgorithmsTest, TheTextIsObeyed) {
  const bool network = whyNoNetwork().empty();
  const std::pair<std::string_view, std::string_view> kAlgorithms[] = {
      {"all-reduce", "slots pull push staged whole"},
      {"all-gather", "slots pull staged"},
      {"reduce-scatter", "slots pull staged"},
      {"all-to-all", "slots pull staged"},
      {"broadcast", "slots pull staged"},
      {"all-reduce", "whole parts doubling ring hierarchical"},
      {"all-gather", "pairs ring"},
      {"reduce-scatter", "pairs"},
      {"all-to-all", "pairs"},
      {"broadcast", "pairs tree scatter"}};
  for (size_t i = 0; i < std::size(kAlgorithms); ++i) {
    const auto& [collective, words] = kAlgorithms[i];
    const bool messagesOnly = i >= 5;
    for (size_t begin = 0; begin < words.size() && (network || !messagesOnly);) {
      const size_t end = std::min(words.find(' ', begin), words.size());
      const std::string_view way = words.substr(begin, end - begin);
      begin = end + 1;
      const bool small = way == "slots";
      const std::string text = fmt::format("order=any,{}{}={}", collective, small ? ":small" : "", way);
      const std::vector<std::string> ways = waysTaken(3, text, messagesOnly);
      ASSERT_EQ(ways.size(), 15u);
      int calls = 0;
      for (const std::string& taken : ways) {
        calls += taken == fmt::format("{}={}", collective, way) ? 1 : 0;
      }
      EXPECT_GE(calls, small ? 1 : 3) << text;
    }
  }
}

TEST_F(AlgorithmsTest, TheTableByItself) {
  using Ways = std::vector<std::string>;
  EXPECT_EQ(waysTaken(4, "", false),
            (Ways{"all-reduce=slots", "all-gather=slots", "reduce-scatter=slots", "all-to-all=slots", "broadcast=slots",
                  "all-reduce=pull", "all-gather=pull", "reduce-scatter=pull", "all-to-all=pull", "broadcast=pull",
                  "all-reduce=pull", "all-gather=pull", "reduce-scatter=pull", "all-to-all=pull", "broadcast=pull"}));
  if (const std::string why = whyNoNetwork(); !why.empty()) {
    GTEST_SKIP() << why;
  }
  const Ways others = {"all-gather=pairs", "reduce-scatter=pairs", "all-to-all=pairs"};
  auto expected = [&](std::string_view small, std::string_view medium, std::string_view large) {
    Ways ways;
    const std::string_view reductions[] = {small, medium, large};
    const std::string_view broadcasts[] = {"pairs", "tree", "scatter"};
    for (int size = 0; size < 3; ++size) {
      ways.push_back(fmt::format("all-reduce={}", reductions[size]));
      ways.insert(ways.end(), others.begin(), others.end());
      ways.push_back(fmt::format("broadcast={}", broadcasts[size]));
    }
    return ways;
  };
  EXPECT_EQ(waysTaken(4, "", true), expected("whole", "parts", "parts"));
  EXPECT_EQ(waysTaken(4, "order=any", true), expected("whole", "ring", "ring"));
  EXPECT_EQ(waysTaken(4, "", true, "AABB"), expected("whole", "parts", "hierarchical"));
  EXPECT_EQ(waysTaken(4, "", true, "ABAB"), expected("whole", "parts", "parts"));
  EXPECT_EQ(waysTaken(4, "order=any", true, "ABAB"), expected("whole", "ring", "hierarchical"));
  EXPECT_EQ(waysTaken(9, "order=any", true), expected("doubling", "ring", "ring"));
}

// Each element crosses to the other host once.
TEST_F(AlgorithmsTest, BetweenHostsEachElementGoesOnceEachWay) {
  if (const std::string why = whyNoNetwork(); !why.empty()) {
    GTEST_SKIP() << why;
  }
  constexpr int64_t kCount = 600'000;
  const auto texts = textsOf(
      4,
      [](Communicator& comm) {
        std::vector<float> data(kCount, 1.0f);
        comm.allReduce(comm.world(), data.data(), data.data(), kCount, DataType::Float, ReduceOp::Sum);
        return std::to_string(comm.counters()[Collective::AllReduce].bytesReceived);
      },
      [](int rank) {
        setenv("MESHFUSE_HOST", rank < 2 ? "A" : "B", 1);
        return TransportOptions{.deadline = kFailureDeadline, .messagesOnly = true};
      });
  // half of the neighbour's input and half of the sums or the result of the other host, then the other half of the result
  EXPECT_EQ(texts, std::vector<std::string>(4, std::to_string(3 * kCount / 2 * 4)));
}

}  // namespace
}  // namespace meshfuse
