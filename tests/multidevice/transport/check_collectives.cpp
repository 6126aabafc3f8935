#include "multidevice/transport/check_collectives.h"

#include <fmt/core.h>

#include <algorithm>

namespace meshfuse {

namespace {

std::string wrong(std::string_view what, const Bytes& got, const Bytes& expected, DataType type, int64_t count) {
  const int64_t at = firstDifference(got, expected, type);
  return at < 0 ? std::string() : fmt::format("{} of {}: element {} differs; ", what, count, at);
}

}  // namespace

CallBuffer::CallBuffer(Communicator& comm, BufferPlace place, const Bytes& content) : bytes_(content.size()) {
  const bool shared = place == BufferPlace::Shared || (place == BufferPlace::Mixed && comm.rank() % 2 == 0);
  memory_ = shared ? comm.allocate(bytes_) : allocateOrdinary(bytes_);
  std::copy(content.begin(), content.end(), data());
}

std::string checkAllCollectives(Communicator& comm, const Team& team, DataType type, int64_t count, uint64_t seed,
                                BufferPlace place) {
  const auto n = std::ssize(team.ranks);
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
  const Bytes& own = small[me];
  const CallBuffer in(comm, place, own);
  const CallBuffer inLarge(comm, place, large[me]);
  const CallBuffer out(comm, place, Bytes(own.size()));
  const CallBuffer outLarge(comm, place, Bytes(own.size() * static_cast<size_t>(n)));
  const CallBuffer both(comm, place, own);
  const CallBuffer sent(comm, place, own);
  std::string text;
  comm.allReduce(team, in.data(), out.data(), count, type, ReduceOp::Sum);
  text += wrong("all-reduce", out.content(), referenceReduce(small, type, ReduceOp::Sum), type, count);
  comm.reduceScatter(team, inLarge.data(), out.data(), count, type, ReduceOp::Max);
  text += wrong("reduce-scatter", out.content(),
                elements(referenceReduce(large, type, ReduceOp::Max), type, me * count, count), type, count);
  comm.allGather(team, in.data(), outLarge.data(), count, type);
  text += wrong("all-gather", outLarge.content(), concatenated(small), type, count);
  comm.allToAll(team, inLarge.data(), outLarge.data(), count, type);
  text += wrong("all-to-all", outLarge.content(), concatenated(blocks), type, count);
  comm.allReduce(team, both.data(), both.data(), count, type, ReduceOp::Sum);
  text += wrong("all-reduce in place", both.content(), referenceReduce(small, type, ReduceOp::Sum), type, count);
  const int root = static_cast<int>(seed % static_cast<uint64_t>(n));
  comm.broadcast(team, sent.data(), count, type, root);
  text += wrong("broadcast", sent.content(), small[root], type, count);
  return text + checkRootedCollectives(comm, team, type, ReduceOp::Sum, count, seed, place);
}

std::string checkRootedCollectives(Communicator& comm, const Team& team, DataType type, ReduceOp op, int64_t count,
                                   uint64_t seed, BufferPlace place) {
  const auto n = std::ssize(team.ranks);
  const int64_t me = std::find(team.ranks.begin(), team.ranks.end(), comm.rank()) - team.ranks.begin();
  const int root = static_cast<int>(seed / 7 % static_cast<uint64_t>(n));
  const bool isRoot = me == root;
  std::vector<Bytes> inputs;
  for (int r : team.ranks) {
    inputs.push_back(testData(type, count, r, seed + 1));
  }
  const Bytes all = testData(type, count * n, team.ranks[root], seed + 2);
  const Bytes blank(inputs[0].size());
  const CallBuffer in(comm, place, inputs[me]);
  const CallBuffer whole(comm, place, all);
  const CallBuffer gathered(comm, place, Bytes(all.size()));
  const CallBuffer block(comm, place, blank);
  const CallBuffer reduced(comm, place, blank);
  comm.gather(team, in.data(), isRoot ? gathered.data() : nullptr, count, type, root);
  comm.scatter(team, isRoot ? whole.data() : nullptr, block.data(), count, type, root);
  comm.reduce(team, in.data(), isRoot ? reduced.data() : nullptr, count, type, {.op = op, .root = root});
  std::string text =
      wrong("scatter", block.content(), elements(all, type, me * count, count), type, count) +
      wrong("the input", in.content(), inputs[me], type, count) +
      wrong("gather", gathered.content(), isRoot ? concatenated(inputs) : Bytes(all.size()), type, count) +
      wrong("reduce", reduced.content(), isRoot ? referenceReduce(inputs, type, op) : blank, type, count);
  comm.reduce(team, in.data(), isRoot ? in.data() : nullptr, count, type, {.op = op, .root = root});
  return text +
         wrong("reduce in place", in.content(), isRoot ? referenceReduce(inputs, type, op) : inputs[me], type, count);
}

}  // namespace meshfuse
