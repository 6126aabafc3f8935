// Products of matrices, as cublasLtMatmul gives them: which bytes they touch, and their values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../protocol.h"
#include "kernels.h"

namespace simgpu {

struct Operand {
  std::string name;
  std::vector<ByteRange> bytes;  // sorted and apart
  bool isWritten = false;
};

// The matrix that reaches further than the memory of a device does; empty if none does. Only then may the rest be asked.
std::string unboundedOperand(const MatrixProduct& p);

// What the product reads, then what it writes, D last. Elements that lie side by side are one range.
std::vector<Operand> operandsOf(const MatrixProduct& p);

// Which bytes the product both reads and writes, or writes twice; empty if none. C may be D.
std::string overlapIn(const MatrixProduct& p, const std::vector<Operand>& operands);

// Sums and applies the activation in double, one element after the other, and rounds to the type of D: once, unless parts of the sum are
// rounded too. Fills the workspace with poison.
void multiply(const MatrixProduct& p);

}  // namespace simgpu
