// The text of documents.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace meshfuse {

inline const std::string kRoot = MESHFUSE_SOURCE_DIR "/";

inline std::string fileText(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const size_t from = text.find(begin);
  EXPECT_NE(from, std::string::npos) << begin;
  const size_t to = text.find(end, from + begin.size());
  EXPECT_NE(to, std::string::npos) << end;
  return text.substr(from + begin.size(), to - from - begin.size());
}

}  // namespace meshfuse
