// Named tensors in files of the safetensors format, https://huggingface.co/docs/safetensors: weights of models.
//
//   const SafetensorsFile file("model.safetensors");
//   Tensor embedding = file.get("wte");                            // reads nothing yet: memory of the file
//   Tensor mine = loadSharded(file, "wte", tv, world.rank());      // multidevice/sharding/load_sharded.h: the part of one rank
//   writeSafetensors("copy.safetensors", {{"wte", embedding}}, {{"step", "100"}});
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/safetensors_header.h"
#include "tensor/tensor.h"

namespace meshfuse {

// A file for reading. Tensors from get() stay valid after the end of this object. While any of them lives, the file on disk may be replaced
// by another file of the same name, but must not be cut short.
class SafetensorsFile {
 public:
  // Maps the file and reads its header. UserError that names the file if it breaks the format: no header, or one that is cut short, is no
  // JSON object of tensors, or names a tensor twice; data that lack bytes, overlap, leave a hole, or do not fit the shape.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return path_; }
  std::vector<std::string> names() const;  // sorted
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  // The tensor `name` on the CPU, in the memory of the file: pages are read when they are first used, and what is written to the tensor does
  // not reach the file. A copy if the file does not align it to its type. UserError if there is none (the nearest name is suggested), if its
  // type is none of meshfuse, or if it is of Bool and has a byte that is neither 0 nor 1.
  [[nodiscard]] Tensor get(std::string_view name) const;

 private:
  std::string path_;
  std::shared_ptr<char> bytes_;
  char* data_ = nullptr;  // the end of the header
  SafetensorsHeader header_;
};

// Writes a file that appears whole or not at all. A tensor that is not contiguous is written in row-major order. UserError if two tensors
// have one name, if a name or a text is no UTF-8, if a tensor is undefined, or if the file cannot be written.
void writeSafetensors(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace meshfuse
