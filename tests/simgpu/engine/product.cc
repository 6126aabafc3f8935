#include "product.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <utility>

#include "float16.h"

namespace simgpu {

namespace {

constexpr int kUsedWorkspace = 0xb5;

double load(uint64_t address, Element type) {
  const void* const at = reinterpret_cast<const void*>(address);
  uint16_t bits = 0;
  switch (type) {
    case Element::Float: {
      float value = 0;
      std::memcpy(&value, at, sizeof value);
      return value;
    }
    case Element::Double: {
      double value = 0;
      std::memcpy(&value, at, sizeof value);
      return value;
    }
    case Element::Half:
    case Element::BFloat16:
      std::memcpy(&bits, at, sizeof bits);
      return decode(bits, type == Element::Half ? kHalf : kBFloat16);
  }
  std::abort();
}

void store(uint64_t address, Element type, double value) {
  void* const at = reinterpret_cast<void*>(address);
  switch (type) {
    case Element::Float: {
      const auto rounded = static_cast<float>(value);
      std::memcpy(at, &rounded, sizeof rounded);
      return;
    }
    case Element::Double:
      std::memcpy(at, &value, sizeof value);
      return;
    case Element::Half:
    case Element::BFloat16: {
      const uint16_t bits = encode(value, type == Element::Half ? kHalf : kBFloat16);
      std::memcpy(at, &bits, sizeof bits);
      return;
    }
  }
}

double rounded(double value, Element type) {
  double bytes = 0;
  const auto address = reinterpret_cast<uint64_t>(&bytes);
  store(address, type, value);
  return load(address, type);
}

uint64_t addressOf(const Matrices& m, int32_t batch, uint64_t column) {
  const int64_t elements = m.batchStride * batch + m.columnStride * static_cast<int64_t>(column);
  return m.address + static_cast<uint64_t>(elements) * bytesOf(m.type);
}

// False if the matrices reach further than the memory of a device does.
bool isBounded(const Matrices& m) {
  const auto size = static_cast<double>(bytesOf(m.type));
  const double column = std::fabs(static_cast<double>(m.columnStride)) * static_cast<double>(m.columns - 1);
  const double batch = std::fabs(static_cast<double>(m.batchStride)) * (m.batches - 1);
  return (column + batch + static_cast<double>(m.rows)) * size < static_cast<double>(kDeviceStride);
}

std::vector<ByteRange> joined(std::vector<ByteRange> ranges) {
  std::ranges::sort(ranges);
  std::vector<ByteRange> apart;
  for (const ByteRange& r : ranges) {
    if (!apart.empty() && r.first <= apart.back().second) {
      apart.back().second = std::max(apart.back().second, r.second);
    } else {
      apart.push_back(r);
    }
  }
  return apart;
}

std::vector<ByteRange> rangesOf(const Matrices& m) {
  std::vector<ByteRange> ranges;
  for (int32_t batch = 0; batch < (m.batchStride == 0 ? 1 : m.batches); batch++) {
    for (uint64_t column = 0; column < (m.columnStride == 0 ? 1 : m.columns); column++) {
      const uint64_t begin = addressOf(m, batch, column);
      ranges.emplace_back(begin, begin + m.rows * bytesOf(m.type));
    }
  }
  return joined(std::move(ranges));
}

bool overlap(const std::vector<ByteRange>& x, const std::vector<ByteRange>& y) {
  for (auto i = x.begin(), j = y.begin(); i != x.end() && j != y.end();) {
    if (i->first < j->second && j->first < i->second) {
      return true;
    }
    i->second <= j->second ? ++i : ++j;
  }
  return false;
}

// op(M) of one batch, column-major without gaps.
std::vector<double> elementsOf(const Matrices& m, int32_t batch, bool isTransposed) {
  std::vector<double> elements(m.rows * m.columns);
  for (uint64_t column = 0; column < m.columns; column++) {
    const uint64_t begin = addressOf(m, batch, column);
    for (uint64_t row = 0; row < m.rows; row++) {
      elements[isTransposed ? column + row * m.columns : row + column * m.rows] =
          load(begin + row * bytesOf(m.type), m.type);
    }
  }
  return elements;
}

}  // namespace

std::vector<Operand> operandsOf(const MatrixProduct& p) {
  std::vector<Operand> all = {{"A", rangesOf(p.a)}, {"B", rangesOf(p.b)}};
  if (p.beta != 0) {
    all.push_back({"C", rangesOf(p.c)});
  }
  if (p.bias != 0) {
    all.push_back({"the bias", {{p.bias, p.bias + p.d.rows * bytesOf(p.d.type)}}});
  }
  if (p.workspaceNeeded != 0) {
    all.push_back({"the workspace", {{p.workspace, p.workspace + p.workspaceNeeded}}, true});
  }
  all.push_back({"D", rangesOf(p.d), true});
  return all;
}

std::string unboundedOperand(const MatrixProduct& p) {
  const std::pair<const char*, const Matrices*> all[] = {{"A", &p.a}, {"B", &p.b}, {"C", &p.c}, {"D", &p.d}};
  const auto* const it = std::ranges::find_if(all, [&](const auto& m) { return !isBounded(*m.second); });
  return it == std::end(all) ? "" : it->first;
}

std::string overlapIn(const MatrixProduct& p, const std::vector<Operand>& operands) {
  const auto layout = [](const Matrices& m) {
    return std::tuple(m.address, m.columnStride, m.batches > 1 ? m.batchStride : 0);
  };
  for (size_t i = 0; i < operands.size(); i++) {
    for (size_t j = i + 1; j < operands.size(); j++) {
      const Operand& x = operands[i];
      const Operand& y = operands[j];
      const bool isInPlace = x.name == "C" && y.name == "D" && layout(p.c) == layout(p.d);
      if ((x.isWritten || y.isWritten) && !isInPlace && overlap(x.bytes, y.bytes)) {
        return "writes bytes of " + y.name + " that are also bytes of " + x.name;
      }
    }
  }
  uint64_t bytes = 0;
  for (const auto& [begin, end] : operands.back().bytes) {
    bytes += end - begin;
  }
  const uint64_t all = p.d.rows * p.d.columns * static_cast<uint64_t>(p.d.batches) * bytesOf(p.d.type);
  return bytes == all ? "" : "writes bytes of D twice: its columns or batches overlap";
}

// The documentation says "x := max(x, 0)" and "x := GELU(x)". It does not say what max gives for NaN, or which form of GELU is meant: here
// NaN is lost, as on an H200, and the form is that with tanh.
static double activated(double x, Activation activation) {
  switch (activation) {
    case Activation::None:
      return x;
    case Activation::Relu:
      return std::fmax(x, 0.0);
    case Activation::Gelu:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  }
  std::abort();
}

void multiply(const MatrixProduct& p) {
  const uint64_t m = p.d.rows;
  const uint64_t inner = p.transposeA != 0 ? p.a.rows : p.a.columns;
  if (p.workspaceNeeded != 0) {
    std::memset(reinterpret_cast<void*>(p.workspace), kUsedWorkspace, p.workspaceNeeded);
  }
  for (int32_t batch = 0; batch < p.d.batches; batch++) {
    const std::vector<double> a = elementsOf(p.a, batch, p.transposeA != 0);
    const std::vector<double> b = elementsOf(p.b, batch, p.transposeB != 0);
    std::vector<double> sums(m);
    for (uint64_t column = 0; column < p.d.columns; column++) {
      std::ranges::fill(sums, 0.0);
      for (uint64_t k = 0; k < inner; k++) {
        if (p.roundsParts != 0 && k == (inner + 1) / 2) {
          std::ranges::transform(sums, sums.begin(), [&](double sum) { return rounded(sum, p.d.type); });
        }
        const double factor = b[k + column * inner];
        for (uint64_t row = 0; row < m; row++) {
          sums[row] += a[row + k * m] * factor;
        }
      }
      for (uint64_t row = 0; row < m; row++) {
        const uint64_t to = addressOf(p.d, batch, column) + row * bytesOf(p.d.type);
        double value = p.alpha * sums[row];
        if (p.beta != 0) {
          value += p.beta * load(addressOf(p.c, batch, column) + row * bytesOf(p.c.type), p.c.type);
        }
        if (p.bias != 0) {
          value += load(p.bias + row * bytesOf(p.d.type), p.d.type);
        }
        store(to, p.d.type, activated(value, p.activation));
      }
    }
  }
}

}  // namespace simgpu
