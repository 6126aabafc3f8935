// The header of a safetensors file: a JSON object
//
//   {"__metadata__": {"format": "pt"}, "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
//
// Only such objects are read, no other JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/dtype.h"

namespace meshfuse {

struct SafetensorsEntry {
  std::string dtype;  // as in the file
  std::vector<int64_t> sizes;
  int64_t begin = 0;  // bytes, from the end of the header
  int64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry, std::less<>> entries;
  std::map<std::string, std::string> metadata;
};

// F32, BF16, BOOL, ...
[[nodiscard]] std::string safetensorsName(DataType type);
[[nodiscard]] std::optional<DataType> safetensorsType(std::string_view text);

// UserError that names `file` if the text is no such object, or if the entries do not divide `dataBytes` bytes among them.
[[nodiscard]] SafetensorsHeader parseSafetensorsHeader(std::string_view text, int64_t dataBytes, std::string_view file);
// Names are escaped; UserError if one is no UTF-8.
[[nodiscard]] std::string safetensorsHeaderText(const std::vector<std::pair<std::string, SafetensorsEntry>>& entries,
                                                const std::map<std::string, std::string>& metadata,
                                                std::string_view file);

}  // namespace meshfuse
