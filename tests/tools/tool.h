// Runs the `meshfuse` binary of this build.
#pragma once

#include <string>

namespace meshfuse {

struct ToolRun {
  int code = -1;  // exit code; -1 if it ended by a signal
  std::string out;
  std::string err;
};

// `arguments` as a shell reads them; {dir}, a directory of samples, and {tmp}, one that is deleted at the end of the process, are replaced.
// `launcher` stands in front of the binary: "mpirun -np 2".
[[nodiscard]] ToolRun tool(const std::string& arguments, const std::string& launcher = "");
[[nodiscard]] std::string temporaryDirectory();

[[nodiscard]] std::string fileText(const std::string& path);
void expectContains(const std::string& text, const std::string& part);

}  // namespace meshfuse
