// Every example program for a GPU, over types and odd sizes, with what its result may be off by.
#pragma once

#include <vector>

#include "simt/compare.h"

namespace meshfuse::simt {

[[nodiscard]] std::vector<Comparison> pointwisePrograms();
[[nodiscard]] std::vector<Comparison> rowPrograms();     // reductions and normalizations of rows
[[nodiscard]] std::vector<Comparison> columnPrograms();  // outer sums and transposes

}  // namespace meshfuse::simt
