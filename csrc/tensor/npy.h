// Tensors in NumPy's .npy files (format versions 1 to 3).
//
// The types are in the column `npy` of tensor/dtype.h, little-endian only. Format:
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <string>
#include <string_view>

#include "tensor/tensor.h"

namespace meshfuse {

// The bytes of a file. A tensor that is not contiguous is written in row-major order.
[[nodiscard]] std::string npyBytes(const Tensor& tensor);
// UserError naming `file` if the bytes are not a NumPy file, are cut short, or hold a type that DataType lacks. An array in Fortran order
// gives a tensor with strides in Fortran order.
[[nodiscard]] Tensor parseNpy(std::string_view bytes, std::string_view file = "npy");

void writeNpy(const std::string& path, const Tensor& tensor);  // UserError if the file can't be written
[[nodiscard]] Tensor readNpy(const std::string& path);

}  // namespace meshfuse
