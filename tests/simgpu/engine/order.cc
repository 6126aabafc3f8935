#include "order.h"

#include <algorithm>
#include <iterator>

namespace simgpu {

void Clock::join(const Clock& other) {
  for (const auto& [stream, number] : other.numbers_) {
    know(stream, number);
  }
}

void Clock::know(uint64_t stream, uint64_t number) {
  uint64_t& own = numbers_[stream];
  own = std::max(own, number);
}

bool Clock::knows(uint64_t stream, uint64_t number) const {
  const auto it = numbers_.find(stream);
  return it != numbers_.end() && it->second >= number;
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
