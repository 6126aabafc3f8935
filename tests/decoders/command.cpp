#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "decoders/decoders.h"
#include "ir/fusion.h"
#include "tensor/npy.h"
#include "tools/command_line.h"
#include "tools/program.h"

namespace meshfuse {

namespace {

constexpr int64_t kMostElements = 100'000;  // of random inputs

bool isSmall(const std::vector<std::vector<int64_t>>& shapes) {
  return std::ranges::all_of(shapes, [](const std::vector<int64_t>& shape) {
    int64_t elements = 1;
    return std::ranges::all_of(shape, [&](int64_t size) {
      elements = size > kMostElements ? kMostElements + 1 : elements * size;
      return elements <= kMostElements;
    });
  });
}

// The array that an input may name; removed at the end of this process.
struct ArrayFile {
  std::string path = fmt::format("/tmp/meshfuse_decoder_array.{}.npy", getpid());

  ArrayFile() { writeNpy(path, Tensor::zeros({8, 16}, DataType::Float)); }
  ~ArrayFile() { unlink(path.c_str()); }
};

// `T0=array` names the array; any other file is left alone.
void nameTheArray(std::vector<std::string>& inputs) {
  static const ArrayFile array;
  const std::string& file = array.path;
  for (std::string& text : inputs) {
    const size_t value = text.find('=') + 1;
    text = value != 0 && text.substr(value) == "array" ? text.substr(0, value) + file : text;
    text = text.find('/') != std::string::npos && !text.ends_with(file) ? "T0=none" : text;
  }
}

// The flags of a subcommand, as it reads them for its program; its file is the one of this decoder.
void readProgramFlags(ProgramOptions program, std::optional<int64_t> ranks, std::vector<std::string> expected) {
  program.file = std::string(MESHFUSE_SOURCE_DIR) + "/tests/decoders/command.fir";
  nameTheArray(program.inputs);
  nameTheArray(expected);
  const std::unique_ptr<Fusion> fusion = loadSizedProgram(program, ranks);
  require(virtualRankCount(*fusion, ranks) > 0, "no ranks");
  const std::vector<std::vector<int64_t>> shapes = inputShapes(*fusion, program);
  if (isSmall(shapes)) {
    require(inputValues(*fusion, program).size() == shapes.size(), "inputs without a value");
  }
  static_cast<void>(expectedOutputs(*fusion, expected));
}

struct FlagReader {
  void operator()(const RunOptions& o) const { readProgramFlags(o.program, o.ranks, o.expected); }
  void operator()(const ExplainOptions& o) const { readProgramFlags(o.program, o.ranks, {}); }
  void operator()(const OptOptions& o) const { readProgramFlags(o.program, std::nullopt, {}); }
  void operator()(const EmitOptions& o) const { readProgramFlags(o.program, std::nullopt, {}); }
  void operator()(const AutoPlanOptions& o) const { readProgramFlags(o.program, std::nullopt, {}); }
  void operator()(const SimulateOptions& o) const { readProgramFlags(o.program, std::nullopt, {}); }
  void operator()(const BlameOptions&) const {}  // its directory may have any name
  void operator()(const CalibrateOptions& o) const { require(o.ranks > 0, "no ranks"); }
  void operator()(const CapabilitiesOptions&) const {}
  void operator()(const PrintedText& o) const { require(!o.text.empty(), "no text"); }
};

}  // namespace

// One argument in a line.
void readCommand(std::string_view bytes) {
  std::vector<std::string> arguments = {"meshfuse"};
  for (size_t end = 0; !bytes.empty(); bytes.remove_prefix(std::min(end + 1, bytes.size()))) {
    end = std::min(bytes.find('\n'), bytes.size());
    std::string argument(bytes.substr(0, end));
    argument.resize(std::min(argument.find('\0'), argument.size()));
    arguments.push_back(std::move(argument));
  }
  std::vector<const char*> pointers;
  for (const std::string& argument : arguments) {
    pointers.push_back(argument.c_str());
  }
  pointers.push_back(nullptr);
  try {
    std::visit(FlagReader(), readCommandLine(static_cast<int>(arguments.size()), pointers.data()));
  } catch (const UserError&) {
  }
}

}  // namespace meshfuse
