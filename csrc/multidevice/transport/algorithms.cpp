#include "multidevice/transport/algorithms.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "base/ranges.h"

namespace meshfuse {

namespace {

constexpr Collective kKindsWithAlgorithms[] = {Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter,
                                               Collective::AllToAll,  Collective::Broadcast, Collective::Gather,
                                               Collective::Scatter,   Collective::Reduce};

struct Row {
  std::string_view name;
  Algorithm algorithm;
  bool onHost;
  bool onNetwork;
  std::vector<Collective> kinds;
  bool smallOnly = false;
};

const std::vector<Row>& rows() {
  using K = Collective;
  static const std::vector<Collective> all(std::begin(kKindsWithAlgorithms), std::end(kKindsWithAlgorithms));
  static const std::vector<Collective> others(all.begin() + 1, all.end());
  static const std::vector<Row> table = {
      {"default", Algorithm::Default, true, true, all},
      {"slots", Algorithm::Slots, true, false, all, true},
      {"pull", Algorithm::Pull, true, false, all},
      {"push", Algorithm::Push, true, false, {K::AllReduce}},
      {"staged", Algorithm::Staged, true, false, all},
      {"whole", Algorithm::Whole, true, true, {K::AllReduce}},
      {"parts", Algorithm::Parts, false, true, {K::AllReduce}},
      {"pairs", Algorithm::Pairs, false, true, others},
      {"doubling", Algorithm::Doubling, false, true, {K::AllReduce}},
      {"ring", Algorithm::Ring, false, true, {K::AllReduce, K::AllGather}},
      {"hierarchical", Algorithm::Hierarchical, false, true, {K::AllReduce}},
      {"tree", Algorithm::Tree, false, true, {K::Broadcast}},
      {"scatter", Algorithm::Scatter, false, true, {K::Broadcast}},
  };
  return table;
}

// The position of a word of an entry in the list of all legal words.
int64_t choiceOf(std::string_view word, const std::vector<std::string_view>& legal, std::string_view entry,
                 std::string_view complaint) {
  const int64_t at = positionIn(legal, word);
  check(at < std::ssize(legal), "[algorithms] '{}': {} '{}', expected one of {}", entry, complaint, word,
        fmt::join(legal, ", "));
  return at;
}

Collective kindNamed(std::string_view word, std::string_view entry) {
  const auto names = mapped(kKindsWithAlgorithms, [](Collective kind) { return name(kind); });
  return kKindsWithAlgorithms[choiceOf(word, names, entry, "there is no collective")];
}

Row rowNamed(std::string_view word, Collective kind, std::string_view entry) {
  const std::vector<Row> fitting = filtered(rows(), [&](const Row& row) { return contains(row.kinds, kind); });
  const std::string complaint = fmt::format("{} has no algorithm", name(kind));
  return fitting[choiceOf(word, mapped(fitting, &Row::name), entry, complaint)];
}

}  // namespace

std::string_view name(Algorithm algorithm) { return std::ranges::find(rows(), algorithm, &Row::algorithm)->name; }

AlgorithmTable AlgorithmTable::parse(std::string_view text) {
  AlgorithmTable table;
  for (int64_t begin = 0; begin < std::ssize(text);) {
    const size_t end = std::min(text.find(',', begin), text.size());
    table.set(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return table;
}

void AlgorithmTable::set(std::string_view entry) {
  const size_t equals = entry.find('=');
  check(equals != std::string_view::npos,
        "[algorithms] '{}' is no choice of an algorithm, expected collective=algorithm or collective:size=algorithm",
        entry);
  const std::string_view left = entry.substr(0, equals);
  if (left == "order") {
    anyOrder_ = choiceOf(entry.substr(equals + 1), {"team", "any"}, entry, "there is no order") == 1;
    return;
  }
  const size_t colon = std::min(left.find(':'), left.size());
  const Collective kind = kindNamed(left.substr(0, colon), entry);
  const int64_t size = colon == left.size()
                           ? -1
                           : choiceOf(left.substr(colon + 1), {"small", "medium", "large"}, entry, "there is no size");
  const Row row = rowNamed(entry.substr(equals + 1), kind, entry);
  check(!row.smallOnly || size == static_cast<int64_t>(SizeClass::Small),
        "[algorithms] '{}': {} are for small inputs only, write {}:small={}", entry, row.name, name(kind), row.name);
  for (int64_t s = 0; s < static_cast<int64_t>(kSizes); ++s) {
    if (size == -1 || size == s) {
      const auto k = static_cast<size_t>(kind);
      host_[k][s] = row.onHost ? row.algorithm : host_[k][s];
      network_[k][s] = row.onNetwork ? row.algorithm : network_[k][s];
    }
  }
}

bool AlgorithmTable::pushes() const {
  return contains(host_[static_cast<size_t>(Collective::AllReduce)], Algorithm::Push);
}

}  // namespace meshfuse
