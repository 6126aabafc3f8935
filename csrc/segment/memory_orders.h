// memory_orders: results lie in memory in the order of their allocation domain.
//
//   T1 = neg(T0) : [M, N] alloc[1, 0]                    ->   layouts[T1] = strides {1, M}
//   T2 = matmul(T0, T1) : [M, N] alloc[1, 0], output     ->   T2 = matmul(T0, T1) : [M, N], T3 = set(T2) : [M, N] alloc[1, 0], output
//
// Kernels store in any order. An output that something else makes, or that a library reads and would then refuse, gets a copy in
// its order; another tensor of that kind loses its order. Left as they are: inputs, which lie as the arguments do, and outputs
// that take the memory of one. Holds before: a local fusion; after: a tensor has an order only if it lies in it, and a layout if
// that is not row-major. Idempotent.
#pragma once

namespace meshfuse {

class Fusion;
struct LocalContext;

// True if a layout was added or the fusion changed.
bool memoryOrders(Fusion& fusion, LocalContext& context);

}  // namespace meshfuse
