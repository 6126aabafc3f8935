#include "multidevice/transport/algorithms.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace meshfuse {

namespace {

constexpr Collective kKindsWithAlgorithms[] = {Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter,
                                               Collective::AllToAll,  Collective::Broadcast, Collective::Gather,
                                               Collective::Scatter,   Collective::Reduce};
constexpr std::string_view kSizeNames[] = {"small", "medium", "large"};

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

bool has(const Row& row, Collective kind) {
  return std::find(row.kinds.begin(), row.kinds.end(), kind) != row.kinds.end();
}

Collective kindNamed(std::string_view word, std::string_view entry) {
  std::vector<std::string_view> names;
  for (Collective kind : kKindsWithAlgorithms) {
    if (name(kind) == word) {
      return kind;
    }
    names.push_back(name(kind));
  }
  throwUserError(fmt::format("[algorithms] '{}': there is no collective '{}', expected one of {}", entry, word,
                             fmt::join(names, ", ")));
}

// The index of a size class; -1 for all classes.
int sizeNamed(std::string_view word, std::string_view entry) {
  const auto* at = std::find(std::begin(kSizeNames), std::end(kSizeNames), word);
  check(at != std::end(kSizeNames), "[algorithms] '{}': there is no size '{}', expected one of {}", entry, word,
        fmt::join(kSizeNames, ", "));
  return static_cast<int>(at - std::begin(kSizeNames));
}

const Row& rowNamed(std::string_view word, Collective kind, std::string_view entry) {
  std::vector<std::string_view> names;
  for (const Row& row : rows()) {
    if (has(row, kind) && row.name == word) {
      return row;
    }
    if (has(row, kind)) {
      names.push_back(row.name);
    }
  }
  throwUserError(fmt::format("[algorithms] '{}': {} has no algorithm '{}', expected one of {}", entry, name(kind), word,
                             fmt::join(names, ", ")));
}

}  // namespace

std::string_view name(Algorithm algorithm) {
  return std::find_if(rows().begin(), rows().end(), [&](const Row& r) { return r.algorithm == algorithm; })->name;
}

AlgorithmTable AlgorithmTable::parse(std::string_view text) {
  AlgorithmTable table;
  for (size_t begin = 0; begin < text.size();) {
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
    const std::string_view order = entry.substr(equals + 1);
    check(order == "team" || order == "any", "[algorithms] '{}': there is no order '{}', expected one of team, any",
          entry, order);
    anyOrder_ = order == "any";
    return;
  }
  const size_t colon = std::min(left.find(':'), left.size());
  const Collective kind = kindNamed(left.substr(0, colon), entry);
  const int size = colon == left.size() ? -1 : sizeNamed(left.substr(colon + 1), entry);
  const Row& row = rowNamed(entry.substr(equals + 1), kind, entry);
  check(!row.smallOnly || size == static_cast<int>(SizeClass::Small),
        "[algorithms] '{}': {} are for small inputs only, write {}:small={}", entry, row.name, name(kind), row.name);
  for (int s = 0; s < static_cast<int>(kSizes); ++s) {
    if (size == -1 || size == s) {
      const auto k = static_cast<size_t>(kind);
      host_[k][s] = row.onHost ? row.algorithm : host_[k][s];
      network_[k][s] = row.onNetwork ? row.algorithm : network_[k][s];
    }
  }
}

bool AlgorithmTable::pushes() const {
  const auto& sizes = host_[static_cast<size_t>(Collective::AllReduce)];
  return std::find(sizes.begin(), sizes.end(), Algorithm::Push) != sizes.end();
}

}  // namespace meshfuse
