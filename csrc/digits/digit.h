// Digit: one digit of the index of a dim, written as a mixed-radix number, and the owner of this digit.
//
// A dim of extent N is a number with digits of falling strides; the value of a digit at index i is (i / stride) mod size.
// With a device axis x of 2 and N = 8:
//
//   block   (stride 4, size 2, x)(stride 1, size 4, local)     rank 0 holds 0 1 2 3, rank 1 holds 4 5 6 7
//   cyclic  (stride 2, size 4, local)(stride 1, size 2, x)     rank 0 holds 0 2 4 6, rank 1 holds 1 3 5 7
//
// An owned digit is fixed on a rank: its value is the rank's coordinate on the axis, or a digit of that coordinate.
//
// If the sizes do not divide N, the topmost digit is ragged: stride times size exceeds N, the digit keeps N as its bound, and indices
// from N on do not exist. N = 5 in blocks over an x of 4: (stride 2, size 4, x, bound 5)(stride 1, size 2, local). A symbolic N that 4
// is not known to divide: (stride ceilDiv(N, 4), size 4, x, bound N)(stride 1, size ceilDiv(N, 4), local).
//
// Parts of given sizes are digits of the padded dim (part_sizes.h). Each digit lists the sizes of the parts: {2, 3, 4, 5} over an x of 4:
// (stride 5, size 4, x, bound 14, parts [2, 3, 4, 5])(stride 1, size 5, local, the same parts).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "digits/int_expr.h"

namespace meshfuse {

enum class OwnerKind : uint8_t { Local, Device, Stream };

struct Owner {
  OwnerKind kind = OwnerKind::Local;
  int64_t axis = 0;   // Device: position of the mesh axis
  IntExpr below = 1;  // Device: the digit's value is (coordinate / below) mod size

  static Owner device(int64_t axis, const IntExpr& below = 1) { return {OwnerKind::Device, axis, below}; }
  static Owner stream() { return {OwnerKind::Stream, 0, 1}; }
  bool isLocal() const { return kind == OwnerKind::Local; }
  bool isDevice() const { return kind == OwnerKind::Device; }
  friend bool operator==(const Owner&, const Owner&) = default;
};

struct Digit {
  int64_t dim = 0;
  IntExpr stride = 1;
  IntExpr size = 1;
  Owner owner;
  IntExpr bound = kEven;       // of a ragged digit: the true extent of its dim
  std::vector<IntExpr> parts;  // sizes of the parts, if the dim has parts of given sizes

  static constexpr int64_t kEven = -1;
  bool isRagged() const { return !bound.isConst(kEven); }
  // d0/4%2:a0<7 (axis 0; a0/2 if `below` is 2; `stream` for a stream), without the owner when local, without the bound when even;
  // d0/5%4:a0[2, 3, 4, 5].
  std::string toString() const;
  friend bool operator==(const Digit&, const Digit&) = default;
};

}  // namespace meshfuse
