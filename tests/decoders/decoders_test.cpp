// Each decoder over its corpus: bytes that were findings once, and others that reach all its lines.
#include "decoders/decoders.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "meshfuse_config.h"
#include "sanitized.h"

namespace meshfuse {
namespace {

class DecodersTest : public ::testing::TestWithParam<Decoder> {};

TEST_P(DecodersTest, TakesItsCorpus) {
  const auto& [name, read] = GetParam();
  if (!kHasSodium && (name == "hello" || name == "watch" || name == "settings")) {
    GTEST_SKIP() << "this build has no libsodium";
  }
  setenv("MESHFUSE_CACHE_DIR", "off", 1);
  const std::filesystem::path folder = std::filesystem::path(MESHFUSE_SOURCE_DIR) / "tests/decoders/corpus" / name;
  const std::set<std::filesystem::path> files(std::filesystem::directory_iterator(folder), {});
  EXPECT_GE(files.size(), 10) << folder;
  size_t number = 0;
  for (const std::filesystem::path& file : files) {
    if (kSanitized && number++ % 4 != 0) {
      continue;  // `tools/dev fuzz` reads all of them under AddressSanitizer
    }
    std::ostringstream bytes;
    bytes << std::ifstream(file, std::ios::binary).rdbuf();
    try {
      read(bytes.str());
    } catch (const std::exception& e) {
      ADD_FAILURE() << file << ": " << e.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DecodersTest, ::testing::ValuesIn(decoders().begin(), decoders().end()),
                         [](const auto& decoder) { return std::string(decoder.param.name); });

}  // namespace
}  // namespace meshfuse
