// The table of algorithms: its text, its agreement, and every algorithm of every collective and size against the plain reference.
#include "multidevice/transport/algorithms.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "base/error.h"
#include "multidevice/multidevice_test.h"
#include "multidevice/transport/check_collectives.h"
#include "multidevice/transport/processes.h"

namespace meshfuse {
namespace {

using namespace std::chrono_literals;

TEST(AlgorithmTable, TextChangesWhatItNames) {
  const AlgorithmTable table = AlgorithmTable::parse(
      "all-reduce=whole,all-reduce:large=staged,all-gather:small=slots,all-gather=ring,broadcast:medium=tree");
  EXPECT_EQ(table.onHost(CallKind::AllReduce, SizeClass::Small), Algorithm::Whole);
  EXPECT_EQ(table.onHost(CallKind::AllReduce, SizeClass::Large), Algorithm::Staged);
  EXPECT_EQ(table.onNetwork(CallKind::AllReduce, SizeClass::Large), Algorithm::Whole);
  EXPECT_EQ(table.onHost(CallKind::AllGather, SizeClass::Small), Algorithm::Slots);
  EXPECT_EQ(table.onHost(CallKind::AllGather, SizeClass::Medium), Algorithm::Default);
  EXPECT_EQ(table.onNetwork(CallKind::AllGather, SizeClass::Small), Algorithm::Ring);
  EXPECT_EQ(table.onNetwork(CallKind::Broadcast, SizeClass::Medium), Algorithm::Tree);
  EXPECT_EQ(table.onNetwork(CallKind::Broadcast, SizeClass::Large), Algorithm::Default);
  EXPECT_EQ(table.onHost(CallKind::Barrier, SizeClass::Small), Algorithm::Default);
  EXPECT_EQ(AlgorithmTable::parse("").onHost(CallKind::AllReduce, SizeClass::Small), Algorithm::Default);
}

TEST(AlgorithmTable, ErrorsListTheLegalWords) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"all-reduce", "'all-reduce' is no choice of an algorithm, expected collective=algorithm or"},
      {"allreduce=pull",
       "there is no collective 'allreduce', expected one of all-reduce, all-gather, reduce-scatter, all-to-all, "
       "broadcast"},
      {"broadcast=pull,barrier=pull", "'barrier=pull': there is no collective 'barrier'"},
      {"all-reduce:huge=pull", "there is no size 'huge', expected one of small, medium, large"},
      {"all-reduce=ring",
       "all-reduce has no algorithm 'ring', expected one of default, slots, pull, staged, whole, parts"},
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
  const auto texts = textsOf(
      3, [](Communicator&) { return std::string("opened"); },
      [](int rank) { return TransportOptions{.deadline = 20s, .algorithms = rank == 2 ? "" : "all-reduce=pull"}; });
  for (const std::string& text : texts) {
    EXPECT_NE(text.find("ranks 0 and 2 disagree: rank 0 has 'all-reduce=pull', rank 2 has ''"), std::string::npos)
        << text;
  }
}

TEST_F(AlgorithmsTest, AWrongTextIsAnErrorOfAllRanksAndTheVariableIsRead) {
  const auto texts = textsOf(
      2, [](Communicator&) { return std::string("opened"); },
      [](int) {
        setenv("MESHFUSE_ALGORITHMS", "all-reduce=quick", 1);
        return TransportOptions{.deadline = 20s};
      });
  for (const std::string& text : texts) {
    EXPECT_NE(text.find("has no algorithm 'quick'"), std::string::npos) << text;
  }
}

constexpr std::string_view kHost[] = {
    "all-reduce:small=slots,all-gather:small=slots,reduce-scatter:small=slots,"
    "all-to-all:small=slots,broadcast:small=slots",
    "all-reduce=pull,all-gather=pull,reduce-scatter=pull,all-to-all=pull,broadcast=pull",
    "all-reduce=staged,all-gather=staged,reduce-scatter=staged,all-to-all=staged,"
    "broadcast=staged",
    "all-reduce=whole"};
constexpr std::string_view kNetwork[] = {
    "all-reduce=whole,all-gather=pairs,reduce-scatter=pairs,all-to-all=pairs,"
    "broadcast=pairs",
    "all-reduce=parts,all-gather=ring,broadcast=tree", "broadcast=scatter", ""};

// All collectives of small, medium and large inputs, in every kind of memory and some teams.
std::string checkSizes(Communicator& comm) {
  std::string text;
  uint64_t seed = 1;
  for (const Team& team : {comm.world(), Team{{2, 0}}, Team{{1, 2, 0}}}) {
    for (int64_t count : {0, 1, 500, 5001, 70'001, 264'001}) {
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
  for (std::string_view algorithms : kHost) {
    for (const std::string& text : textsOf(4, checkSizes, [&](int) {
           return TransportOptions{.deadline = 60s, .algorithms = std::string(algorithms)};
         })) {
      EXPECT_EQ(text, "done") << algorithms;
    }
  }
}

TEST_F(AlgorithmsTest, EveryOneOfTheNetwork) {
  if (const std::string why = whyNoNetwork(); !why.empty()) {
    GTEST_SKIP() << why;
  }
  for (std::string_view algorithms : kNetwork) {
    for (const std::string& text : textsOf(4, checkSizes, [&](int) {
           return TransportOptions{.deadline = 60s, .algorithms = std::string(algorithms), .messagesOnly = true};
         })) {
      EXPECT_EQ(text, "done") << algorithms;
    }
  }
}

// What a rank receives tells which way an all-reduce went.
TEST_F(AlgorithmsTest, TheTextIsObeyed) {
  struct Expected {
    std::string_view algorithms;
    bool messagesOnly;
    int64_t bytes;
  };
  constexpr int64_t kCount = 4000;
  const Expected cases[] = {{"all-reduce=whole", false, 3 * kCount * 4},
                            {"all-reduce=pull", false, 6 * kCount},
                            {"all-reduce=staged", false, 6 * kCount},
                            {"all-reduce=whole", true, 3 * kCount * 4},
                            {"all-reduce=parts", true, 6 * kCount}};
  const bool network = whyNoNetwork().empty();
  for (const Expected& c : cases) {
    if (c.messagesOnly && !network) {
      continue;
    }
    const auto texts = textsOf(
        4,
        [](Communicator& comm) {
          const std::shared_ptr<void> memory = comm.allocate(2 * kCount * 4);
          auto* in = static_cast<float*>(memory.get());
          std::fill(in, in + kCount, 1.0f);
          comm.allReduce(comm.world(), in, in + kCount, kCount, DataType::Float, ReduceOp::Sum);
          return std::to_string(comm.counters().of[static_cast<int>(CollectiveKind::AllReduce)].bytesReceived);
        },
        [&](int) {
          return TransportOptions{
              .deadline = 60s, .algorithms = std::string(c.algorithms), .messagesOnly = c.messagesOnly};
        });
    EXPECT_EQ(texts[0], std::to_string(c.bytes)) << c.algorithms;
  }
}

}  // namespace
}  // namespace meshfuse
