#include "exec/overlaps.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <vector>

#include "base/error.h"

namespace meshfuse {

namespace {

// The bytes from a tensor's first element to its last.
struct Extent {
  uint64_t begin = 0;
  uint64_t end = 0;
  const Tensor* tensor = nullptr;
  int input = -1;
  int output = -1;
  int writer = -1;  // output that is written here
};

Extent extentOf(const Tensor& t) {
  const uint64_t begin = std::bit_cast<uint64_t>(t.data());
  return {begin, begin + static_cast<uint64_t>(extentBytes(t)), &t};
}

// Calls visit(address) for every element.
template <class Visit>
void forEachElement(const Tensor& t, const Visit& visit) {
  std::vector<int64_t> index(t.dim(), 0);
  uint64_t base = std::bit_cast<uint64_t>(t.data());
  int64_t offset = 0;
  for (int64_t n = t.numel(); n > 0; n--) {
    visit(base + static_cast<uint64_t>(offset * dataTypeSize(t.dtype())));
    for (size_t d = index.size(); d-- > 0;) {
      offset += t.strides()[d];
      if (++index[d] < t.sizes()[d]) {
        break;
      }
      offset -= index[d] * t.strides()[d];
      index[d] = 0;
    }
  }
}

// Compares all elements: slow, but only extents that overlap come here, which is rare.
bool shareElements(const Extent& a, const Extent& b) {
  uint64_t begin = std::max(a.begin, b.begin);
  uint64_t end = std::min(a.end, b.end);
  std::vector<bool> taken(end > begin ? end - begin : 0, false);
  auto forBytes = [&](const Tensor& t, auto&& visit) {
    forEachElement(t, [&](uint64_t address) {
      for (uint64_t byte = address; byte < address + static_cast<uint64_t>(dataTypeSize(t.dtype())); byte++) {
        if (byte >= begin && byte < end) {
          visit(byte - begin);
        }
      }
    });
  };
  forBytes(*a.tensor, [&](uint64_t byte) { taken[byte] = true; });
  bool shared = false;
  forBytes(*b.tensor, [&](uint64_t byte) { shared = shared || taken[byte]; });
  return shared;
}

[[noreturn]] void refuse(const Extent& a, const Extent& b) {
  auto described = [](const Extent& e) {
    return e.input >= 0 ? fmt::format("input {}", e.input) : fmt::format("the tensor for output {}", e.output);
  };
  const Extent& written = a.writer >= 0 ? a : b;
  throwUserError(
      fmt::format("[run] {} and {} share memory, and output {} is written there; pass a copy, see Tensor::clone",
                  described(a), described(b), written.writer));
}

}  // namespace

bool repeatsElements(const Tensor& tensor) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (int d = 0; d < tensor.dim(); d++) {
    size_t at = static_cast<size_t>(d);
    if (tensor.sizes()[at] == 0) {
      return false;
    }
    if (tensor.sizes()[at] > 1) {
      dims.emplace_back(tensor.strides()[at], tensor.sizes()[at]);
    }
  }
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;  // of the dims so far, in elements
  bool nested = true;
  for (const auto& [stride, size] : dims) {
    nested = nested && stride > reach;
    reach += stride * (size - 1);
  }
  if (nested) {
    return false;
  }
  std::vector<uint64_t> addresses;
  forEachElement(tensor, [&](uint64_t address) { addresses.push_back(address); });
  std::sort(addresses.begin(), addresses.end());
  return std::adjacent_find(addresses.begin(), addresses.end()) != addresses.end();
}

int64_t extentBytes(const Tensor& t) {
  int64_t last = 0;
  for (size_t d = 0; d < t.sizes().size(); d++) {
    if (t.sizes()[d] == 0) {
      return 0;
    }
    last += (t.sizes()[d] - 1) * t.strides()[d];
  }
  return (last + 1) * dataTypeSize(t.dtype());
}

bool checkOverlaps(std::span<const std::optional<int>> aliasOf, std::span<const Argument> inputs,
                   std::span<const Tensor> outputs) {
  thread_local std::vector<Extent> extents;  // keeps its memory from call to call
  extents.clear();
  for (size_t i = 0; i < inputs.size(); i++) {
    if (const Tensor* t = std::get_if<Tensor>(&inputs[i])) {
      extents.push_back(extentOf(*t));
      extents.back().input = static_cast<int>(i);
    }
  }
  size_t tensors = extents.size();
  bool separate = true;
  for (size_t o = 0; o < aliasOf.size(); o++) {
    if (std::optional<int> input = aliasOf[o]) {
      auto it = std::lower_bound(extents.begin(), extents.begin() + static_cast<int64_t>(tensors), *input,
                                 [](const Extent& e, int i) { return e.input < i; });
      it->writer = static_cast<int>(o);
    } else if (o < outputs.size()) {
      extents.push_back(extentOf(outputs[o]));
      extents.back().output = static_cast<int>(o);
      extents.back().writer = static_cast<int>(o);
    }
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return std::tie(a.begin, a.end, a.input, a.output) < std::tie(b.begin, b.end, b.input, b.output);
  });
  for (size_t i = 0; i < extents.size(); i++) {
    const Extent& a = extents[i];
    for (size_t j = i + 1; j < extents.size() && extents[j].begin < a.end; j++) {
      const Extent& b = extents[j];
      if (a.begin == a.end || b.begin == b.end || (a.writer < 0 && b.writer < 0)) {
        continue;
      }
      bool readOnlyInput = (a.input >= 0 && a.writer < 0) || (b.input >= 0 && b.writer < 0);
      bool supplied = a.output >= 0 || b.output >= 0;
      if (readOnlyInput && supplied) {
        separate = false;
      } else if (shareElements(a, b)) {
        refuse(a, b);
      }
    }
  }
  return separate;
}

}  // namespace meshfuse
