// Runs programs under the emulator and with the interpreter of tile programs, and compares what they wrote.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "simt/emulator.h"
#include "tile/programs.h"

namespace meshfuse::simt {

struct Comparison {
  tile::Example example;
  // Roundings of Float (of Double for Double tensors) that a result may be off by, relative to the larger of 1 and its
  // value, beside one rounding to the type of its tensor.
  double steps = 8;
  std::string text = {};     // in place of the generated one
  int64_t sharedBytes = -1;  // likewise
  uint64_t seed = 1;
  bool countSectors = false;

  std::string describe() const;  // the program's name and sizes
};

struct Verdict {
  Result result;
  std::string mismatch;  // the first element that differs, and by how much; empty if none does
  bool right() const { return result.faultCount == 0 && mismatch.empty(); }
  std::string describe() const;
};

// All in one batch of `runner`.
[[nodiscard]] std::vector<Verdict> compare(std::span<const Comparison> cases, const Runner& runner = {});

}  // namespace meshfuse::simt
