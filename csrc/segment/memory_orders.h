// memory_orders: gives results the memory order of their allocation domain.
//
//   T1 = neg(T0) : [M, N] alloc[1, 0]                    ->   layouts[T1] = strides {1, M}
//   T2 = matmul(T0, T1) : [M, N] alloc[1, 0], output     ->   T2 = matmul(T0, T1) : [M, N], T3 = set(T2) : [M, N] alloc[1, 0], output
//
// Kernels store in any order. If a library or collective makes a tensor, or a library reads it and would refuse the order, an output gets a
// copy in its order, and any other tensor loses its order. Inputs, which have the order of the arguments, and outputs that alias an input
// are not changed. Holds before: a local fusion; after: a tensor has an order only if it is stored in it, and a layout if the order is not
// row-major. Idempotent.
#pragma once

namespace meshfuse {

class Fusion;
struct LocalContext;

// True if a layout was added or the fusion changed.
bool memoryOrders(Fusion& fusion, LocalContext& context);

}  // namespace meshfuse
