#include "exec/overlaps.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "base/ranges.h"

namespace meshfuse {

namespace {

// The bytes from a tensor's first element to its last.
struct Extent {
  uint64_t begin = 0;
  uint64_t end = 0;
  const Tensor* tensor = nullptr;
  int64_t input = -1;
  int64_t output = -1;
  int64_t writer = -1;  // output that is written here
};

// Of an input or an output; -1 for the other.
Extent extentOf(const Tensor& t, int64_t input, int64_t output) {
  const uint64_t begin = std::bit_cast<uint64_t>(t.data());
  return {begin, begin + static_cast<uint64_t>(t.spannedBytes()), &t, input, output, output};
}

// Calls visit(address) for every element.
template <class Visit>
void forEachElement(const Tensor& t, const Visit& visit) {
  std::vector<int64_t> index(t.dim(), 0);
  uint64_t base = std::bit_cast<uint64_t>(t.data());
  int64_t offset = 0;
  for (int64_t n = t.numel(); n > 0; n--) {
    visit(base + static_cast<uint64_t>(offset * dataTypeSize(t.dtype())));
    for (int64_t d = t.dim(); d-- > 0;) {
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
  for (const int64_t d : indices(tensor.sizes())) {
    if (tensor.sizes()[d] > 1) {
      dims.emplace_back(tensor.strides()[d], tensor.sizes()[d]);
    }
  }
  std::ranges::sort(dims);
  int64_t reach = 0;  // of the dims so far, in elements
  bool nested = true;
  for (const auto& [stride, size] : dims) {
    nested = nested && stride > reach;
    reach += stride * (size - 1);
  }
  if (nested || tensor.numel() == 0) {
    return false;
  }
  std::vector<uint64_t> addresses;
  forEachElement(tensor, [&](uint64_t address) { addresses.push_back(address); });
  std::ranges::sort(addresses);
  return std::ranges::adjacent_find(addresses) != addresses.end();
}

bool checkOverlaps(std::span<const std::optional<int64_t>> aliasOf, std::span<const Argument> inputs,
                   std::span<const Tensor> outputs) {
  thread_local std::vector<Extent> extents;  // keeps its memory from call to call
  extents.clear();
  for (int64_t i = 0; i < std::ssize(inputs); i++) {
    if (const Tensor* t = std::get_if<Tensor>(&inputs[i])) {
      extents.push_back(extentOf(*t, i, -1));
    }
  }
  const int64_t tensors = std::ssize(extents);
  bool separate = true;
  for (int64_t o = 0; o < std::ssize(aliasOf); o++) {
    if (aliasOf[o]) {
      const std::span<Extent> ofInputs(extents.begin(), tensors);
      std::ranges::lower_bound(ofInputs, *aliasOf[o], {}, &Extent::input)->writer = o;
    } else if (o < std::ssize(outputs)) {
      extents.push_back(extentOf(outputs[o], -1, o));
    }
  }
  std::ranges::sort(extents, {}, [](const Extent& e) { return std::tie(e.begin, e.end, e.input, e.output); });
  for (int64_t i = 0; i < std::ssize(extents); i++) {
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
