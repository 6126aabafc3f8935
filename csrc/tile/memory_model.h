// One tensor of a tile program in the interpreter: every access is checked against the bounds and against the rules of the kind
// of memory, and counted.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tile/scalar.h"
#include "tile/tile.h"

namespace meshfuse::tile {

// Bytes a kernel read and wrote of one tensor: of all accesses, and of distinct elements.
struct Traffic {
  int64_t readBytes = 0;
  int64_t distinctReadBytes = 0;
  int64_t writtenBytes = 0;
  int64_t distinctWrittenBytes = 0;
};

// The origin of an access: the part, the number of the statement's execution, and the parts whose workspace stores it sees.
struct Accessor {
  int64_t part = 0;
  int64_t statement = 0;
  const std::function<bool(int64_t part)>* sees = nullptr;  // inside a last arriver

  bool seesStoresOf(int64_t writer) const { return writer == part || (sees != nullptr && (*sees)(writer)); }
};

class TensorMemory {
 public:
  // `base` is null for Scratch, whose memory this object owns.
  TensorMemory(const TensorParam& param, std::vector<int64_t> extents, std::vector<int64_t> strides, void* base);

  // Discards the contents of scratch: a new part starts.
  void beginPart();
  Scalar load(const std::vector<int64_t>& index, const Accessor& who);
  void store(const std::vector<int64_t>& index, Scalar value, const Accessor& who);
  // Adds one to an Int32 counter and returns its old value; the last of the workers sets it to 0.
  int32_t arrive(const std::vector<int64_t>& index, int64_t workers);
  int64_t offset(const std::vector<int64_t>& index) const;  // InternalError out of bounds
  const Traffic& traffic() const { return traffic_; }

 private:
  static constexpr int32_t kNobody = -1;
  static constexpr int32_t kSeveral = -2;

  size_t cell(int64_t offset) const { return static_cast<size_t>(offset - lowest_); }
  void* at(int64_t offset);
  std::string describe(const std::vector<int64_t>& index) const;

  const TensorParam& param_;
  std::vector<int64_t> extents_;
  std::vector<int64_t> strides_;
  int64_t lowest_ = 0;  // offset of the first cell
  char* base_;
  std::vector<char> scratch_;
  std::vector<int32_t> reader_;         // part that has read a cell
  std::vector<int32_t> writer_;         // part that has written it
  std::vector<int64_t> lastStatement_;  // statement execution that wrote it
  Traffic traffic_;
};

}  // namespace meshfuse::tile
