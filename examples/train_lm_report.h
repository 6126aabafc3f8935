// What train_lm prints: progress, the collectives and kernels of a step, checksums of shards. On rank 0 only.
#pragma once

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "exec/fusion_executor_cache.h"
#include "multidevice/transport/communicator.h"

namespace train_lm {

using meshfuse::Collective;
using meshfuse::CommRecord;
using meshfuse::Communicator;
using meshfuse::Tensor;
using meshfuse::TransferCounters;

// A bar, or a line every 20 steps.
class Progress {
 public:
  Progress(bool prints, bool bar, int64_t steps, int64_t bytesOfStep)
      : prints_(prints), bar_(bar), steps_(steps), bytesOfStep_(bytesOfStep) {}

  void show(int64_t step, double loss) {
    auto now = std::chrono::steady_clock::now();
    if (step == 0) {
      start_ = now;  // the first step compiles
    }
    bool last = step + 1 == steps_;
    if (!prints_ ||
        !(last || step == 0 || (bar_ ? now - shown_ > std::chrono::milliseconds(50) : (step + 1) % 20 == 0))) {
      return;
    }
    shown_ = now;
    double seconds = std::chrono::duration<double>(now - start_).count();
    double speed = step == 0 ? 0 : static_cast<double>(bytesOfStep_ * step) / seconds;
    std::string line = fmt::format("step {:4}/{}  loss {:.4f}  {:7.0f} bytes/s", step + 1, steps_, loss, speed);
    if (!bar_) {
      fmt::print("{}\n", line);
    } else {
      int64_t done = 30 * (step + 1) / steps_;
      fmt::print("\r[{}{}] {}{}", std::string(done, '#'), std::string(30 - done, '.'), line, last ? "\n" : "");
    }
    std::fflush(stdout);
  }

 private:
  bool prints_, bar_;
  int64_t steps_, bytesOfStep_;
  std::chrono::steady_clock::time_point start_, shown_;
};

// Bytes a rank receives in a step, by kind of collective: what the plan says and what the transport counted. Between processes the smallest
// all-reduces may read whole tensors instead of parts, for half the synchronizations.
struct Traffic {
  std::map<std::string, int64_t> planned, counted;
  std::map<int64_t, int64_t> moreInWholes;  // of all-reduces that receive so many bytes in parts

  bool agree() const {
    std::map<std::string, int64_t> expected = planned;
    bool agrees = counted == expected;
    for (const auto& [bytes, more] : moreInWholes) {
      expected["all-reduce"] += more;
      agrees |= counted == expected;
    }
    return agrees;
  }
};

inline Traffic traffic(const std::vector<CommRecord>& plan, const TransferCounters& counters) {
  Traffic t;
  for (const CommRecord& c : plan) {
    t.planned[c.kind] += c.bytesReceived;
    if (c.kind == "all-reduce") {
      t.moreInWholes[c.bytesReceived] += c.bytesReceived * std::ssize(c.team) / 2 - c.bytesReceived;
    }
  }
  for (int k = 0; k < static_cast<int>(Collective::Barrier); k++) {  // a barrier moves no data
    auto kind = static_cast<Collective>(k);
    if (counters[kind].calls > 0) {
      t.counted[std::string(name(kind))] += counters[kind].bytesReceived;
    }
  }
  return t;
}

inline void printCollectives(const std::vector<CommRecord>& plan, const Traffic& t) {
  fmt::print("\ncollectives of a step: {}\n", plan.empty() ? "none" : "");
  for (const CommRecord& c : plan) {
    fmt::print("  {:<14} {:<6} team {{{}}}  {:>9} bytes received\n", c.kind, c.tensor, fmt::join(c.team, ", "),
               c.bytesReceived);
  }
  auto sum = [](const std::map<std::string, int64_t>& bytes) {
    int64_t total = 0;
    for (const auto& [kind, b] : bytes) {
      total += b;
    }
    return total;
  };
  fmt::print("bytes received in a step: planned {}, counted by the transport {}: {}\n", sum(t.planned), sum(t.counted),
             t.agree() ? "equal" : "DIFFERENT");
}

// FNV-1a of the bytes.
inline uint64_t checksum(const Tensor& tensor) {
  const Tensor t = tensor.to(DeviceId::cpu());
  uint64_t sum = 0xcbf29ce484222325;
  std::string_view bytes(t.data_as<char>(), t.nbytes());
  for (char c : bytes) {
    sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return sum;
}

// A line a rank; all ranks take part.
inline void printShards(Communicator& world, const Tensor& shard, bool prints) {
  std::vector<std::string> lines =
      world.exchange(fmt::format("Float[{}]  {:016x}", fmt::join(shard.sizes(), ", "), checksum(shard)));
  if (!prints) {
    return;
  }
  std::vector<std::string> sorted = lines;
  std::sort(sorted.begin(), sorted.end());
  const auto distinct = std::unique(sorted.begin(), sorted.end()) - sorted.begin();
  fmt::print("\nthe first weight: {} different shard{} on {} rank{}\n", distinct, distinct == 1 ? "" : "s",
             lines.size(), lines.size() == 1 ? "" : "s");
  for (size_t r = 0; r < lines.size(); r++) {
    fmt::print("  rank {}  {}\n", r, lines[r]);
  }
}

// Text for a terminal: control characters and bytes beyond ASCII are shown as '?'.
inline std::string printable(std::string text) {
  for (char& c : text) {
    if (c != '\n' && (c < ' ' || c > '~')) {
      c = '?';
    }
  }
  return text;
}

}  // namespace train_lm
