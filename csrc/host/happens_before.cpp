#include "host/happens_before.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace meshfuse {

HappensBefore::Row HappensBefore::rowOf(int64_t queue) const {
  Row row((before_.size() + 63) / 64);
  if (const auto it = last_.find(queue); it != last_.end()) {
    follow(row, it->second);
  }
  return row;
}

void HappensBefore::follow(Row& row, int64_t step) const {
  const Row& earlier = before_[step];
  std::ranges::transform(earlier, row, row.begin(), std::bit_or());
  row[step / 64] |= uint64_t{1} << (step % 64);
}

void HappensBefore::keep(int64_t queue, Row row) {
  last_[queue] = steps();
  before_.push_back(std::move(row));
}

void HappensBefore::append(const StepOrder& order) {
  Row row = rowOf(order.queue);
  for (const int64_t step : order.waits) {
    follow(row, step);
  }
  keep(order.queue, std::move(row));
}

StepOrder HappensBefore::appendAfter(int64_t queue, std::vector<int64_t> steps) {
  StepOrder order{.queue = queue};
  Row row = rowOf(queue);
  std::ranges::sort(steps, std::greater());  // later steps may follow earlier ones
  for (const int64_t step : steps) {
    if (!holds(row, step)) {
      follow(row, step);
      order.waits.push_back(step);
    }
  }
  std::ranges::reverse(order.waits);
  keep(queue, std::move(row));
  return order;
}

}  // namespace meshfuse
