// Each decoder over its corpus: bytes that were findings once, and others that reach all its lines.
#include "decoders/decoders.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "meshfuse_config.h"

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
  int64_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ostringstream bytes;
    bytes << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    try {
      read(bytes.str());
    } catch (const std::exception& e) {
      ADD_FAILURE() << entry.path() << ": " << e.what();
    }
    ++files;
  }
  EXPECT_GE(files, 10) << folder;
}

INSTANTIATE_TEST_SUITE_P(All, DecodersTest, ::testing::ValuesIn(decoders().begin(), decoders().end()),
                         [](const auto& decoder) { return std::string(decoder.param.name); });

}  // namespace
}  // namespace meshfuse
