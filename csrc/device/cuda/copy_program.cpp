#include "device/cuda/copy_program.h"

#include <vector>

#include "base/rounding.h"
#include "tile/builder.h"

namespace meshfuse {

namespace {

constexpr int64_t kCopyWarps = 4;
constexpr int64_t kCopyThreads = 32 * kCopyWarps;

tile::TensorParam parameterOf(const char* name, tile::Memory memory, const StridedElements& e) {
  return {.name = name,
          .dtype = e.dtype,
          .memory = memory,
          .extents = {e.sizes.begin(), e.sizes.end()},
          .strides = {e.strides.begin(), e.strides.end()},
          .alignment = dataTypeSize(e.dtype)};
}

}  // namespace

tile::Program copyProgram(const StridedElements& to, const StridedElements& from) {
  using namespace tile;
  Builder b("copy", Target::Gpu);
  int64_t count = 1;
  for (const int64_t size : to.sizes) {
    count *= size;
  }
  b.gridDim("part", divideUp(count, kCopyThreads));
  const int64_t elements =
      b.space("elements", {{"i", count, {{Level::Part, 0, "part"}, {Level::Warp, kCopyWarps}, {Level::Lane, 32}}}});
  const int64_t x = b.tensor(parameterOf("x", Memory::Input, from));
  const int64_t z = b.tensor(parameterOf("z", Memory::Output, to));
  // positions in both tensors, the last dim fastest
  std::vector<Index> index(to.sizes.size());
  IntExpr rest = b.coord(elements, 0);
  for (size_t d = to.sizes.size(); d-- > 0;) {
    index[d] = {.expr = d == 0 ? rest : mod(rest, to.sizes[d])};
    rest = floorDiv(rest, to.sizes[d]);
  }
  b.store(z, index, b.load(x, index, elements));
  return b.take();
}

}  // namespace meshfuse
