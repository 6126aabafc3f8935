// The strategies of an op: which factor of its OpRule each mesh axis cuts. Nothing is listed by hand for an op.
//
//   c = matmul(a [M, K], b [K, N]) on {x: 2}
//     none               a R R    b R R    c R R
//     x cuts M           a S0(x)  b R R    c S0(x)
//     x cuts N           a R R    b S1(x)  c S1(x)
//     x cuts K           a S1(x)  b S0(x)  c is a partial sum over x
//
// A factor can be cut if it is Parallel, or if the op combines contributions and the factor is Summed or Indexed. Strategies whose axes do
// not divide a dim are left out (unless uneven blocks are allowed), and so are those whose result is not in blocks of its logical dims,
// as of a reshape that cuts inside of a dim.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autoplan/placement.h"

namespace meshfuse {

class Expr;

struct Strategy {
  std::vector<int64_t> factors;     // by axis: position in factors(expr), or -1
  std::vector<Placement> operands;  // by operand, as needed; empty for a scalar
  Placement result;
  std::vector<int64_t> summed;  // axes over which the result is a partial sum
};

// At least one: no axis cuts anything. All sizes are constants. UserError if the op has no rule.
[[nodiscard]] std::vector<Strategy> strategiesOf(const Expr& expr, const DeviceMesh& mesh, Division division);

// rows over dp, contracted over tp; replicated if no axis cuts anything.
[[nodiscard]] std::string describe(const Expr& expr, const Strategy& strategy, const DeviceMesh& mesh);

// Whether the op only changes how the elements of its operand are seen: broadcast, squeeze, expand, permute, reshape.
[[nodiscard]] bool isView(const Expr& expr);

}  // namespace meshfuse
