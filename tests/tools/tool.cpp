#include "tools/tool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace meshfuse {

namespace {

struct TemporaryDirectory {
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "meshfuse_tool_XXXXXX").string();
    invariant(mkdtemp(name.data()) != nullptr, "[test] no temporary directory {}", name);
    path = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string path;
};

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
  return text;
}

}  // namespace

std::string fileText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void expectContains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "expected \"" << part << "\" in:\n" << text;
}

std::string temporaryDirectory() {
  static const TemporaryDirectory directory;
  return directory.path;
}

ToolRun tool(const std::string& arguments, const std::string& launcher) {
  const std::string out = temporaryDirectory() + "/stdout";
  const std::string err = temporaryDirectory() + "/stderr";
  // beside this binary
  const std::string binary = std::filesystem::read_symlink("/proc/self/exe").replace_filename("meshfuse").string();
  const std::string command = fmt::format(
      "MESHFUSE_CACHE_DIR=off >{} 2>{} </dev/null {} {} {}", out, err, launcher, binary,
      replaced(replaced(arguments, "{dir}", MESHFUSE_SOURCE_DIR "/tests/tools"), "{tmp}", temporaryDirectory()));
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, fileText(out), fileText(err)};
}

}  // namespace meshfuse
