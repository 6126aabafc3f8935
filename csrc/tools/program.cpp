#include "tools/program.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <set>

#include "base/error.h"
#include "base/limits.h"
#include "base/nearest_word.h"
#include "base/ranges.h"
#include "base/regular_file.h"
#include "exec/symbolic_program.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "ir/read_program.h"
#include "preseg_passes/specialize.h"
#include "tensor/npy.h"

namespace meshfuse {

namespace {

using Assignments = std::map<std::string, std::string, std::less<>>;

// "name=value" pairs. UserError on anything else and on a repeated name.
Assignments assignments(const std::vector<std::string>& texts, std::string_view flag, std::string_view example) {
  Assignments result;
  for (const std::string& text : texts) {
    size_t equals = text.find('=');
    check(equals != std::string::npos && equals > 0 && equals + 1 < text.size(),
          "[command line] {} got \"{}\", expected {}", flag, text, example);
    bool isNew = result.try_emplace(text.substr(0, equals), text.substr(equals + 1)).second;
    check(isNew, "[command line] {} gives {} twice; give it once", flag, text.substr(0, equals));
  }
  return result;
}

template <class Number>
Number numberOf(std::string_view text, std::string_view what) {
  Number value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check(error == std::errc() && end == text.data() + text.size(), "[command line] {} is \"{}\", expected a number",
        what, text);
  return value;
}

Argument scalarOf(const Val* in, std::string_view text) {
  if (in->dtype() == DataType::Bool) {
    check(text == "true" || text == "false", "[command line] {} is \"{}\", expected true or false", in->toString(),
          text);
    return text == "true";
  }
  return isIntegral(in->dtype()) ? Argument(numberOf<int64_t>(text, in->toString()))
                                 : Argument(numberOf<double>(text, in->toString()));
}

// The position of the value with this name or number; their count if there is none.
int64_t positionOf(const std::vector<Val*>& values, const std::vector<std::string>& names, std::string_view text) {
  const int64_t named = positionIn(names, text);
  return named < std::ssize(names) ? named : positionIn(mapped(values, &Val::toString), text);
}

// The end of an error about a name that is none of these values': the nearest name or number, and all.
template <class Text>
std::string suggestion(std::string_view text, const std::vector<Val*>& values, std::vector<std::string> names,
                       const Text& textOf) {
  append(names, mapped(values, &Val::toString));
  return fmt::format("{}; it has: {}", nearestWord(text, names), joined(indices(values), ", ", textOf));
}

Assignments givenInputs(const Fusion& fusion, const ProgramOptions& options) {
  const auto known = [&](int64_t k) { return inputText(fusion, k); };
  Assignments given;  // by number
  for (const auto& [name, value] :
       assignments(options.inputs, "--input", "an input and its value, such as x=x.npy, T0=x.npy or S1=0.5")) {
    const int64_t i = positionOf(fusion.inputs(), fusion.inputNames(), name);
    if (i == std::ssize(fusion.inputs())) {
      throwUserError(fmt::format("[command line] --input {}={}: the program has no input {}{}", name, value, name,
                                 suggestion(name, fusion.inputs(), fusion.inputNames(), known)));
    }
    check(given.emplace(fusion.inputs()[i]->toString(), value).second,
          "[command line] --input gives {} twice; give it once", inputText(fusion, i));
  }
  return given;
}

std::optional<std::string> givenValue(const Assignments& given, const Val* in) {
  auto it = given.find(in->toString());
  return it == given.end() ? std::nullopt : std::optional<std::string>(it->second);
}

// Symbols with a value: from --size, Int scalars, and extents of files where the extent is one symbol.
std::map<std::string, int64_t> givenSymbols(const Fusion& fusion, const ProgramOptions& options,
                                            const std::map<int64_t, Tensor>& files, const Assignments& given) {
  std::map<std::string, int64_t> values;
  for (const auto& [name, value] : assignments(options.sizes, "--size", "a symbol and its value, such as i0=128")) {
    values[name] = numberOf<int64_t>(value, name);
    check(values[name] >= 0, "[command line] --size {} is {}, expected 0 or more", name, values[name]);
  }
  std::set<std::string> known;
  for (const Val* in : fusion.inputs()) {
    if (!in->isTensor()) {
      if (in->dtype() == DataType::Int) {
        const std::string& symbol = *known.emplace(in->intExpr().symbolName()).first;
        if (const std::optional<std::string> value = givenValue(given, in)) {
          values[symbol] = numberOf<int64_t>(*value, in->toString());
        }
      }
      continue;
    }
    const std::vector<IntExpr> shape = in->asTensor()->shape();
    auto file = files.find(in->id());
    for (int64_t k = 0; k < std::ssize(shape); k++) {
      std::ranges::copy(shape[k].symbols(), std::inserter(known, known.end()));
      if (file != files.end() && k < std::ssize(file->second.sizes()) && shape[k].isSymbol()) {
        values.try_emplace(std::string(shape[k].symbolName()), file->second.sizes()[k]);
      }
    }
  }
  for (const auto& [name, value] : values) {
    check(known.contains(name), "[command line] --size {}={}: no input has the symbol {}; there are: {}", name, value,
          name, known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
  }
  return values;
}

std::map<int64_t, Tensor> givenFiles(const Fusion& fusion, const Assignments& given) {
  std::map<int64_t, Tensor> files;
  for (const Val* in : fusion.inputs()) {
    std::optional<std::string> value = in->isTensor() ? givenValue(given, in) : std::nullopt;
    if (!value) {
      continue;
    }
    Tensor t = readNpy(*value);
    check(t.dtype() == in->dtype(), "[command line] {} has type {}, the file {} holds {}; save it with that type",
          in->toString(), name(in->dtype()), *value, name(t.dtype()));
    check(t.sizes().size() == in->asTensor()->shape().size(),
          "[command line] {} has {} dims, the array in {} has sizes [{}]; save it with as many dims", in->toString(),
          in->asTensor()->shape().size(), *value, fmt::join(t.sizes(), ", "));
    files[in->id()] = std::move(t);
  }
  return files;
}

std::vector<std::vector<int64_t>> shapesOf(const Fusion& fusion, const std::map<std::string, int64_t>& values,
                                           const std::map<int64_t, Tensor>& files) {
  std::vector<std::vector<int64_t>> shapes;
  std::set<std::string> missing;
  for (const Val* in : fusion.inputs()) {
    std::vector<int64_t>& shape = shapes.emplace_back();
    if (!in->isTensor()) {
      const bool mayBeSize = in->dtype() == DataType::Int;
      if (const auto value = mayBeSize ? valuesIn(values)(in->intExpr().symbolName()) : std::nullopt) {
        shape.push_back(*value);
      }
      continue;
    }
    if (auto file = files.find(in->id()); file != files.end()) {
      shape.assign(file->second.sizes().begin(), file->second.sizes().end());
      continue;
    }
    for (const IntExpr& extent : in->asTensor()->shape()) {
      std::ranges::copy_if(extent.symbols(), std::inserter(missing, missing.end()),
                           [&](const std::string& symbol) { return !values.contains(symbol); });
      if (missing.empty()) {
        shape.push_back(extent.evaluate(valuesIn(values)));
      }
    }
  }
  check(missing.empty(), "[command line] the symbols {} in the sizes of the inputs have no value; give them: {}",
        fmt::join(missing, ", "),
        joined(missing, " ", [](const std::string& symbol) { return fmt::format("--size {}=128", symbol); }));
  return shapes;
}

// Symbols in the result sizes and attributes of an expr.
std::vector<std::string> symbolsOf(const Expr& e) {
  std::vector<IntExpr> exprs;
  for (const Val* out : e.outputs()) {
    append(exprs, out->isTensor() ? out->asTensor()->shape() : std::vector<IntExpr>());
  }
  for (const auto* more : {&e.attributes().starts, &e.attributes().stops, &e.attributes().steps}) {
    append(exprs, *more);
  }
  std::vector<std::string> symbols;
  for (const IntExpr& x : exprs) {
    append(symbols, x.symbols());
  }
  return symbols;
}

// Exclusive upper bound of random elements of an integer input: the extent of the dim that it indexes, else 10.
double integerLimit(const Fusion& fusion, const Val* in, const std::vector<std::vector<int64_t>>& shapes) {
  double limit = 10;
  for (const Expr* e : fusion.uses(in)) {
    if (e->kind() == ExprKind::Point && e->attributes().point == PointOp::CheckedIndex && e->input(0) == in) {
      const ScalarConst extent = e->input(1)->constant();
      const int64_t* count = std::get_if<int64_t>(&extent);
      limit = count != nullptr ? std::min(limit, static_cast<double>(*count)) : limit;
    }
    if (!hasIndex(*e) || e->input(indexOf(*e)) != in) {
      continue;
    }
    const Val* table = e->input(tableOf(*e));
    const int64_t dim = e->attributes().dim;
    if (const int64_t i = positionIn(fusion.inputs(), table); i < std::ssize(fusion.inputs())) {
      limit = std::min(limit, static_cast<double>(shapes[i][dim]));
    }
    if (IntExpr extent = table->asTensor()->shape()[dim]; extent.isConst()) {
      limit = std::min(limit, static_cast<double>(extent.constValue()));
    }
  }
  return std::max(limit, 1.0);
}

}  // namespace

std::unique_ptr<Fusion> loadProgram(const ProgramOptions& options) {
  return readProgram(readRegularFile("command line", options.file, kMostTextBytes), options.file);
}

std::unique_ptr<Fusion> loadGlobalProgram(const ProgramOptions& options) {
  std::unique_ptr<Fusion> fusion = loadProgram(options);
  for (const Expr* e : fusion->exprs(ExprSet::All)) {
    std::string sign = e->kind() == ExprKind::Communicate ? "a collective" : "";
    for (const std::string& symbol : symbolsOf(*e)) {
      if (symbol.starts_with("coord.")) {
        sign = "the symbol " + symbol;
      }
    }
    check(sign.empty(),
          "[command line] {} is the local program of one rank: {} has {}; give the global program, as written or "
          "planned",
          options.file, e->output()->toString(), sign);
  }
  return fusion;
}

MeshSizes meshSizes(const ProgramOptions& options) {
  MeshSizes sizes;
  for (const auto& [name, value] : assignments(options.mesh, "--mesh", "a mesh axis and its size, such as tp=4")) {
    sizes[name] = numberOf<int64_t>(value, name);
  }
  return sizes;
}

std::vector<DeviceMesh::Axis> meshAxes(const ProgramOptions& options) {
  const MeshSizes sizes = meshSizes(options);
  return mapped(options.mesh, [&](const std::string& text) {
    const std::string name = text.substr(0, text.find('='));
    return DeviceMesh::Axis(name, sizes.at(name));
  });
}

std::map<std::string, int64_t> symbolSizes(const Fusion& fusion, const ProgramOptions& options) {
  return givenSymbols(fusion, options, {}, {});
}

std::unique_ptr<Fusion> loadSizedProgram(const ProgramOptions& options, std::optional<int64_t> ranks,
                                         std::vector<std::string>* open) {
  std::unique_ptr<Fusion> fusion = loadGlobalProgram(options);
  const MeshSizes sizes = meshSizes(options);
  const std::vector<std::string> axes = openAxes(*fusion);
  if (open != nullptr) {
    *open = axes;
  }
  if (axes.empty()) {
    return sizes.empty() ? std::move(fusion) : specialize(*fusion, sizes);
  }
  for (const std::string& axis : axes) {
    check(
        ranks || sizes.contains(axis),
        "[command line] mesh axis {} of {} has no size; give it: --mesh {}=4, or --ranks if only one axis has no size",
        axis, options.file, axis);
  }
  SymbolicProgram program(std::move(fusion));
  return (ranks ? program.forRanks(*ranks, sizes) : program.at(sizes))->clone();
}

std::vector<std::vector<int64_t>> inputShapes(const Fusion& fusion, const ProgramOptions& options) {
  Assignments given = givenInputs(fusion, options);
  std::map<int64_t, Tensor> files = givenFiles(fusion, given);
  return shapesOf(fusion, givenSymbols(fusion, options, files, given), files);
}

std::vector<Argument> inputValues(const Fusion& fusion, const ProgramOptions& options) {
  Assignments given = givenInputs(fusion, options);
  std::map<int64_t, Tensor> files = givenFiles(fusion, given);
  std::vector<std::vector<int64_t>> shapes = shapesOf(fusion, givenSymbols(fusion, options, files, given), files);
  return mapped(indices(fusion.inputs()), [&](int64_t i) -> Argument {
    const Val* in = fusion.inputs()[i];
    const uint64_t seed = static_cast<uint64_t>(options.seed) * 1000003 + static_cast<uint64_t>(i);
    if (!in->isTensor()) {
      const std::optional<std::string> text = givenValue(given, in);
      check(text.has_value() || !isIntegral(in->dtype()),
            "[command line] the integer {} has no value; give --input S{}=...", in->toString(), in->id());
      return text                            ? scalarOf(in, *text)
             : in->dtype() == DataType::Bool ? Argument(true)
                                             : Argument(randomTensor({1}, DataType::Double, seed).item());
    }
    if (const auto file = files.find(in->id()); file != files.end()) {
      return file->second;
    }
    if (isFloatingPoint(in->dtype())) {
      return randomTensor(shapes[i], in->dtype(), seed);
    }
    const double limit = in->dtype() == DataType::Bool ? 2 : integerLimit(fusion, in, shapes);
    return randomTensor(shapes[i], in->dtype(), seed, 0, limit);
  });
}

std::map<size_t, Tensor> expectedOutputs(const Fusion& fusion, const std::vector<std::string>& texts) {
  std::map<size_t, Tensor> expected;
  for (const auto& [text, file] : assignments(texts, "--expect", "an output and a file, such as T5=y.npy")) {
    const std::vector<Val*>& outputs = fusion.outputs();
    const int64_t i = positionOf(outputs, fusion.outputNames(), text);
    if (i == std::ssize(outputs)) {
      const auto known = [&](int64_t k) { return outputText(fusion, k); };
      throwUserError(fmt::format("[command line] --expect {}={}: the program has no output {}{}", text, file, text,
                                 suggestion(text, outputs, fusion.outputNames(), known)));
    }
    Tensor t = readNpy(file);
    check(t.dtype() == outputs[i]->dtype(),
          "[command line] output {} has type {}, the file {} holds {}; save it with that type", text,
          name(outputs[i]->dtype()), file, name(t.dtype()));
    expected[i] = std::move(t);
  }
  return expected;
}

bool hasMesh(const Fusion& fusion) {
  return std::ranges::any_of(fusion.tensors(ExprSet::All), &TensorView::hasDeviceMesh);
}

int64_t rankCount(const Fusion& fusion, std::optional<int64_t> asked) {
  int64_t needed = 0;
  for (const TensorView* tv : fusion.tensors(ExprSet::All)) {
    const DeviceMesh& mesh = tv->getDeviceMesh();
    if (mesh.empty()) {
      continue;
    }
    check(!mesh.devices().empty(),
          "[command line] mesh {} of {} has no ranks; write its sizes and ranks into the program", mesh.toString(),
          tv->toString());
    needed = std::max(needed, std::ranges::max(mesh.devices()) + 1);
  }
  if (needed == 0) {
    return asked.value_or(1);
  }
  check(!asked || *asked >= needed,
        "[command line] the meshes of the program have ranks 0 to {}, got --ranks {}; give --ranks {}", needed - 1,
        asked.value_or(0), needed);
  return asked.value_or(needed);
}

int64_t virtualRankCount(const Fusion& fusion, std::optional<int64_t> asked) {
  auto checked = [&](int64_t ranks) {
    check(ranks >= 1 && ranks <= kMaxVirtualRanks,
          "[command line] {} is {}, expected 1 to {}: each rank is a thread of this process; for more ranks, start "
          "processes with mpirun and --mpi",
          asked ? "--ranks" : "the number of ranks of the program's meshes", ranks, kMaxVirtualRanks);
    return ranks;
  };
  checked(asked.value_or(1));
  return checked(rankCount(fusion, asked));
}

}  // namespace meshfuse
