// Ops along whole lines: running sums, orders, extremes, selections, statistics.
#include <algorithm>

#include "fuzz/graph.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse::fuzz {

void Graph::scanOrSort() {
  Item x = pick();
  // Computed elements that are nearly equal have no certain order: rather those that are given.
  if (random_.chance(60)) {
    std::vector<Item> given;
    std::copy_if(items_.begin(), items_.end(), std::back_inserter(given),
                 [](const Item& i) { return i.tv->isFusionInput(); });
    x = random_.of(given);
  }
  Shape shape = shapeOf(x.tv);
  if (shape.empty()) {
    return;
  }
  int64_t dim = random_.below(std::ssize(shape));
  int64_t extent = shape[dim];
  bool descending = random_.chance(50);
  switch (random_.below(8)) {
    case 0:
    case 1:
      x = limited(x, 100);
      add(cumsum(x.tv, dim), x.magnitude * static_cast<double>(extent));
      return;
    case 2:
      if (x.tv->dtype() != DataType::Bool && !isHalfPrecision(x.tv->dtype())) {
        add(scan(x.tv, dim, random_.chance(50) ? ReduceOp::Max : ReduceOp::Min), x.magnitude);
      }
      return;
    case 3: {
      SortResult r = sort(x.tv, dim, descending);
      add(r.values, x.magnitude);
      add(r.indices, static_cast<double>(extent));
      return;
    }
    case 4:
    case 5: {
      TopKResult r = topk(x.tv, random_.between(1, extent), dim, descending);
      add(r.values, x.magnitude);
      add(r.indices, static_cast<double>(extent));
      return;
    }
    case 6:
      if (x.tv->dtype() != DataType::Bool) {
        add(descending ? argmax(x.tv, dim) : argmin(x.tv, dim), static_cast<double>(extent));
      }
      return;
    default:
      add(select(x.tv, dim, random_.between(-extent, extent - 1)), x.magnitude);
      return;
  }
}

void Graph::statistics() {
  Item x = pickFloating(100);
  Shape shape = shapeOf(x.tv);
  if (shape.empty()) {
    return;
  }
  auto rank = std::ssize(shape);
  const double squared = x.magnitude * x.magnitude * 4 + 1;
  switch (rank < 3 ? 0 : random_.below(4)) {
    case 1:
      add(batch_norm(x.tv, nullptr, nullptr, nullptr, nullptr, true, 0.1, 1e-2).output, 20);
      return;
    case 2:
      add(instance_norm(x.tv, nullptr, nullptr, nullptr, nullptr, true, 0.1, 1e-2, random_.chance(30)).output, 20);
      return;
    case 3: {
      int64_t groups = shape[1] % 2 == 0 && random_.chance(70) ? 2 : 1;
      add(group_norm(x.tv, groups, nullptr, nullptr, 1e-2).output, 20);
      return;
    }
    default: {
      VarMeanResult r = variance_mean(x.tv, someAxes(static_cast<int>(rank)), 0, random_.chance(30));
      add(r.var, squared);
      add(r.mean, x.magnitude);
      return;
    }
  }
}

}  // namespace meshfuse::fuzz
