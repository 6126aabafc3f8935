// The text a model is trained on, and batches of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "meshfuse/meshfuse.h"

namespace train_lm {

using meshfuse::Argument;
using meshfuse::DataType;
using meshfuse::Fusion;
using meshfuse::Tensor;

// All C++ sources below a folder, one after the other in the order of their paths.
inline std::string readSources(const std::string& folder) {
  namespace fs = std::filesystem;
  meshfuse::check(fs::is_directory(folder), "[train_lm] --text is {}, expected a folder with .h and .cpp files",
                  folder);
  std::vector<std::string> paths;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    std::string extension = entry.path().extension().string();
    if (entry.is_regular_file() && (extension == ".h" || extension == ".cpp")) {
      paths.push_back(entry.path().generic_string());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::string text;
  for (const std::string& path : paths) {
    std::ifstream in(path, std::ios::binary);
    text.append(std::istreambuf_iterator<char>(in), {});
  }
  return text;
}

// Writes the bytes at text[start .. start + context) into a row of tokens.
inline void setTokens(int64_t* row, const std::string& text, size_t start, int64_t context) {
  for (int64_t i = 0; i < context; i++) {
    row[i] = static_cast<unsigned char>(text[start + static_cast<size_t>(i)]);
  }
}

// Windows of the text at places drawn from the number of the step: the same on every rank.
class Batches {
 public:
  Batches(std::string text, int64_t batch, int64_t context)
      : text_(std::move(text)),
        tokens_(Tensor::empty({batch, context}, DataType::Int)),
        next_(Tensor::empty({batch}, DataType::Int)) {
    meshfuse::check(std::ssize(text_) > context,
                    "[train_lm] the text has {} bytes, expected more than the context of {}", text_.size(), context);
  }

  void draw(int64_t step) {
    int64_t batch = tokens_.size(0), context = tokens_.size(1);
    uint64_t state = static_cast<uint64_t>(step) << 32;
    for (int64_t b = 0; b < batch; b++) {
      size_t start = mix(state++) % (text_.size() - static_cast<size_t>(context));
      setTokens(tokens_.data_as<int64_t>() + b * context, text_, start, context);
      next_.data_as<int64_t>()[b] = static_cast<unsigned char>(text_[start + static_cast<size_t>(context)]);
    }
  }

  const Tensor& tokens() const { return tokens_; }
  const Tensor& next() const { return next_; }
  const std::string& text() const { return text_; }

  // A bijection of 64-bit numbers that looks random (splitmix64, Steele et al., 2014).
  static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }

 private:
  std::string text_;
  Tensor tokens_, next_;
};

// What a rank calls the training step with: its parts of the batch, the learning rate, and the parameters, on their device.
inline std::vector<Argument> arguments(const Fusion& step, int64_t rank, const Batches& batches, double rate,
                                       const std::vector<Tensor>& parameters) {
  const auto part = [&](const Tensor& whole, size_t input) {
    return meshfuse::shardTensor(whole, step.inputs()[input]->asTensor(), rank).to(parameters[0].device());
  };
  std::vector<Argument> list = {part(batches.tokens(), 0), part(batches.next(), 1), rate};
  list.insert(list.end(), parameters.begin(), parameters.end());
  return list;
}

}  // namespace train_lm
