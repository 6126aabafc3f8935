// The name of a device: cpu, cuda:0, ext:0.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace meshfuse {

struct DeviceId {
  enum class Kind : uint8_t { Cpu, Cuda, Extension };  // Extension: a device that the program registers

  Kind kind = Kind::Cpu;
  int64_t index = 0;

  static constexpr DeviceId cpu() { return {}; }
  static constexpr DeviceId cuda(int64_t index) { return {Kind::Cuda, index}; }
  static constexpr DeviceId extension(int64_t index) { return {Kind::Extension, index}; }
  std::string toString() const {
    return kind == Kind::Cpu ? "cpu" : (kind == Kind::Cuda ? "cuda:" : "ext:") + std::to_string(index);
  }
  // Of "cpu", "cuda" (the first GPU), "cuda:3" or "ext:0". UserError if the text is none of them.
  static DeviceId parse(std::string_view text);
  friend bool operator==(const DeviceId&, const DeviceId&) = default;
};

}  // namespace meshfuse
