// Orders of lines on a GPU: runtime/cuda/sort.cuh.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "device/cuda/routines/kernel_text.h"
#include "device/cuda/routines/routine_program.h"

namespace meshfuse {

// What is sorted: `count` lines of `extent` items. The first `wanted` items of a line are kept.
struct SortedLines {
  int64_t count = 1;
  int64_t extent = 1;
  int64_t wanted = 1;
  int64_t keyBytes = 8;
  std::string_view element;  // C type of the operand
  cuda::Sections uses;       // of item
  // The body of `Item item(const element* x, i64 line, i64 place)`, which makes an Item of the key and the place.
  std::string item;
  std::string to = "0";  // offset in the result, of a line
  int64_t toStep = 1;    // and from one of its elements to the next

  // Keys and places fit in 64 bits together.
  bool isPacked() const { return keyBytes == 4 && extent <= INT32_MAX; }
  int64_t itemBytes() const { return isPacked() ? 8 : 16; }
  std::string_view itemType() const { return isPacked() ? "Packed" : "Placed"; }
};

// Adds kernels and launches that sort the lines of operand `operand`, and pieces to the workspace. With `places` the result of the op gets
// the places of the kept items; else the items stay at the returned offset in the workspace, as ToRuns of sort.cuh stores a run of the
// whole line.
int64_t addSort(RoutineProgram& program, const SortedLines& lines, int64_t operand, bool places);

}  // namespace meshfuse
