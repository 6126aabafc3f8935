// What decompose-reshardings says of programs whose parts it cannot name. The golden programs are in decompose_reshardings.fir.
#include "preseg_passes/decompose_reshardings.h"

#include <gtest/gtest.h>

#include "analysis/pass_context.h"
#include "base/not_constant.h"
#include "ir/fusion.h"
#include "ir/text.h"

namespace meshfuse {
namespace {

// Each rank adds the terms of a cyclic part of blocks whose number is not known to divide the dim. Their part of T0 has no digits: the caller
// plans for constant sizes.
TEST(DecomposeReshardings, APartialSumOfAnUnknownPartNeedsConstantSizes) {
  const std::unique_ptr<Fusion> fusion = parseFusion(
      "fusion {\n"
      "  symbol i0 {lower: 2}\n"
      "  symbol i1 {lower: 2}\n"
      "  mesh M0 {x: 2} [0, 1]\n"
      "  T0 = input() : Float[i0, 4] contiguity[t, t] mesh M0 outer_split(1, 2) parallelize(1, DIDx)\n"
      "  T3 = input() : Float[i1] contiguity[t] mesh M0\n"
      "  T1 = reduce(T0, op=sum) : Float[p{2}, r{i1}, r{ceilDiv(ceilDiv(i0, i1), 2)}, 4] "
      "root[r{i0}, 4; outer_split(0, i1), inner_split(1, 2), reorder[2, 0, 1, 3]] mesh M0 parallelize(0, DIDx)\n"
      "  T2 = redistribute(T1, op=sum, dim=0) : Float[r{2}, 4] mesh M0\n"
      "  output T2\n"
      "  output T3\n"
      "}\n");
  PassContext context(*fusion);
  EXPECT_THROW((void)decomposeReshardings(*fusion, context), NotConstantError);
}

}  // namespace
}  // namespace meshfuse
