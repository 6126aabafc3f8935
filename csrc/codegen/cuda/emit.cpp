#include "codegen/cuda/emit.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/ranges.h"
#include "codegen/cuda/emitter.h"
#include "codegen/cuda/runtime_sections.h"

namespace meshfuse {

CudaSource emitCuda(const tile::Program& program) {
  invariant(program.target == tile::Target::Gpu, "[codegen cuda] kernel {} is written for a CPU; schedule it for a GPU",
            program.name);
  invariant(program.cluster() <= 8,
            "[codegen cuda] kernel {} has clusters of {} blocks, expected at most 8, the portable limit", program.name,
            program.cluster());
  return cuda::Emitter(program).emit();
}

std::string launchText(const CudaSource& source) {
  const std::string clusters = source.cluster > 1 ? fmt::format(" in clusters of {}", source.cluster) : "";
  return fmt::format("{} blocks of {} threads{}, {} bytes of shared memory", source.blocks.toString(), source.threads,
                     clusters, source.sharedBytes.toString());
}

namespace cuda {

using namespace tile;

namespace {

// Whether the text contains `word` as a separate word.
bool mentions(const std::string& text, const std::string& word) {
  auto isPart = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    size_t end = at + word.size();
    if ((at == 0 || !isPart(text[at - 1])) && (end == text.size() || !isPart(text[end]))) {
      return true;
    }
  }
  return false;
}

std::string concatenated(const std::vector<std::string>& lines) {
  return joined(lines, "", [](const std::string& l) { return l + "\n"; });
}

std::string_view argumentType(DataType t) { return isIntegral(t) || t == DataType::Bool ? "i64" : storageType(t); }

}  // namespace

Emitter::Emitter(const Program& program)
    : p_(program), usage_(analyseUsage(program)), padding_(program), geometry_(program, s_.names) {
  tensorNames_ = mapped(program.tensors, [&](const TensorParam& t) {
    return t.memory == Memory::Scratch ? std::string() : s_.names.fresh(t.name);
  });
  scalarNames_ = mapped(program.scalars, [&](const ScalarParam& s) { return s_.names.fresh(s.name); });
  kernelName_ = s_.names.fresh(program.name);
  structName_ = s_.names.fresh(kernelName_ + "_args");
  if (p_.checksIndices()) {
    use("checked_index");
    refusedName_ = s_.names.fresh("refused");
  }
}

CudaSource Emitter::emit() {
  CudaSource source;
  source.entry = kernelName_;
  source.threads = p_.threads();
  source.cluster = p_.cluster();
  source.blocks = productOf(p_.grid, &GridDim::count) * IntExpr(source.cluster);
  const std::vector<Argument> arguments = this->arguments();
  source.slots = mapped(arguments, &Argument::slot);

  planScratch();
  block(p_.body);
  if (!s_.arena.open.remote.empty()) {
    wait(Arena::Wait::Cluster);  // no block leaves while another one may read its memory
  }
  const std::string body = concatenated(s_.lines);
  std::string members = joined(arguments, "", [](const Argument& a) { return "  " + a.member + ";\n"; });
  std::string head = fmt::format("struct {} {{\n{}}};\n\n", structName_, members);
  std::string cluster = source.cluster > 1 ? fmt::format(" __cluster_dims__({}, 1, 1)", source.cluster) : "";
  const int64_t resident = residentBlocks();
  const std::string bounds = std::to_string(source.threads) + (resident > 0 ? fmt::format(", {}", resident) : "");
  head += fmt::format("extern \"C\" __global__{} void __launch_bounds__({}) {}(const __grid_constant__ {} args) {{\n",
                      cluster, bounds, kernelName_, structName_);
  std::vector<std::string> lines = arenaLines(source);
  append(lines, threadLines(body));
  std::string needs = body + concatenated(lines);
  std::vector<std::string> grid;
  for (const Definition& d : gridDims()) {
    needs += d.line + "\n";
    if (d.name == "part" || mentions(body, d.name)) {
      grid.push_back(d.line);
    }
  }
  if (grid.size() > 1) {  // more than `part` itself
    use("block_index");
    lines.insert(lines.begin(), grid.begin(), grid.end());
  }
  std::string inner = joined(arguments, "", [&](const Argument& a) {
    return mentions(needs, a.definition.name) ? "  " + a.definition.line + "\n" : "";
  });
  inner += joined(lines, "", [](const std::string& l) { return "  " + l + "\n"; });
  use("types");
  source.text = runtimeSections(s_.uses) + std::string(kKernelHeading) + head + inner + body + "}\n";
  return source;
}

std::vector<Emitter::Argument> Emitter::arguments() const {
  std::vector<Argument> list;
  for (int64_t i = 0; i < std::ssize(p_.tensors); i++) {
    const TensorParam& t = tensor(i);
    if (t.memory != Memory::Scratch) {
      std::string type = fmt::format("{}{}*", t.memory == Memory::Input ? "const " : "", storageType(t.dtype));
      // A tensor that aliases another one must not promise otherwise.
      std::string_view alone = t.memory == Memory::InOut ? "" : "__restrict__ ";
      const std::string& name = tensorNames_[i];
      list.push_back({{CudaSlot::Kind::Tensor, i},
                      type + " " + name,
                      {name, fmt::format("{0} {1}{2} = args.{2};", type, alone, name)}});
    }
  }
  for (int64_t i = 0; i < std::ssize(p_.sizes); i++) {
    const std::string& name = geometry_.cName(p_.sizes[i].name);
    list.push_back({{CudaSlot::Kind::Size, i}, "i64 " + name, {name, fmt::format("const i64 {0} = args.{0};", name)}});
  }
  for (int64_t i = 0; i < std::ssize(p_.scalars); i++) {
    const std::string& name = scalarNames_[i];
    DataType t = p_.scalars[i].dtype;
    std::string value = t == DataType::Bool                   ? fmt::format("args.{} != 0", name)
                        : isIntegral(t) && t != DataType::Int ? fmt::format("({})args.{}", storageType(t), name)
                                                              : "args." + name;
    list.push_back({{CudaSlot::Kind::Scalar, i},
                    fmt::format("alignas(8) {} {}", argumentType(t), name),
                    {name, fmt::format("const {} {} = {};", registerType(t), name, value)}});
  }
  if (p_.checksIndices()) {
    list.push_back({{CudaSlot::Kind::RefusedIndex, 0},
                    "RefusedIndexRecord* " + refusedName_,
                    {refusedName_, fmt::format("RefusedIndexRecord* {0} = args.{0};", refusedName_)}});
  }
  return list;
}

// The number of the worker, taken apart into the grid dims, the last one fastest.
std::vector<Emitter::Definition> Emitter::gridDims() {
  std::string index = "blockIndex()";
  if (p_.cluster() > 1) {
    index += fmt::format(" / {}", p_.cluster());
  }
  std::vector<Definition> list = {{"part", fmt::format("const unsigned part = {};", index)}};
  std::string rest = "part";
  for (int64_t d = std::ssize(p_.grid) - 1; d >= 0; d--) {
    const std::string& name = geometry_.cName(p_.grid[d].symbol);
    std::string count = parenthesized(geometry_.resolve(p_.grid[d].count), s_.uses);
    const std::string_view type = counterType(geometry_.resolve(p_.grid[d].count));
    list.push_back({name, d == 0 ? fmt::format("const {} {} = {};", type, name, rest)
                                 : fmt::format("const {} {} = {} % (unsigned){};", type, name, rest, count)});
    rest += fmt::format(" / (unsigned){}", count);
  }
  return list;
}

std::vector<std::string> Emitter::threadLines(const std::string& body) {
  std::vector<std::string> digits;
  for (int64_t s = 0; s < std::ssize(p_.spaces); s++) {
    for (const DigitInfo& d : geometry_.digits(s)) {
      if (!isThread(d.level) || d.size == 1 || !mentions(body, d.symbol)) {
        continue;
      }
      std::string_view source = d.level == Level::Lane ? "lane" : d.level == Level::Warp ? "warp" : "rank";
      int64_t total = d.level == Level::Lane ? 32 : d.level == Level::Warp ? p_.threads() / 32 : p_.cluster();
      std::string quotient = d.weight > 1 ? fmt::format(" / {}", d.weight) : "";
      std::string rest = d.weight * d.size < total ? fmt::format(" % {}", d.size) : "";
      digits.push_back(fmt::format("const int {} = {}{}{};", d.symbol, source, quotient, rest));
    }
  }
  std::string needs = body + concatenated(digits);
  std::vector<std::string> lines;
  if (mentions(needs, "thread")) {
    lines.push_back("const int thread = threadIndex();");
  }
  if (mentions(needs, "lane")) {
    lines.push_back("const int lane = threadIndex() % 32;");
  }
  if (mentions(needs, "warp")) {
    lines.push_back("const int warp = threadIndex() / 32;");
  }
  if (mentions(needs, "rank")) {
    use("cluster_rank");
    lines.push_back("const int rank = clusterRank();");
  }
  if (!lines.empty()) {
    use("thread_index");
  }
  append(lines, digits);
  return lines;
}

// Offsets of the slots: first those of known size, then the others.
std::vector<std::string> Emitter::arenaLines(CudaSource& source) {
  std::vector<std::string> lines;
  IntExpr offset = 0;
  std::vector<Arena::Slot> slots = s_.arena.slots();
  std::ranges::stable_partition(slots, [](const Arena::Slot& slot) { return slot.bytes.isConst(); });
  for (const Arena::Slot& slot : slots) {
    lines.push_back(fmt::format("{} int {} = {};", offset.isConst() ? "constexpr" : "const", slot.name,
                                text(geometry_.resolve(offset))));
    offset += ceilDiv(slot.bytes, 16) * 16;
  }
  source.sharedBytes = offset;
  invariant(offset.lower().value_or(0) <= 227 * 1024,
            "[codegen cuda] kernel {} needs {} bytes of shared memory, expected at most 232448; use smaller tiles",
            p_.name, offset.toString());
  return lines;
}

}  // namespace cuda
}  // namespace meshfuse
