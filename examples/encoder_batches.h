// Sentences as token ids, and padded batches of them.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <numeric>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "encoder_model.h"

namespace encoder {

using Sentence = std::vector<int64_t>;  // token ids

// The whole text as a number, at least `least`; nothing if it is none.
inline std::optional<int64_t> numberOf(std::string_view text, int64_t least) {
  int64_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is = error == std::errc() && rest == text.data() + text.size() && number >= least;
  return is ? std::optional(number) : std::nullopt;
}

// A sentence a line, as token ids. Id 0 is padding, so no sentence has it.
inline std::vector<Sentence> readSentences(const std::string& path, const ModelSizes& sizes) {
  std::ifstream file(path);
  check(file.good(), "[encoder] cannot read the tokens in {}; does the file exist?", path);
  std::vector<Sentence> sentences;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Sentence& sentence = sentences.emplace_back();
    for (std::string word; words >> word;) {
      const std::optional<int64_t> token = numberOf(word, 1);
      check(token && *token < sizes.words, "[encoder] {}, line {}: got the token id \"{}\", expected 1 to {}", path,
            sentences.size(), word, sizes.words - 1);
      sentence.push_back(*token);
    }
    check(!sentence.empty() && std::ssize(sentence) <= sizes.positions,
          "[encoder] {}, line {}: got {} token ids, expected 1 to {}, the positions of the model", path,
          sentences.size(), sentence.size(), sizes.positions);
  }
  check(!sentences.empty(), "[encoder] {} has no lines; give a sentence a line, as token ids", path);
  return sentences;
}

inline std::vector<Sentence> randomSentences(int64_t count, int64_t length, const ModelSizes& sizes) {
  check(length <= sizes.positions, "[encoder] --length is {}, the model has {} positions", length, sizes.positions);
  std::vector<Sentence> sentences(count, Sentence(length));
  for (int64_t i = 0; i < count * length; i++) {
    sentences[i / length][i % length] = 1 + i * 7919 % (sizes.words - 1);
  }
  return sentences;
}

// A padded batch has a multiple of `sentences` sentences. Each has a multiple of `tokens` tokens, or as many as the model has positions.
struct Padding {
  int64_t sentences = 1;
  int64_t tokens = 16;  // so that few shapes need a plan
};

// For a plan: it may cut sentences and tokens over all ranks.
inline Padding paddingFor(int64_t ranks) { return {ranks, std::lcm(int64_t{16}, ranks)}; }

inline std::vector<int64_t> paddedShape(int64_t sentences, int64_t longest, const Padding& padding, int64_t positions) {
  auto upTo = [](int64_t size, int64_t multiple) { return (size + multiple - 1) / multiple * multiple; };
  return {upTo(sentences, padding.sentences), std::min(upTo(longest, padding.tokens), positions)};
}

inline int64_t longestOf(std::span<const Sentence> sentences) {
  return std::ssize(std::ranges::max(sentences, {}, &Sentence::size));
}

// Token ids [B, S] of at least one sentence, padded with 0.
inline Tensor paddedBatch(std::span<const Sentence> sentences, const Padding& padding, int64_t positions) {
  Tensor batch =
      Tensor::zeros(paddedShape(std::ssize(sentences), longestOf(sentences), padding, positions), DataType::Int);
  int64_t* row = batch.data_as<int64_t>();
  for (const Sentence& sentence : sentences) {
    std::ranges::copy(sentence, row);
    row += batch.size(1);
  }
  return batch;
}

}  // namespace encoder
