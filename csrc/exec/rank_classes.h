// Classes of ranks that hold parts of equal sizes and take part in the same communications: one of each class stands for all in questions
// about sizes.
//
//   10 rows on 4 ranks, uneven: 3, 3, 3, 1       classOf {0, 0, 0, 1}, firstRanks {0, 3}
//   parts on [0, 1, 2, 3] go to [0, 1, 3, 2]     classOf {0, 0, 1, 1}, firstRanks {0, 2}: ranks 0 and 1 keep theirs
#pragma once

#include <cstdint>
#include <vector>

namespace meshfuse {

class Fusion;

struct RankClasses {
  std::vector<int64_t> classOf;     // by rank
  std::vector<int64_t> firstRanks;  // by class, ascending
};

// `planned`: a program after all passes, with constant sizes. Ranks outside of a mesh hold nothing of its tensors.
[[nodiscard]] RankClasses rankClasses(const Fusion& planned, int64_t ranks);

// Whether ranks of one class may send or receive blocks of different sizes.
[[nodiscard]] bool mayExchangeUnlikeBlocks(const Fusion& planned);

}  // namespace meshfuse
