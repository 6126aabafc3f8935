#include "order.h"

#include <algorithm>
#include <iterator>

namespace simgpu {

void Clock::join(const Clock& other) {
  std::vector<std::pair<uint64_t, uint64_t>> both;
  both.reserve(numbers_.size() + other.numbers_.size());
  std::ranges::merge(numbers_, other.numbers_, std::back_inserter(both));
  // of two entries of a stream the second has the larger number
  size_t kept = 0;
  for (const auto& entry : both) {
    if (kept > 0 && both[kept - 1].first == entry.first) {
      kept--;
    }
    both[kept++] = entry;
  }
  both.resize(kept);
  numbers_ = std::move(both);
}

void Clock::know(uint64_t stream, uint64_t number) {
  const auto it = std::ranges::lower_bound(numbers_, stream, {}, &std::pair<uint64_t, uint64_t>::first);
  if (it == numbers_.end() || it->first != stream) {
    numbers_.emplace(it, stream, number);
  } else {
    it->second = std::max(it->second, number);
  }
}

bool Clock::knows(uint64_t stream, uint64_t number) const {
  const auto it = std::ranges::lower_bound(numbers_, stream, {}, &std::pair<uint64_t, uint64_t>::first);
  return it != numbers_.end() && it->first == stream && it->second >= number;
}

void Clock::forget(const std::set<uint64_t>& streams) {
  std::erase_if(numbers_, [&](const auto& entry) { return streams.contains(entry.first); });
}

bool Operation::isBefore(const Operation& other) const {
  return other.before.knows(stream, number) || (launchStream != 0 && other.before.knows(launchStream, launchNumber));
}

void Accesses::cut(uint64_t at) {
  auto it = bytes_.upper_bound(at);
  if (it == bytes_.begin()) {
    return;
  }
  --it;
  if (it->first < at && at < it->second.end) {
    Bytes right = it->second;
    it->second.end = at;
    bytes_.emplace(at, std::move(right));
  }
}

void Accesses::forget(uint64_t begin, uint64_t end) {
  cut(begin);
  cut(end);
  bytes_.erase(bytes_.lower_bound(begin), bytes_.lower_bound(end));
}

void Accesses::forget(const std::set<uint64_t>& streams) {
  const auto isForgotten = [&](const auto& operation) { return operation && streams.contains(operation->outerStream()); };
  for (auto it = bytes_.begin(); it != bytes_.end();) {
    Bytes& bytes = it->second;
    if (isForgotten(bytes.writer)) {
      bytes.writer.reset();
    }
    std::erase_if(bytes.readers, isForgotten);
    it = bytes.writer == nullptr && bytes.readers.empty() ? bytes_.erase(it) : std::next(it);
  }
}

std::shared_ptr<const Operation> Accesses::touch(uint64_t begin, uint64_t end, bool writes,
                                                 const std::shared_ptr<const Operation>& by) {
  std::shared_ptr<const Operation> conflict;
  const auto mustBeOrdered = [&](const std::shared_ptr<const Operation>& other) {
    if (!conflict && other && other != by && !other->isBefore(*by)) {
      conflict = other;
    }
  };
  cut(begin);
  cut(end);
  uint64_t at = begin;
  for (auto it = bytes_.lower_bound(begin); at < end;) {
    if (it == bytes_.end() || it->first > at) {  // bytes that nobody has touched
      const uint64_t until = it == bytes_.end() ? end : std::min(end, it->first);
      it = bytes_.emplace_hint(it, at, Bytes{.end = until, .writer = nullptr, .readers = {}});
    }
    Bytes& bytes = it->second;
    mustBeOrdered(bytes.writer);
    if (writes) {
      std::ranges::for_each(bytes.readers, mustBeOrdered);
      bytes.writer = by;
      bytes.readers.clear();
    } else {
      // readers that are ordered before this one need not be kept: a later writer after this one is after them
      std::erase_if(bytes.readers, [&](const auto& r) { return r == by || r->isBefore(*by); });
      bytes.readers.push_back(by);
    }
    at = bytes.end;
    ++it;
  }
  return conflict;
}

}  // namespace simgpu
