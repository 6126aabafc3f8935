#include "multidevice/transport/staged.h"

#include <algorithm>

#include "base/ranges.h"
#include "multidevice/transport/call.h"

namespace meshfuse {

std::byte* StagedCommunicator::staging(int64_t bytes) {
  if (bytes > bytes_) {
    memory_ = nullptr;
    bytes_ = 0;
    memory_ = over_.allocate(bytes);
    bytes_ = bytes;
  }
  return static_cast<std::byte*>(memory_.get());
}

void StagedCommunicator::run(const CollectiveCall& call) {
  const int64_t inBytes = call.gives() ? call.operand.total() * call.elementBytes() : 0;
  const int64_t outBytes = call.gets() ? call.result.total() * call.elementBytes() : 0;
  const bool inPlace = call.in == call.out;
  CollectiveCall staged = call;
  std::byte* const memory = staging(inPlace ? std::max(inBytes, outBytes) : inBytes + outBytes);
  staged.in = memory;
  staged.out = inPlace ? memory : memory + inBytes;
  if (inBytes > 0) {
    device_.read(memory, call.in, inBytes);
  }
  over_.setProgram(program());
  over_.run(staged);
  over_.setProgram(0);
  if (outBytes > 0) {
    device_.write(call.out, staged.out, outBytes);
  }
}

void StagedCommunicator::transfer(std::span<const Transfer> transfers) {
  using enum Transfer::Direction;
  staged_.assign(transfers.begin(), transfers.end());
  std::byte* memory = staging(sumOf(transfers, &Transfer::bytes));
  for (Transfer& t : staged_) {
    if (t.direction == Send && t.bytes > 0) {
      device_.read(memory, t.data, t.bytes);
    }
    t.data = memory;
    memory += t.bytes;
  }
  over_.setProgram(program());
  over_.transfer(staged_);
  over_.setProgram(0);
  for (int64_t i = 0; i < std::ssize(transfers); i++) {
    if (transfers[i].direction == Recv && transfers[i].bytes > 0) {
      device_.write(transfers[i].data, staged_[i].data, transfers[i].bytes);
    }
  }
}

}  // namespace meshfuse
