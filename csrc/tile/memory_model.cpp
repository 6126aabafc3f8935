#include "tile/memory_model.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/ranges.h"

namespace meshfuse::tile {

TensorMemory::TensorMemory(const TensorParam& param, std::vector<int64_t> extents, std::vector<int64_t> strides,
                           void* base)
    : param_(param), extents_(std::move(extents)), strides_(std::move(strides)), base_(static_cast<char*>(base)) {
  int64_t highest = 0;
  bool empty = false;
  for (int64_t d = 0; d < std::ssize(extents_); d++) {
    invariant(extents_[d] >= 0, "[tile interpreter] tensor {}: extent {} of dim {}", param.name, extents_[d], d);
    empty = empty || extents_[d] == 0;
    int64_t span = (extents_[d] - 1) * strides_[d];
    (span < 0 ? lowest_ : highest) += span;
  }
  size_t cells = empty ? 0 : static_cast<size_t>(highest - lowest_ + 1);
  invariant(cells <= (size_t{1} << 28), "[tile interpreter] tensor {} spans {} elements, too many to track", param.name,
            cells);
  reader_.assign(cells, kNobody);
  writer_.assign(cells, kNobody);
  lastStatement_.assign(cells, -1);
  if (param.memory == Memory::Scratch) {
    scratch_.resize(cells * static_cast<size_t>(dataTypeSize(param.dtype)));
    base_ = scratch_.data();
  }
  invariant(base_ != nullptr || cells == 0, "[tile interpreter] tensor {}: its slot is null", param.name);
  invariant(reinterpret_cast<uintptr_t>(base_) % static_cast<uintptr_t>(param.alignment) == 0 ||
                param.memory == Memory::Scratch,
            "[tile interpreter] tensor {}: its slot is not aligned to {} bytes as promised", param.name,
            param.alignment);
}

void TensorMemory::beginPart() {
  if (param_.memory == Memory::Scratch) {
    std::ranges::fill(writer_, kNobody);
  }
}

void* TensorMemory::at(int64_t offset) {
  int64_t origin = param_.memory == Memory::Scratch ? lowest_ : 0;
  return base_ + (offset - origin) * dataTypeSize(param_.dtype);
}

std::string TensorMemory::describe(const std::vector<int64_t>& index) const {
  return fmt::format("{}[{}]", param_.name, joined(index, ", ", [](int64_t i) { return std::to_string(i); }));
}

int64_t TensorMemory::offset(const std::vector<int64_t>& index) const {
  int64_t offset = 0;
  for (int64_t d = 0; d < std::ssize(index); d++) {
    invariant(index[d] >= 0 && index[d] < extents_[d],
              "[tile interpreter] {}: index {} of dim {} is outside of [0, {})", describe(index), index[d], d,
              extents_[d]);
    offset += index[d] * strides_[d];
  }
  return offset;
}

Scalar TensorMemory::load(const std::vector<int64_t>& index, const Accessor& who) {
  int64_t o = offset(index);
  size_t c = cell(o);
  int32_t writer = writer_[c];
  switch (param_.memory) {
    case Memory::Input:
      break;
    case Memory::Output:
      throwInternalError(fmt::format("[tile interpreter] {} is an output and is read", describe(index)));
    case Memory::InOut:
      invariant(writer == kNobody, "[tile interpreter] {} is read by part {} after part {} wrote it", describe(index),
                who.part, writer);
      break;
    case Memory::Workspace:
      invariant(writer != kNobody, "[tile interpreter] {} is read before anything wrote it", describe(index));
      invariant(
          writer == kNobody || who.seesStoresOf(writer),
          "[tile interpreter] {} is read by part {} and was written by part {}, without synchronization between them",
          describe(index), who.part, writer);
      break;
    case Memory::Scratch:
      invariant(writer != kNobody, "[tile interpreter] {} is read before this part wrote it", describe(index));
      break;
  }
  int64_t bytes = dataTypeSize(param_.dtype);
  traffic_.readBytes += bytes;
  if (reader_[c] == kNobody) {
    traffic_.distinctReadBytes += bytes;
    reader_[c] = who.part;
  } else if (reader_[c] != who.part) {
    reader_[c] = kSeveral;
  }
  return readElement(at(o), param_.dtype);
}

void TensorMemory::store(const std::vector<int64_t>& index, Scalar value, const Accessor& who) {
  int64_t o = offset(index);
  size_t c = cell(o);
  int32_t writer = writer_[c];
  invariant(lastStatement_[c] != who.statement, "[tile interpreter] {} is written twice by one store", describe(index));
  switch (param_.memory) {
    case Memory::Input:
      throwInternalError(fmt::format("[tile interpreter] {} is an input and is written", describe(index)));
    case Memory::InOut:
      invariant(reader_[c] == kNobody || reader_[c] == who.part,
                "[tile interpreter] {} is written by part {}, but other parts read it", describe(index), who.part);
      [[fallthrough]];
    case Memory::Output:
      invariant(writer == kNobody, "[tile interpreter] {} is written by part {} after part {} wrote it",
                describe(index), who.part, writer);
      break;
    case Memory::Workspace:
      invariant(writer == kNobody || who.seesStoresOf(writer), "[tile interpreter] {} is written by parts {} and {}",
                describe(index), writer, who.part);
      break;
    case Memory::Scratch:
      break;
  }
  int64_t bytes = dataTypeSize(param_.dtype);
  traffic_.writtenBytes += bytes;
  traffic_.distinctWrittenBytes += lastStatement_[c] < 0 ? bytes : 0;
  lastStatement_[c] = who.statement;
  writer_[c] = who.part;
  writeElement(at(o), param_.dtype, value);
}

int32_t TensorMemory::arrive(const std::vector<int64_t>& index, int64_t workers) {
  int64_t o = offset(index);
  auto count = static_cast<int32_t>(readElement(at(o), DataType::Int32).integer);
  writeElement(at(o), DataType::Int32, integerScalar(count + 1 == workers ? 0 : count + 1));
  return count;
}

}  // namespace meshfuse::tile
