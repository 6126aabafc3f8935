#include "multidevice/transport/check_collectives.h"

#include <fmt/core.h>

#include <algorithm>

#include "multidevice/transport/reference.h"

namespace meshfuse {

namespace {

std::string wrong(std::string_view what, const Bytes& got, const Bytes& expected, DataType type, int64_t count) {
  const int64_t at = firstDifference(got, expected, type);
  return at < 0 ? std::string() : fmt::format("{} of {}: element {} differs; ", what, count, at);
}

}  // namespace

std::string checkAllCollectives(Communicator& comm, const Team& team, DataType type, int64_t count, uint64_t seed) {
  const auto n = static_cast<int64_t>(team.ranks.size());
  const int64_t me = std::find(team.ranks.begin(), team.ranks.end(), comm.rank()) - team.ranks.begin();
  if (me == n) {
    return "";
  }
  std::vector<Bytes> small;
  std::vector<Bytes> large;
  std::vector<Bytes> blocks;
  for (int r : team.ranks) {
    small.push_back(testData(type, count, r, seed));
    large.push_back(testData(type, count * n, r, seed));
    blocks.push_back(elements(large.back(), type, me * count, count));
  }
  const Bytes& in = small[static_cast<size_t>(me)];
  const Bytes& inLarge = large[static_cast<size_t>(me)];
  Bytes out(in.size());
  Bytes outLarge(inLarge.size());
  std::string text;
  comm.allReduce(team, in.data(), out.data(), count, type, ReduceOp::Sum);
  text += wrong("all-reduce", out, referenceReduce(small, type, ReduceOp::Sum), type, count);
  comm.reduceScatter(team, inLarge.data(), out.data(), count, type, ReduceOp::Max);
  text += wrong("reduce-scatter", out, elements(referenceReduce(large, type, ReduceOp::Max), type, me * count, count),
                type, count);
  comm.allGather(team, in.data(), outLarge.data(), count, type);
  text += wrong("all-gather", outLarge, concatenated(small), type, count);
  comm.allToAll(team, inLarge.data(), outLarge.data(), count, type);
  text += wrong("all-to-all", outLarge, concatenated(blocks), type, count);
  Bytes both = in;
  comm.allReduce(team, both.data(), both.data(), count, type, ReduceOp::Sum);
  text += wrong("all-reduce in place", both, referenceReduce(small, type, ReduceOp::Sum), type, count);
  both = in;
  const int root = static_cast<int>(seed % static_cast<uint64_t>(n));
  comm.broadcast(team, both.data(), count, type, root);
  return text + wrong("broadcast", both, small[static_cast<size_t>(root)], type, count);
}

}  // namespace meshfuse
