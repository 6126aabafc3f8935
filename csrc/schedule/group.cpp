#include "schedule/group.h"

#include "ir/fusion.h"
#include "tensor/tensor.h"

namespace meshfuse {

Layout layoutOf(const TensorView* tensor, const std::map<int, Layout>& layouts) {
  const auto known = layouts.find(tensor->id());
  return known != layouts.end() ? known->second : Layout{contiguousStrides(tensor->constantShape())};
}

}  // namespace meshfuse
