// Scatter and index_put_accumulate on a GPU: runtime/cuda/put.cuh.
//
// Scatter numbers the writes to each position, then each element of the result takes the last one. index_put_accumulate sorts the
// index by row; then a thread adds up each element in the order of the index: 16-bit types in Float, Float in Double, as on a CPU.
#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/ranges.h"
#include "base/rounding.h"
#include "device/cuda/routines/kernel_text.h"
#include "device/cuda/routines/routine_program.h"
#include "device/cuda/routines/sort.h"
#include "ir/fusion.h"
#include "ir/tensor_view.h"

namespace meshfuse {

namespace {

using Sizes = std::vector<int64_t>;
using enum RoutineSlot::Kind;

constexpr int64_t kThreads = 256;

std::string pointerTo(std::string_view element) { return fmt::format("const {}*", element); }

// Dims [begin, end).
std::vector<PositionDim> dimsOf(const Sizes& sizes, const Sizes& strides, int64_t begin, int64_t end) {
  std::vector<PositionDim> dims;
  for (int64_t d = begin; d < end; d++) {
    dims.push_back({sizes[d], strides[d]});
  }
  return dims;
}

int64_t addKernel(RoutineProgram& program, RoutineText text) {
  text.threads = kThreads;
  program.kernels.push_back(sourceOf(text));
  return std::ssize(program.kernels) - 1;
}

// With a thread for each of `count` pieces of work.
void addLaunch(RoutineProgram& program, RoutineText text, int64_t count, std::vector<RoutineSlot> slots) {
  const int64_t kernel = addKernel(program, std::move(text));
  program.launches.push_back({.kernel = kernel, .blocks = divideUp(count, kThreads), .slots = std::move(slots)});
}

}  // namespace

RoutineProgram scatterProgram(const Expr& e, const RoutineOptions& options) {
  const Sizes sizes = e.tensorOutput()->constantShape();
  const TensorView* const index = e.input(1)->asTensor();
  const int64_t dim = e.attributes().dim;
  const int64_t count = productOf(sizes);
  RoutineProgram program;
  if (count == 0) {
    return program;
  }
  const Sizes put = index->constantShape();
  const int64_t writes = productOf(put);
  check(put[dim] < UINT32_MAX, "[cuda] scatter of {} elements along one dim has no kernel on a GPU; run it on the CPU",
        put[dim]);
  const auto lineText = [&](int64_t operand) {
    return offsetText("line", linesOf(e.input(operand)->asTensor()->constantShape(),
                                      constantStrides(e.input(operand)->asTensor(), options.layouts), dim));
  };
  const auto stepOf = [&](int64_t operand) {
    return constantStrides(e.input(operand)->asTensor(), options.layouts)[dim];
  };
  const std::string_view element = cuda::storageType(e.output()->dtype());
  const std::string_view indexElement = cuda::storageType(index->dtype());
  const std::string lines = fmt::format(
      "struct Lines {{\n"
      "  static constexpr i64 kInner = {}, kCount = {}, kExtent = {}, kWrites = {}, kElements = {};\n"
      "  static __device__ __forceinline__ i64 position(const {}* index, i64 line, i64 j) {{\n"
      "    return (i64)loadOne<kShared>(index + {} + j * {}, 4) - {};\n"
      "  }}\n"
      "  static __device__ __forceinline__ i64 table(i64 line, i64 i) {{ return {} + i * {}; }}\n"
      "  static __device__ __forceinline__ i64 source(i64 line, i64 j) {{ return {} + j * {}; }}\n"
      "}};\n",
      contiguousStrides(sizes)[dim], count, sizes[dim], writes, put[dim], indexElement, lineText(1), stepOf(1),
      options.valueOf(e.attributes().starts.at(0)), lineText(0), stepOf(0), lineText(2), stepOf(2));

  program.addWorkspace(count * static_cast<int64_t>(sizeof(uint32_t)));
  addLaunch(program,
            {.entry = "clear_words",
             .uses = {"clear_words"},
             .arguments = {{"u32*", "z"}, {"i64", "count"}},
             .call = fmt::format("clearWords<{}>(args.z, args.count)", kThreads)},
            count, {{Workspace}, {Number, count}});
  if (writes > 0) {
    addLaunch(program,
              {.entry = "number_writes",
               .uses = {"put_lines"},
               .arguments = {{pointerTo(indexElement), "index"}, {"u32*", "z"}},
               .definitions = lines,
               .call = fmt::format("numberWrites<Lines, {}>(args.index, args.z)", kThreads)},
              writes, {{Operand, 1}, {Workspace}});
  }
  addLaunch(program,
            {.entry = "put_numbered",
             .uses = {"put_lines"},
             .arguments = {{"const u32*", "last"},
                           {pointerTo(element), "table"},
                           {pointerTo(element), "source"},
                           {fmt::format("{}*", element), "z"}},
             .definitions = lines,
             .call = fmt::format("putNumbered<Lines, {}>(args.last, args.table, args.source, args.z)", kThreads)},
            count, {{Workspace}, {Operand, 0}, {Operand, 2}, {Result}});
  return program;
}

RoutineProgram addRowsProgram(const Expr& e, const RoutineOptions& options) {
  const Sizes sizes = e.tensorOutput()->constantShape();
  const DataType type = e.output()->dtype();
  const TensorView* const index = e.input(1)->asTensor();
  const Sizes counted = index->constantShape();
  const int64_t dims = std::ssize(counted);
  const int64_t count = productOf(counted);
  const int64_t rows = sizes[0];
  RoutineProgram program;
  if (productOf(sizes) == 0) {
    return program;
  }
  SortedLines lines{.extent = count,
                    .wanted = count,
                    .keyBytes = rows < UINT32_MAX ? 4 : 8,
                    .element = cuda::storageType(index->dtype()),
                    .uses = {}};
  // an index outside of the table comes after all rows
  lines.item = fmt::format(
      "const i64 row = (i64)loadOne<kShared>(x + {}, 10) - {}; return Item::of(row >= 0 && row < {} ? (u64)row : "
      "{}ull, place);",
      offsetText("place", dimsOf(counted, constantStrides(index, options.layouts), 0, dims)),
      options.valueOf(e.attributes().starts.at(0)), rows, rows);
  const int64_t items = count > 0 ? addSort(program, lines, 1, false) : 0;
  const int64_t begins = program.addWorkspace((rows + 1) * static_cast<int64_t>(sizeof(int64_t)));

  const Sizes tableStrides = constantStrides(e.input(0)->asTensor(), options.layouts);
  const TensorView* const value = e.input(2)->asTensor();
  const Sizes valueStrides = constantStrides(value, options.layouts);
  const Sizes valueSizes = value->constantShape();
  const std::string_view element = cuda::storageType(type);
  cuda::Sections uses = {"add_rows"};
  const DataType wide = isHalfPrecision(type) ? DataType::Float : DataType::Double;
  const std::string definitions = fmt::format(
      "struct Rows {{\n"
      "  typedef {0} Sum;\n"
      "  static constexpr i64 kRows = {1}, kWidth = {2};\n"
      "  static __device__ __forceinline__ i64 table(i64 row, i64 column) {{ return row * {3} + {4}; }}\n"
      "  static __device__ __forceinline__ i64 value(i64 place, i64 column) {{ return {5} + {6}; }}\n"
      "  static __device__ __forceinline__ Sum widened({7} v) {{ return (Sum){8}; }}\n"
      "  static __device__ __forceinline__ {7} rounded(Sum v) {{ return ({7}){9}; }}\n"
      "}};\n",
      isFloatingPoint(type) ? cuda::registerType(wide) : "u64", rows, productOf(sizes) / rows, tableStrides[0],
      offsetText("column", dimsOf(sizes, tableStrides, 1, std::ssize(sizes))),
      offsetText("place", dimsOf(valueSizes, valueStrides, 0, dims)),
      offsetText("column", dimsOf(valueSizes, valueStrides, dims, std::ssize(valueSizes))), element,
      isFloatingPoint(type) ? cuda::castText("v", type, wide, uses) : "v",
      isFloatingPoint(type) ? cuda::castText("v", wide, type, uses) : "v");
  const std::string parameters = fmt::format("{}, Rows, {}", lines.itemType(), kThreads);
  addLaunch(program,
            {.entry = "find_rows",
             .uses = uses,
             .arguments = {{"const u64*", "items"}, {"i64*", "z"}, {"i64", "count"}},
             .definitions = definitions,
             .call = fmt::format("findRows<{}>(args.items, args.z, args.count)", parameters)},
            rows + 1, {{Workspace, items}, {Workspace, begins}, {Number, count}});
  addLaunch(program,
            {.entry = "add_rows",
             .uses = uses,
             .arguments = {{"const u64*", "items"},
                           {"const i64*", "begins"},
                           {pointerTo(element), "table"},
                           {pointerTo(element), "value"},
                           {fmt::format("{}*", element), "z"}},
             .definitions = definitions,
             .call = fmt::format("addRows<{}>(args.items, args.begins, args.table, args.value, args.z)", parameters)},
            productOf(sizes), {{Workspace, items}, {Workspace, begins}, {Operand, 0}, {Operand, 2}, {Result}});
  return program;
}

}  // namespace meshfuse
