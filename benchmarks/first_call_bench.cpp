// How long does the first call of an encoder take on 1, 2 and 4 ranks: with an empty cache directory, and if another process has filled it?
//
// The ranks are processes of this machine, and so is each measurement: nothing of an earlier one is in their memory. The time is that of the
// slowest rank, from before the FusionExecutorCache is made until the results are complete; all ranks begin together, with weights in memory.
#include <arpa/inet.h>
#include <benchmark/benchmark.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "encoder_program.h"
#include "figures.h"
#include "multidevice/transport/communicator.h"

namespace meshfuse {

namespace {

constexpr int kTimes = 5;
constexpr int64_t kSentences = 4;  // few: a call that computes for 20 ms would hide what comes before it

// A port below the ephemeral ones of the system at which nobody listens now.
std::string freePort() {
  for (int port = 10'000 + 2 * (getpid() % 10'000);; port += 2) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    const bool isFree = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    close(fd);
    if (isFree) {
      return std::to_string(port);
    }
  }
}

double secondsOfFirstCall() {
  Communicator& world = defaultWorld();
  EncoderProgram encoder = encoderProgram(&world);
  const std::vector<Argument> inputs = encoder.inputs(kSentences);
  world.barrier(world.world());
  std::unique_ptr<FusionExecutorCache> cache;
  std::vector<Tensor> results;
  return secondsOf([&] {
    cache = std::make_unique<FusionExecutorCache>(std::move(encoder.fusion));
    results = cache->runFusionWithInputs(inputs);
  });
}

// The environment of the ranks has to be set in each of them, before the library reads it.
[[noreturn]] void runRank(int64_t rank, int64_t ranks, const std::string& port, const std::string& directory, int out) {
  setenv("MESHFUSE_CACHE_DIR", directory.c_str(), 1);
  if (ranks > 1) {
    setenv("RANK", std::to_string(rank).c_str(), 1);
    setenv("WORLD_SIZE", std::to_string(ranks).c_str(), 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", port.c_str(), 1);
  }
  double seconds = -1;
  try {
    seconds = secondsOfFirstCall();
  } catch (const std::exception& e) {
    fmt::print(stderr, "rank {}: {}\n", rank, e.what());
  }
  const bool isWritten = write(out, &seconds, sizeof(seconds)) == sizeof(seconds);
  _exit(isWritten ? 0 : 1);
}

// Of the slowest rank.
double secondsOn(int64_t ranks, const std::string& directory) {
  int ends[2];
  if (pipe(ends) != 0) {
    throw std::runtime_error("no pipe");
  }
  std::fflush(nullptr);  // else the ranks print it again
  const std::string port = freePort();
  for (int64_t rank = 0; rank < ranks; rank++) {
    if (fork() == 0) {
      runRank(rank, ranks, port, directory, ends[1]);
    }
  }
  close(ends[1]);
  double slowest = 0;
  int64_t ended = 0;
  for (double seconds = 0; read(ends[0], &seconds, sizeof(seconds)) == sizeof(seconds) && seconds >= 0; ended++) {
    slowest = std::max(slowest, seconds);
  }
  close(ends[0]);
  while (wait(nullptr) > 0) {
  }
  if (ended != ranks) {
    throw std::runtime_error(fmt::format("{} of {} ranks have made the call", ended, ranks));
  }
  return slowest;
}

void firstCalls(benchmark::State& state) {
  const int64_t ranks = state.range(0);
  std::string directory = (std::filesystem::temp_directory_path() / "meshfuse_first_call.XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) {
    throw std::runtime_error("no directory " + directory);
  }
  for (auto _ : state) {
    std::vector<double> cold;
    std::vector<double> warm;
    for (int i = 0; i < kTimes; i++) {
      const std::string fresh = fmt::format("{}/{}", directory, i);
      cold.push_back(secondsOn(ranks, fresh));
      warm.push_back(secondsOn(ranks, fresh));
    }
    state.SetIterationTime(median(cold));
    const std::string name = fmt::format("encoder on {} rank{}, the first call", ranks, ranks == 1 ? "" : "s");
    record({name + ", cold", median(cold) * 1e3, "ms", ranks == 1 ? 150 : ranks == 2 ? 250 : 300, "lower"});
    record({name + ", from a warm disk", median(warm) * 1e3, "ms", 40, "lower"});
  }
  std::filesystem::remove_all(directory);
}

BENCHMARK(firstCalls)->Arg(1)->Arg(2)->Arg(4)->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace

}  // namespace meshfuse

int main(int argc, char** argv) { return meshfuse::runBenchmarks(argc, argv); }
