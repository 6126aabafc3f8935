// Ranks that exchange descriptors while other processes knock at their doors. Ranks are threads of this process.
#include "multidevice/transport/host/descriptor_exchange.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "multidevice/transport/gathering.h"
#include "multidevice/transport/host/socket.h"

namespace meshfuse {
namespace {

using namespace std::chrono_literals;

constexpr auto kAmple = 60s;

// A gathering of threads; this one looks at the messages of all before the others go on.
class WatchedGathering final : public Bootstrap {
 public:
  using Look = std::function<void(const std::vector<std::string>& all)>;
  WatchedGathering(Bootstrap& bootstrap, Look look) : bootstrap_(bootstrap), look_(std::move(look)) {}
  int64_t rank() const override { return bootstrap_.rank(); }
  int64_t size() const override { return bootstrap_.size(); }
  std::vector<std::string> allGather(std::string_view mine) override {
    std::vector<std::string> all = bootstrap_.allGather(mine);
    look_(all);
    static_cast<void>(bootstrap_.allGather("seen"));
    return all;
  }

 private:
  Bootstrap& bootstrap_;
  Look look_;
};

std::string nameOf(const std::string& place) { return place.substr(0, place.find('\n')); }

// The number of the file of a descriptor.
uint64_t fileOf(const Descriptor& descriptor) {
  struct stat about {};
  return fstat(descriptor.get(), &about) == 0 ? about.st_ino : 0;
}

// What each of `ranks` ranks gets if a pipe of its own is what it gives; `attack` runs before any of them gives something.
std::vector<std::string> exchangeAmong(int64_t ranks, const WatchedGathering::Look& attack) {
  std::vector<Descriptor> readers(ranks);
  std::vector<Descriptor> writers(ranks);
  std::vector<std::string> found(ranks);
  for (int64_t r = 0; r < ranks; ++r) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    readers[r] = Descriptor(ends[0]);
    writers[r] = Descriptor(ends[1]);
  }
  gatherThreads(ranks, [&](Bootstrap& bootstrap) {
    const int64_t rank = bootstrap.rank();
    WatchedGathering watched(
        bootstrap, rank == 0 ? attack : [](const std::vector<std::string>&) {});
    const int mine[] = {readers[rank].get(), writers[rank].get()};
    const ExchangedDescriptors exchanged = exchangeDescriptors(watched, mine, WaitingClock::now() + kAmple);
    found[rank] = exchanged.problem;
    for (int64_t r = 0; r < ranks && found[rank].empty(); ++r) {
      const auto& [process, descriptors] = exchanged.byRank[r];
      if (r != rank && (process != getpid() || descriptors.size() != 2 ||
                        fileOf(descriptors[0]) != fileOf(readers[r]) || fileOf(descriptors[1]) != fileOf(writers[r]))) {
        found[rank] = fmt::format("wrong descriptors of rank {}", r);
      }
    }
  });
  return found;
}

TEST(DescriptorExchange, EachRankGetsThoseOfAllOthers) {
  for (const int64_t ranks : {1, 2, 5}) {
    EXPECT_EQ(exchangeAmong(ranks, [](const auto&) {}), std::vector<std::string>(ranks));
  }
}

// More than a queue of connections holds, before the ranks come to it.
TEST(DescriptorExchange, SilentConnectionsKeepNobodyOut) {
  std::vector<Socket> silent;
  const auto found = exchangeAmong(3, [&](const std::vector<std::string>& all) {
    for (int64_t i = 0; i < 200; ++i) {
      silent.push_back(Socket::createLocal(SOCK_SEQPACKET));
      static_cast<void>(silent.back().connectLocal(nameOf(all[i % 3])));
    }
  });
  EXPECT_EQ(found, std::vector<std::string>(3));
}

// A process of the same user that has found the name of the socket, but does not know the word of the rank.
TEST(DescriptorExchange, WhoDoesNotKnowTheWordIsNoRank) {
  std::vector<Socket> strangers;
  const auto found = exchangeAmong(2, [&](const std::vector<std::string>& all) {
    for (const size_t bytes : {0, 1, 40, 41, 4096}) {
      for (const int64_t from : {int64_t{1}, int64_t{2}, int64_t{-1}, INT64_MAX}) {
        std::string message(bytes, 'x');
        message.replace(0, std::min(bytes, sizeof(from)), reinterpret_cast<const char*>(&from),
                        std::min(bytes, sizeof(from)));
        strangers.push_back(Socket::createLocal(SOCK_SEQPACKET));
        const bool sent = strangers.back().connectLocal(nameOf(all[0])) &&
                          strangers.back().send(message.data(), message.size(), WaitingClock::now() + kAmple);
        EXPECT_TRUE(sent || errno == EAGAIN);
      }
    }
  });
  EXPECT_EQ(found, std::vector<std::string>(2));
}

TEST(DescriptorExchange, AProcessOfAnotherUserGetsAndGivesNothing) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "only root can start a process of another user";
  }
  const Socket listener = Socket::createLocal(SOCK_SEQPACKET);
  const std::string name = fmt::format("meshfuse.test.user.{}", getpid());
  ASSERT_TRUE(listener.listenLocal(name, 4));
  const pid_t child = fork();
  if (child == 0) {
    const Socket mine = Socket::createLocal(SOCK_SEQPACKET);
    const bool isStranger = setuid(65534) == 0 && mine.connectLocal(name) && !mine.isOfThisUser();
    _exit(isStranger ? 0 : 1);
  }
  const Socket visitor = listener.accept(WaitingClock::now() + kAmple);
  ASSERT_TRUE(visitor.open());
  EXPECT_EQ(visitor.peer().user, 65534);
  EXPECT_FALSE(visitor.isOfThisUser());
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the other side sees a socket of its own user";
}

// A rank that gets no answer names the peer.
TEST(DescriptorExchange, APeerThatEndsIsNamed) {
  class Alone final : public Bootstrap {
   public:
    int64_t rank() const override { return 0; }
    int64_t size() const override { return 3; }
    std::vector<std::string> allGather(std::string_view mine) override {
      std::string ended(mine);
      ended[10] = ended[10] == '0' ? '1' : '0';  // nobody listens there
      return {std::string(mine), ended, ended};
    }
  } alone;
  const int mine[] = {0};
  const ExchangedDescriptors exchanged = exchangeDescriptors(alone, mine, WaitingClock::now() + kAmple);
  EXPECT_NE(exchanged.problem.find("rank 0 cannot reach [rank 1/3] on this host"), std::string::npos)
      << exchanged.problem;
}

}  // namespace
}  // namespace meshfuse
