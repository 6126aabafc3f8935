// Scatter and index_put_accumulate on a CPU.
//
// Scatter goes line by line along its dim, each line on one thread in the order of its index, so the last of several elements for one
// position is kept. index_put_accumulate first sorts the index by row, in a stable order; then one thread adds up each row, 16-bit types in
// Float, Float in Double, and rounded once. So the bits do not depend on the number of threads.
#include <algorithm>
#include <concepts>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/ranges.h"
#include "base/rounding.h"
#include "device/cpu/lines.h"
#include "device/cpu/routine.h"
#include "ir/fusion.h"
#include "ir/tensor_view.h"
#include "tensor/half.h"
#include "tensor/tensor.h"

namespace meshfuse {

namespace {

using Sizes = std::vector<int64_t>;

Sizes withoutFirst(const Sizes& sizes, int64_t dims) { return {sizes.begin() + dims, sizes.end()}; }

int64_t firstRow(const Expr& e, const RoutineOptions& options) { return options.valueOf(e.attributes().starts.at(0)); }

// Calls visit with the C++ type of an index.
template <class Visit>
void withIndexType(DataType type, const Visit& visit) {
  withElementType(type, [&]<class I>() {
    if constexpr (std::integral<I> && !std::same_as<I, bool>) {
      visit.template operator()<I>();
    } else {
      throwInternalError(
          fmt::format("[put by index] the index has elements of type {}, expected integers", name(type)));
    }
  });
}

// Elements are copied as they are: only their size counts.
template <class Visit>
void withSize(int64_t bytes, const Visit& visit) {
  switch (bytes) {
    case 1:
      return visit.template operator()<uint8_t>();
    case 2:
      return visit.template operator()<uint16_t>();
    case 4:
      return visit.template operator()<uint32_t>();
    default:
      return visit.template operator()<uint64_t>();
  }
}

class LineScatter : public CpuRoutine {
 public:
  LineScatter(const Expr& e, const RoutineOptions& options)
      : dtype_(e.output()->dtype()),
        indexType_(e.input(1)->dtype()),
        first_(firstRow(e, options)),
        extent_(e.tensorOutput()->constantShape()[e.attributes().dim]),
        count_(e.input(1)->asTensor()->constantShape()[e.attributes().dim]),
        lines_(e.tensorOutput()->constantShape(), e.attributes().dim,
               {constantStrides(e.input(kTable)->asTensor(), options.layouts),
                constantStrides(e.input(kIndex)->asTensor(), options.layouts),
                constantStrides(e.input(kSource)->asTensor(), options.layouts),
                contiguousStrides(e.tensorOutput()->constantShape())}) {}

  void run(ThreadPool& pool, std::span<void* const> operands, void* out, void* /*workspace*/) const override {
    withSize(dataTypeSize(dtype_), [&]<class T>() {
      withIndexType(indexType_, [&]<class I>() {
        scatter(pool, static_cast<const T*>(operands[kTable]), static_cast<const I*>(operands[kIndex]),
                static_cast<const T*>(operands[kSource]), static_cast<T*>(out));
      });
    });
  }

 private:
  enum Tensors : uint8_t { kTable, kIndex, kSource, kOut, kTensors };

  template <class T, class I>
  void scatter(ThreadPool& pool, const T* table, const I* index, const T* source, T* out) const {
    const auto visit = [&](std::span<const Lines<kTensors>::Offsets> lines, const auto& /*next*/) {
      for (int64_t j = 0; j < extent_; j++) {
        for (const auto& at : lines) {
          out[at[kOut] + j * lines_.step(kOut)] = table[at[kTable] + j * lines_.step(kTable)];
        }
      }
      for (int64_t j = 0; j < count_; j++) {
        for (const auto& at : lines) {
          const int64_t place = static_cast<int64_t>(index[at[kIndex] + j * lines_.step(kIndex)]) - first_;
          if (place >= 0 && place < extent_) {
            out[at[kOut] + place * lines_.step(kOut)] = source[at[kSource] + j * lines_.step(kSource)];
          }
        }
      }
    };
    // Adjacent lines are processed together, so memory is written in order if the dim is not the last one of the result.
    constexpr int64_t kAdjacent = 16;
    lines_.forEachGroup(pool, lines_.step(kOut) == 1 ? 1 : kAdjacent, extent_ + count_, visit);
  }

  const DataType dtype_;
  const DataType indexType_;
  const int64_t first_;   // row of the whole table
  const int64_t extent_;  // of the table along the dim
  const int64_t count_;   // of the index
  const Lines<kTensors> lines_;
};

// How elements add up: 16-bit types in Float, Float in Double, integers modulo a power of two.
template <class T>
using Sum = std::conditional_t<std::is_floating_point_v<T>, double,
                               std::conditional_t<std::is_same_v<T, Float16Bits>, float, uint64_t>>;

template <class T>
Sum<T> widened(DataType type, T v) {
  if constexpr (std::is_same_v<T, Float16Bits>) {
    return float16ToFloat(type, v.bits);
  } else {
    return static_cast<Sum<T>>(v);
  }
}

template <class T>
T rounded(DataType type, Sum<T> v) {
  if constexpr (std::is_same_v<T, Float16Bits>) {
    return {floatToFloat16(type, v)};
  } else {
    return static_cast<T>(v);
  }
}

class RowSums : public CpuRoutine {
 public:
  RowSums(const Expr& e, const RoutineOptions& options)
      : dtype_(e.output()->dtype()),
        indexType_(e.input(1)->dtype()),
        first_(firstRow(e, options)),
        counted_(e.input(1)->asTensor()->constantShape()),
        indexStrides_(constantStrides(e.input(1)->asTensor(), options.layouts)),
        valueStrides_(constantStrides(e.input(2)->asTensor(), options.layouts)),
        rows_(e.tensorOutput()->constantShape()[0]),
        rowStride_(constantStrides(e.input(0)->asTensor(), options.layouts)[0]),
        row_(withoutFirst(e.tensorOutput()->constantShape(), 1)),
        width_(row_.empty() ? 1 : row_.back()),
        lines_(row_, std::ssize(row_) - 1,
               {withoutFirst(constantStrides(e.input(0)->asTensor(), options.layouts), 1),
                withoutFirst(valueStrides_, std::ssize(counted_))}) {}

  // The end of the values of each row, and all values in the order of rows.
  int64_t workspaceBytes() const override {
    return (rows_ + productOf(counted_)) * static_cast<int64_t>(sizeof(int64_t));
  }

  void run(ThreadPool& pool, std::span<void* const> operands, void* out, void* workspace) const override {
    if (rows_ * lines_.count() * width_ == 0) {
      return;
    }
    auto* ends = static_cast<int64_t*>(workspace);
    int64_t* values = ends + rows_;
    withIndexType(indexType_, [&]<class I>() { order(static_cast<const I*>(operands[1]), ends, values); });
    withElementType(dtype_, [&]<class T>() {
      if constexpr (std::is_same_v<T, bool>) {
        throwInternalError("[put by index] Bool elements cannot be added");
      } else {
        add(pool, static_cast<const T*>(operands[0]), static_cast<const T*>(operands[2]), static_cast<T*>(out), ends,
            values);
      }
    });
  }

 private:
  enum Tensors : uint8_t { kTable, kValue, kTensors };

  // Calls visit(row, offset of the value) for every index inside of the table, in order.
  template <class I, class Visit>
  void forEachIndex(const I* index, const Visit& visit) const {
    const int64_t count = productOf(counted_);
    Sizes position(counted_.size(), 0);
    int64_t at = 0;
    int64_t value = 0;
    for (int64_t i = 0; i < count; i++) {
      const int64_t row = static_cast<int64_t>(index[at]) - first_;
      if (row >= 0 && row < rows_) {
        visit(row, value);
      }
      for (size_t d = counted_.size(); d-- > 0;) {
        at += indexStrides_[d];
        value += valueStrides_[d];
        if (++position[d] < counted_[d]) {
          break;
        }
        at -= indexStrides_[d] * counted_[d];
        value -= valueStrides_[d] * counted_[d];
        position[d] = 0;
      }
    }
  }

  // The offsets of values in the order of rows. The values of a row begin where those of the one before end.
  template <class I>
  void order(const I* index, int64_t* ends, int64_t* values) const {
    std::fill_n(ends, rows_, 0);
    forEachIndex(index, [&](int64_t row, int64_t) { ends[row]++; });
    std::exclusive_scan(ends, ends + rows_, ends, int64_t{0});
    forEachIndex(index, [&](int64_t row, int64_t value) { values[ends[row]++] = value; });
  }

  template <class T>
  void add(ThreadPool& pool, const T* table, const T* value, T* out, const int64_t* ends, const int64_t* values) const {
    constexpr int64_t kBlock = 256;  // columns that are added together
    const int64_t blocks = divideUp(width_, kBlock);
    const int64_t lines = lines_.count();
    const auto range = [&](int64_t begin, int64_t end, int64_t) {
      for (int64_t part = begin; part < end; part++) {
        const int64_t row = part / (lines * blocks);
        const int64_t line = part / blocks % lines;
        const int64_t column = part % blocks * kBlock;
        const int64_t count = std::min(kBlock, width_ - column);
        const auto at = lines_.begin(line);
        const T* own = table + row * rowStride_ + at[kTable] + column * lines_.step(kTable);
        const T* first = value + at[kValue] + column * lines_.step(kValue);
        T* to = out + (row * lines + line) * width_ + column;
        Sum<T> sums[kBlock];
        for (int64_t k = 0; k < count; k++) {
          sums[k] = widened(dtype_, own[k * lines_.step(kTable)]);
        }
        for (int64_t i = row == 0 ? 0 : ends[row - 1]; i < ends[row]; i++) {
          const T* from = first + values[i];
          for (int64_t k = 0; k < count; k++) {
            sums[k] += widened(dtype_, from[k * lines_.step(kValue)]);
          }
        }
        for (int64_t k = 0; k < count; k++) {
          to[k] = rounded<T>(dtype_, sums[k]);
        }
      }
    };
    const int64_t each = (1 + productOf(counted_) / rows_) * std::min(width_, kBlock);
    pool.run(rows_ * lines * blocks, range, linesPerRange(each));
  }

  const DataType dtype_;
  const DataType indexType_;
  const int64_t first_;          // row of the whole table
  const Sizes counted_;          // extents of the index
  const Sizes indexStrides_;     // there: of the index
  const Sizes valueStrides_;     // there and in a row: of the values
  const int64_t rows_;           // of the table
  const int64_t rowStride_;      // of operand 0
  const Sizes row_;              // extents of a row
  const int64_t width_;          // of the last dim of a row
  const Lines<kTensors> lines_;  // of a row, along its last dim
};

}  // namespace

std::shared_ptr<const CpuRoutine> putByIndex(const Expr& e, const RoutineOptions& options) {
  switch (e.kind()) {
    case ExprKind::Scatter:
      return std::make_shared<LineScatter>(e, options);
    case ExprKind::IndexPutAccumulate:
      return std::make_shared<RowSums>(e, options);
    default:
      return nullptr;
  }
}

}  // namespace meshfuse
