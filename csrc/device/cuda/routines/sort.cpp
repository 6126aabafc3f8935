#include "device/cuda/routines/sort.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "base/ranges.h"
#include "base/rounding.h"
#include "ir/fusion.h"
#include "ir/tensor_view.h"

namespace meshfuse {

namespace {

constexpr int64_t kChunkBytes = 32 << 10;  // of the items of a block
constexpr int64_t kMostChunkThreads = 512;
constexpr int64_t kMergeThreads = 256;

std::string linesText(const SortedLines& s) {
  return fmt::format(
      "typedef {} Item;\n"
      "struct Lines {{\n"
      "  static constexpr i64 kCount = {}, kExtent = {}, kWanted = {}, kToStep = {};\n"
      "  static constexpr u64 kLargest = {};\n"
      "  static __device__ __forceinline__ Item item(const {}* x, i64 line, i64 place) {{ {} }}\n"
      "  static __device__ __forceinline__ i64 to(i64 line) {{ return {}; }}\n"
      "}};\n",
      s.itemType(), s.count, s.extent, s.wanted, s.toStep, s.isPacked() ? "0xffffffffull" : "~0ull", s.element, s.item,
      s.to);
}

int64_t orderBytes(DataType t) { return dataTypeSize(t) == 8 ? 8 : 4; }

}  // namespace

int64_t addSort(RoutineProgram& program, const SortedLines& s, int64_t operand, bool places) {
  using enum RoutineSlot::Kind;
  const int64_t chunk =
      std::min(kChunkBytes / s.itemBytes(),
               static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(s.extent, 2)))));
  // the runs after the chunks and after each pass of merges
  std::vector<int64_t> spans = {chunk};
  while (spans.back() < s.extent) {
    spans.push_back(2 * spans.back());
  }
  const auto itemsOf = [&](int64_t span) { return s.count * divideUp(s.extent, span) * std::min(span, s.wanted); };
  // they lie in two pieces of the workspace in turn, the last ones perhaps in the result
  const int64_t stored = std::ssize(spans) - (places ? 1 : 0);
  std::array<int64_t, 2> bytes{};
  for (int64_t k = 0; k < stored; k++) {
    bytes[k % 2] = std::max(bytes[k % 2], itemsOf(spans[k]) * s.itemBytes());
  }
  const std::array<int64_t, 2> pieces = {program.addWorkspace(bytes[0]), program.addWorkspace(bytes[1])};
  const auto slotOf = [&](int64_t k) {
    return k < stored ? RoutineSlot{Workspace, pieces[k % 2]} : RoutineSlot{Result, 0};
  };
  // Returns the number of the kernel.
  const auto addKernel = [&](std::string_view name, bool isLast, std::string_view from, std::string_view function,
                             std::string_view numbers, std::string_view span, int64_t threads, int64_t sharedBytes) {
    const bool toPlaces = isLast && places;
    RoutineText text;
    text.entry = fmt::format("{}{}", name, toPlaces ? "_last" : "");
    text.uses = s.uses;
    text.uses.insert("sort_runs");
    text.arguments = {{fmt::format("const {}*", from), "x"}, {toPlaces ? "i64*" : "u64*", "z"}};
    if (!span.empty()) {
      text.arguments.emplace_back("i64", "span");
    }
    text.definitions = linesText(s);
    text.call = fmt::format("{}<Item, Lines, {}<Item, Lines>, {}>(args.x, args.z{})", function,
                            toPlaces ? "ToPlaces" : "ToRuns", numbers, span);
    text.threads = threads;
    text.sharedBytes = sharedBytes;
    program.kernels.push_back(sourceOf(text));
    return std::ssize(program.kernels) - 1;
  };
  const int64_t threads = std::clamp<int64_t>(chunk / 2, 32, kMostChunkThreads);
  const int64_t sorts = addKernel("sort_chunks", spans.size() == 1, s.element, "sortChunks",
                                  fmt::format("{}, {}", chunk, threads), "", threads, chunk * s.itemBytes());
  program.launches.push_back(
      {.kernel = sorts, .blocks = s.count * divideUp(s.extent, chunk), .slots = {{Operand, operand}, slotOf(0)}});
  int64_t merges = -1;
  for (int64_t k = 1; k < std::ssize(spans); k++) {
    const bool isLast = k + 1 == std::ssize(spans);
    if (merges < 0 || (isLast && places)) {
      merges = addKernel("merge_runs", isLast, "u64", "mergeRuns", std::to_string(kMergeThreads), ", args.span",
                         kMergeThreads, 0);
    }
    program.launches.push_back({.kernel = merges,
                                .blocks = divideUp(itemsOf(spans[k - 1]), kMergeThreads),
                                .slots = {slotOf(k - 1), slotOf(k), {Number, spans[k - 1]}}});
  }
  return pieces[(stored + 1) % 2];
}

RoutineProgram argSortProgram(const Expr& e, const RoutineOptions& options) {
  const TensorView* const x = e.tensorInputs()[0];
  const std::vector<int64_t> sizes = x->constantShape();
  const std::vector<int64_t> resultSizes = e.tensorOutput()->constantShape();
  const int64_t dim = e.attributes().dim;
  RoutineProgram program;
  if (productOf(resultSizes) == 0) {
    return program;
  }
  const std::vector<int64_t> from = constantStrides(x, options.layouts);
  const std::vector<int64_t> to = contiguousStrides(resultSizes);
  const bool isDescending = e.attributes().flags.at(0);
  SortedLines lines{
      .count = productOf(sizes) / sizes[dim],
      .extent = sizes[dim],
      .wanted = resultSizes[dim],
      .keyBytes = orderBytes(x->dtype()),
      .element = cuda::storageType(x->dtype()),
      .uses = {"sort_keys"},
      .item = fmt::format("return Item::of({}orderOf(loadOne<kShared>(x + {} + place * {}, 10)), place);",
                          isDescending ? "~" : "", offsetText("line", linesOf(sizes, from, dim)), from[dim]),
      .to = offsetText("line", linesOf(resultSizes, to, dim)),
      .toStep = to[dim]};
  addSort(program, lines, 0, true);
  return program;
}

}  // namespace meshfuse
