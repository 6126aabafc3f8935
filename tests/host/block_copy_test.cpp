// Blocks of a tensor side by side, against copying element by element.
#include "host/block_copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

namespace meshfuse {
namespace {

void run(const std::vector<BytePiece>& pieces, const std::vector<int32_t>& from, std::vector<int32_t>& to) {
  for (const BytePiece& p : pieces) {
    ASSERT_LE(p.from + p.bytes, std::ssize(from) * 4);
    ASSERT_LE(p.to + p.bytes, std::ssize(to) * 4);
    std::memcpy(reinterpret_cast<char*>(to.data()) + p.to, reinterpret_cast<const char*>(from.data()) + p.from,
                p.bytes);
  }
}

IndexRuns randomRuns(std::mt19937& rng, int64_t extent) {
  IndexRuns runs;
  for (int64_t at = static_cast<int64_t>(rng() % 3); at < extent;) {
    const auto step = static_cast<int64_t>(1 + rng() % 3);
    const int64_t count = 1 + static_cast<int64_t>(rng() % 4);
    const int64_t fits = std::min(count, (extent - at + step - 1) / step);
    runs.push_back({at, fits, fits == 1 ? 1 : step});
    at = runs.back().last() + 1 + static_cast<int64_t>(rng() % 3);
  }
  return runs;
}

std::vector<int64_t> elementsOf(const Part& part, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> flat{0};
  for (size_t k = 0; k < sizes.size(); k++) {
    std::vector<int64_t> next;
    for (int64_t prefix : flat) {
      for (const IndexRun& r : part.dims[k]) {
        for (int64_t i = 0; i < r.count; i++) {
          next.push_back(prefix * sizes[k] + r.start + i * r.step);
        }
      }
    }
    flat = std::move(next);
  }
  return flat;
}

TEST(BlockCopy, RandomBlocksThereAndBack) {
  std::mt19937 rng(5);
  for (int round = 0; round < 500; round++) {
    const std::vector<int64_t> sizes = {1 + static_cast<int64_t>(rng() % 5), static_cast<int64_t>(rng() % 7),
                                        1 + static_cast<int64_t>(rng() % 6)};
    std::vector<int32_t> tensor(sizes[0] * sizes[1] * sizes[2]);
    std::iota(tensor.begin(), tensor.end(), 0);
    std::vector<Part> blocks;
    std::vector<int32_t> expected;
    for (int b = 0; b < 3; b++) {
      Part block;
      for (int64_t n : sizes) {
        block.dims.push_back(rng() % 2 == 0 && n > 0 ? IndexRuns{{0, n, 1}} : randomRuns(rng, n));
      }
      for (int64_t element : elementsOf(block, sizes)) {
        expected.push_back(static_cast<int32_t>(element));
      }
      blocks.push_back(std::move(block));
    }
    const BlockCopy copy = packing(blocks, sizes, 4);
    ASSERT_EQ(copy.bytes, std::ssize(expected) * 4);
    std::vector<int32_t> sideBySide(expected.size());
    run(copy.pieces, tensor, sideBySide);
    ASSERT_EQ(sideBySide, expected);
    std::vector<int32_t> back(tensor.size(), -1);
    run(unpacking(blocks, sizes, 4).pieces, sideBySide, back);
    for (int32_t element : expected) {
      ASSERT_EQ(back[element], element);
    }
    ASSERT_EQ(parsePart(toString(blocks[0])), blocks[0]) << toString(blocks[0]);
  }
}

TEST(BlockCopy, FromTheBlockOfOneTensorToThatOfAnother) {
  std::mt19937 rng(6);
  for (int round = 0; round < 300; round++) {
    // A block of rows and columns of one matrix, the same count of them in another.
    const std::vector<int64_t> from = {6, 7};
    const std::vector<int64_t> to = {5, 9};
    Part source;
    Part target;
    for (size_t k = 0; k < 2; k++) {
      const int64_t count = 1 + static_cast<int64_t>(rng() % 3);
      for (const auto& [block, sizes] : {std::pair(&source, &from), std::pair(&target, &to)}) {
        const int64_t step = count > 1 ? 1 + static_cast<int64_t>(rng() % 2) : 1;
        const int64_t room = (*sizes)[k] - (count - 1) * step;
        block->dims.push_back({{static_cast<int64_t>(rng() % static_cast<uint64_t>(room)), count, step}});
      }
    }
    std::vector<int32_t> a(42);
    std::iota(a.begin(), a.end(), 0);
    std::vector<int32_t> b(45, -1);
    run(directCopy(packing({source}, from, 4), unpacking({target}, to, 4)), a, b);
    std::vector<int32_t> expected(45, -1);
    const std::vector<int64_t> reads = elementsOf(source, from);
    const std::vector<int64_t> writes = elementsOf(target, to);
    for (size_t i = 0; i < reads.size(); i++) {
      expected[writes[i]] = static_cast<int32_t>(reads[i]);
    }
    ASSERT_EQ(b, expected);
  }
}

TEST(BlockCopy, WhatLiesSideBySideIsNotCopied) {
  const std::vector<Part> rows = {{{{{0, 2, 1}}, {{0, 3, 1}}}}, {{{{2, 2, 1}}, {{0, 3, 1}}}}, {{{}, {}}}};
  EXPECT_TRUE(packing(rows, {4, 3}, 4).isWhole());
  const std::vector<Part> columns = {{{{{0, 4, 1}}, {{0, 2, 1}}}}, {{{{0, 4, 1}}, {{2, 1, 1}}}}};
  EXPECT_FALSE(packing(columns, {4, 3}, 4).isWhole());
}

}  // namespace
}  // namespace meshfuse
