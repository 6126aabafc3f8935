// decompose_contractions: matmul and linear that no template accepts become products and sums, which a reduction kernel takes.
//
//   T2 = matmul(T0[M, K], T1[K, N])   ->   T3 = mul(broadcast(T0), broadcast(transpose(T1)))   T2 = sum of T3 over K
//
// 16-bit operands multiply and add in Float and round once. Holds before: a local fusion; after: every Matmul and Linear left
// is a library call. Idempotent. A remark says why no library accepts it. Runs before segmentation.
#pragma once

namespace meshfuse {

class Fusion;
struct LocalContext;

// True if the fusion changed.
bool decomposeContractions(Fusion& fusion, LocalContext& context);

}  // namespace meshfuse
