#include "host/put_by_index.h"

#include <algorithm>
#include <array>
#include <concepts>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "ir/fusion.h"
#include "ir/tensor_view.h"
#include "tensor/half.h"
#include "tensor/tensor.h"

namespace meshfuse {

namespace {

using Sizes = std::vector<int64_t>;

int64_t product(const Sizes& sizes) {
  int64_t n = 1;
  for (const int64_t size : sizes) {
    n *= size;
  }
  return n;
}

Sizes stridesOf(const TensorView* tv, const RoutineOptions& options) { return layoutOf(tv, options.layouts).strides; }

int64_t firstRow(const Expr& e, const RoutineOptions& options) { return options.valueOf(e.attributes().starts.at(0)); }

// Calls visit with the C++ type of an index.
template <class Visit>
void withIndexType(DataType type, const Visit& visit) {
  withElementType(type, [&]<class I>() {
    if constexpr (std::signed_integral<I>) {
      visit.template operator()<I>();
    } else {
      throwInternalError(
          fmt::format("[put by index] the index has elements of type {}, expected integers", name(type)));
    }
  });
}

// Elements are copied as they are: only their size counts.
template <class Visit>
void withSize(int bytes, const Visit& visit) {
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

class LineScatter : public Routine {
 public:
  LineScatter(const Expr& e, const RoutineOptions& options)
      : dtype_(e.output()->dtype()), indexType_(e.input(1)->dtype()), first_(firstRow(e, options)) {
    const Sizes table = e.tensorOutput()->constantShape();
    const auto dim = static_cast<size_t>(e.attributes().dim);
    extent_ = table[dim];
    count_ = e.input(1)->asTensor()->constantShape()[dim];
    std::array<Sizes, kTensors> strides;
    for (int k = 0; k < kOut; k++) {
      strides[k] = stridesOf(e.input(k)->asTensor(), options);
    }
    strides[kOut] = contiguousStrides(table);
    for (size_t d = 0; d < table.size(); d++) {
      if (d != dim) {
        outer_.push_back(table[d]);
      }
      for (size_t t = 0; t < kTensors; t++) {
        if (d == dim) {
          steps_[t] = strides[t][d];
        } else {
          strides_[t].push_back(strides[t][d]);
        }
      }
    }
  }

  int64_t workspaceBytes() const override { return 0; }

  void run(ThreadPool& pool, std::span<void* const> operands, void* out, void* /*workspace*/) const override {
    withSize(dataTypeSize(dtype_), [&]<class T>() {
      withIndexType(indexType_, [&]<class I>() {
        lines(pool, static_cast<const T*>(operands[0]), static_cast<const I*>(operands[1]),
              static_cast<const T*>(operands[2]), static_cast<T*>(out));
      });
    });
  }

 private:
  enum Tensors : uint8_t { kTable, kIndex, kSource, kOut, kTensors };
  using Offsets = std::array<int64_t, kTensors>;

  Offsets line(int64_t number) const {
    Offsets at{};
    for (size_t d = outer_.size(); d-- > 0;) {
      for (size_t t = 0; t < kTensors; t++) {
        at[t] += number % outer_[d] * strides_[t][d];
      }
      number /= outer_[d];
    }
    return at;
  }

  // Adjacent lines are processed together, so memory is read in order if the dim is not the last one.
  template <class T, class I>
  void lines(ThreadPool& pool, const T* table, const I* index, const T* source, T* out) const {
    constexpr int64_t kSide = 16;
    const int64_t all = product(outer_);
    const int64_t side = steps_[kOut] == 1 ? 1 : kSide;
    const auto range = [&](int64_t begin, int64_t end, int) {
      for (int64_t first = begin * side; first < std::min(all, end * side); first += side) {
        const int64_t count = std::min(side, all - first);
        Offsets at[kSide];
        for (int64_t k = 0; k < count; k++) {
          at[k] = line(first + k);
        }
        for (int64_t j = 0; j < extent_; j++) {
          for (int64_t k = 0; k < count; k++) {
            out[at[k][kOut] + j * steps_[kOut]] = table[at[k][kTable] + j * steps_[kTable]];
          }
        }
        for (int64_t j = 0; j < count_; j++) {
          for (int64_t k = 0; k < count; k++) {
            const int64_t place = static_cast<int64_t>(index[at[k][kIndex] + j * steps_[kIndex]]) - first_;
            if (place >= 0 && place < extent_) {
              out[at[k][kOut] + place * steps_[kOut]] = source[at[k][kSource] + j * steps_[kSource]];
            }
          }
        }
      }
    };
    pool.run((all + side - 1) / side, range, linesPerRange((extent_ + count_) * side));
  }

  DataType dtype_;
  DataType indexType_;
  int64_t first_;                        // row of the whole table
  int64_t extent_ = 0;                   // of the table along the dim
  int64_t count_ = 0;                    // of the index
  Sizes outer_;                          // extents of the other dims
  std::array<Sizes, kTensors> strides_;  // there
  Offsets steps_{};                      // along the dim
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

class RowSums : public Routine {
 public:
  RowSums(const Expr& e, const RoutineOptions& options)
      : dtype_(e.output()->dtype()),
        indexType_(e.input(1)->dtype()),
        first_(firstRow(e, options)),
        counted_(e.input(1)->asTensor()->constantShape()),
        indexStrides_(stridesOf(e.input(1)->asTensor(), options)) {
    Sizes table = e.tensorOutput()->constantShape();
    Sizes tableStrides = stridesOf(e.input(0)->asTensor(), options);
    const Sizes valueStrides = stridesOf(e.input(2)->asTensor(), options);
    const auto values = valueStrides.begin() + std::ssize(counted_);
    countedStrides_.assign(valueStrides.begin(), values);
    valueStrides_.assign(values, valueStrides.end());
    rows_ = table[0];
    rowStride_ = tableStrides[0];
    row_.assign(table.begin() + 1, table.end());
    tableStrides_.assign(tableStrides.begin() + 1, tableStrides.end());
    if (!row_.empty()) {
      width_ = row_.back();
      tableStep_ = tableStrides_.back();
      valueStep_ = valueStrides_.back();
      row_.pop_back();
    }
  }

  // The end of the values of each row, and all values in the order of rows.
  int64_t workspaceBytes() const override {
    return (rows_ + product(counted_)) * static_cast<int64_t>(sizeof(int64_t));
  }

  void run(ThreadPool& pool, std::span<void* const> operands, void* out, void* workspace) const override {
    if (rows_ * product(row_) * width_ == 0) {
      return;
    }
    auto* ends = static_cast<int64_t*>(workspace);
    int64_t* values = ends + rows_;
    withIndexType(indexType_, [&]<class I>() { order(static_cast<const I*>(operands[1]), ends, values); });
    withElementType(dtype_, [&]<class T>() {
      if constexpr (std::is_same_v<T, bool>) {
        throwInternalError("[put by index] Bool elements cannot be added");
      } else {
        const Memory<T> memory{static_cast<const T*>(operands[0]), static_cast<const T*>(operands[2]),
                               static_cast<T*>(out)};
        add(pool, memory, ends, values);
      }
    });
  }

 private:
  template <class T>
  struct Memory {
    const T* table;
    const T* value;
    T* out;
  };

  // Calls visit(row, offset of the value) for every index inside of the table, in order.
  template <class I, class Visit>
  void forEachIndex(const I* index, const Visit& visit) const {
    const int64_t count = product(counted_);
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
        value += countedStrides_[d];
        if (++position[d] < counted_[d]) {
          break;
        }
        at -= indexStrides_[d] * counted_[d];
        value -= countedStrides_[d] * counted_[d];
        position[d] = 0;
      }
    }
  }

  // The offsets of values in the order of rows. The values of a row begin where those of the one before end.
  template <class I>
  void order(const I* index, int64_t* ends, int64_t* values) const {
    std::fill_n(ends, rows_, 0);
    forEachIndex(index, [&](int64_t row, int64_t) { ends[row]++; });
    int64_t begin = 0;
    for (int64_t row = 0; row < rows_; row++) {
      const int64_t count = ends[row];
      ends[row] = begin;
      begin += count;
    }
    forEachIndex(index, [&](int64_t row, int64_t value) { values[ends[row]++] = value; });
  }

  template <class T>
  void add(ThreadPool& pool, const Memory<T>& memory, const int64_t* ends, const int64_t* values) const {
    constexpr int64_t kBlock = 256;  // columns that are added together
    const int64_t blocks = (width_ + kBlock - 1) / kBlock;
    const int64_t runs = product(row_);  // of `width_` columns
    const auto range = [&](int64_t begin, int64_t end, int) {
      for (int64_t part = begin; part < end; part++) {
        const int64_t row = part / (runs * blocks);
        int64_t run = part / blocks % runs;
        const int64_t column = part % blocks * kBlock;
        const int64_t count = std::min(kBlock, width_ - column);
        const int64_t out = (row * runs + run) * width_ + column;
        int64_t table = row * rowStride_ + column * tableStep_;
        int64_t value = column * valueStep_;
        for (size_t d = row_.size(); d-- > 0;) {
          table += run % row_[d] * tableStrides_[d];
          value += run % row_[d] * valueStrides_[d];
          run /= row_[d];
        }
        Sum<T> sums[kBlock];
        for (int64_t k = 0; k < count; k++) {
          sums[k] = widened(dtype_, memory.table[table + k * tableStep_]);
        }
        for (int64_t i = row == 0 ? 0 : ends[row - 1]; i < ends[row]; i++) {
          const T* from = memory.value + value + values[i];
          for (int64_t k = 0; k < count; k++) {
            sums[k] += widened(dtype_, from[k * valueStep_]);
          }
        }
        for (int64_t k = 0; k < count; k++) {
          memory.out[out + k] = rounded<T>(dtype_, sums[k]);
        }
      }
    };
    const int64_t each = (1 + product(counted_) / rows_) * std::min(width_, kBlock);
    pool.run(rows_ * runs * blocks, range, linesPerRange(each));
  }

  DataType dtype_;
  DataType indexType_;
  int64_t first_;          // row of the whole table
  Sizes counted_;          // extents of the index
  Sizes indexStrides_;     // there: of the index
  Sizes countedStrides_;   // and of the values
  int64_t rows_ = 0;       // of the table
  int64_t rowStride_ = 0;  // of operand 0
  Sizes row_;              // extents of a row, without the last dim
  Sizes tableStrides_;     // in a row: of operand 0
  Sizes valueStrides_;     // and of the values
  int64_t width_ = 1;      // of the last dim of a row
  int64_t tableStep_ = 0;  // there: of operand 0
  int64_t valueStep_ = 0;  // and of the values
};

}  // namespace

std::shared_ptr<const Routine> putByIndex(const Expr& e, const RoutineOptions& options) {
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
