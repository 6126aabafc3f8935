#include "codegen/cuda/names.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>

#include "base/ranges.h"
#include "ir/point_op.h"

namespace meshfuse::cuda {

namespace {

constexpr std::array kReserved = std::to_array<std::string_view>(
    {"alignas", "alignof", "and", "and_eq", "args", "asm", "atomicAdd", "auto", "bitand", "bitor", "blockDim",
     "blockIdx", "bool", "break", "case", "catch", "char", "class", "compl", "const", "constexpr", "continue",
     "decltype", "default", "delete", "do", "double", "else", "enum", "explicit", "export", "extern", "false", "float",
     "for", "friend", "goto", "gridDim", "half", "if", "inline", "int", "lane", "long", "main", "mask", "mutable",
     "namespace", "new", "noexcept", "not", "not_eq", "nullptr", "operator", "or", "or_eq", "part", "private",
     "protected", "public", "rank", "register", "return", "short", "signed", "sizeof", "static", "struct", "switch",
     "template", "this", "thread", "threadIdx", "threads", "throw", "true", "try", "typedef", "typeid", "typename",
     "union", "unsigned", "using", "virtual", "void", "volatile", "warp", "warpSize", "while", "xor", "xor_eq",
     // the runtime functions
     "Access", "addDouble", "addWrap", "arena", "barrier", "bf16ToFloat", "bitsAt", "blockIndex", "ceilDiv",
     "ceilDivide", "clusterBarrier", "clusterRank", "coarseDiv", "coarseInverse", "coarseSigmoid", "divide",
     "ex2Approx", "expFloat", "f16ToFloat", "fence", "fill", "fineInverse", "floatToBf16", "floatToF16", "floorDiv",
     "floorMod", "fmaPairBf16", "fmaPairF16", "fromWords", "gcdOf", "greatest", "i64", "inverseScale", "kKeep", "kOnce",
     "kRanks0", "kRanks1", "kReadOnly", "kShared", "kTicket", "kTile0", "kTile1", "kWarps0", "kWarps1", "least",
     "loadEight", "loadOne", "loadVector", "loadWide", "maximum", "maximumFloat", "minimum", "minimumFloat", "modFloor",
     "modTrunc", "mulWrap", "packBf16", "packF16", "packWordsBf16", "packWordsF16", "philox", "powInt", "putBits",
     "quotient", "rcpApprox", "remainderFloor", "remoteLoad", "sharedLoad", "sharedLoadVector", "sharedStore",
     "sharedStoreVector", "shiftLeft", "shiftRight", "shuffleUp", "shuffleXor", "sigmoid", "sigmoidFloat", "signOf",
     "storeEight", "storeOne", "storeVector", "storeWide", "subWrap", "sumWordsBf16", "sumWordsF16", "tanhFloat",
     "threadIndex", "ticket", "toWords", "u16", "u32", "u64",
     // mathematical functions whose name is no elementwise op
     "fabs", "rint"});

// A local name would hide a function that the text calls; most functions have the name of their op.
bool isReserved(std::string_view name) { return contains(kReserved, name) || parsePointOp(name).has_value(); }

}  // namespace

std::string Names::fresh(std::string_view wanted) {
  std::string name(wanted);
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  // Leading and double underscores belong to the compiler.
  if (name.empty() || std::isalpha(static_cast<unsigned char>(name[0])) == 0) {
    name = "n" + name;
  }
  for (size_t at = name.find("__"); at != std::string::npos; at = name.find("__")) {
    name.erase(at, 1);
  }
  std::string candidate = name;
  for (int64_t n = 1; taken_.contains(candidate) || isReserved(candidate); n++) {
    candidate = fmt::format("{}_{}", name, n);
  }
  taken_.insert(candidate);
  return candidate;
}

}  // namespace meshfuse::cuda
