#include "stress/special_values.h"

#include <functional>
#include <vector>

#include "inputs.h"

namespace meshfuse {

Tensor stressRows(int64_t length, DataType type) {
  std::vector<std::function<double(int64_t)>> contents = {
      [](int64_t i) { return i == 0 ? kNan : static_cast<double>(i); },
      [=](int64_t i) { return i == length / 2 ? kNan : -static_cast<double>(i); },
      [=](int64_t i) { return i == length - 1 ? kNan : 1.0; },
      [](int64_t) { return kNan; },
      [](int64_t) { return -kInf; },
      [](int64_t) { return kInf; },
      [](int64_t i) { return i % 2 == 0 ? kInf : -kInf; },
      [=](int64_t i) { return i == length / 2 ? -kInf : -3.0; },
      [=](int64_t i) { return i == length - 1 ? kInf : 3.0; },
      [](int64_t i) { return i % 2 == 0 ? 0.0 : -0.0; },
      [](int64_t) { return -0.0; },
      [](int64_t i) { return -static_cast<double>(i % 7) - 1; },
      [](int64_t i) { return i % 3 == 0 ? 60000.0 : -60000.0; },
  };
  Tensor t = Tensor::empty({std::ssize(contents), length}, type);
  for (size_t r = 0; r < contents.size(); r++) {
    for (int64_t i = 0; i < length; i++) {
      t.set(std::vector<int64_t>{static_cast<int64_t>(r), i}, contents[r](i));
    }
  }
  return t;
}

int64_t stressRowCount() { return stressRows(1, DataType::Float).size(0); }

}  // namespace meshfuse
