// The arguments of one call of an example program: aligned buffers, random inputs, outputs filled with a pattern.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tile/programs.h"

namespace meshfuse::tile {

class Call {
 public:
  // Floating inputs are uniform in [-2, 2), integer ones in [0, 10). Outputs and workspaces hold NaN or -1 unless zeroed.
  explicit Call(const Example& example, uint64_t seed = 1);

  std::vector<uint64_t> slots() const;
  int64_t elements(int tensor) const { return elements_[tensor]; }  // from the base pointer on
  void* data(int tensor) const { return data_[tensor]; }
  // All elements of a tensor; integers exactly while below 2^53.
  std::vector<double> values(int tensor) const;
  void set(int tensor, int64_t element, double value);
  // True if nothing wrote before or after a buffer.
  bool guardsIntact() const;

 private:
  const Program& program_;
  std::vector<int64_t> sizes_;
  std::vector<double> scalars_;
  std::vector<int64_t> elements_;
  std::vector<void*> data_;
  std::vector<std::unique_ptr<char[]>> storage_;
};

}  // namespace meshfuse::tile
