// Text -> Fusion: see ir/text.h and ir/read_program.h.
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <functional>
#include <map>
#include <ranges>
#include <set>

#include "base/error.h"
#include "base/ranges.h"
#include "digits/part_sizes.h"
#include "ir/attribute_text.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "ir/read_program.h"
#include "ir/root_text.h"
#include "ir/text.h"

namespace meshfuse {

namespace {

constexpr int64_t kMostIds = 1 << 22;

bool isSpace(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool isDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool isWordStart(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool isWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The number after one of these letters. Nothing else.
std::optional<int64_t> numberAfter(std::string_view letters, std::string_view text) {
  const bool fits = text.size() >= 2 && contains(letters, text[0]) && isDigit(text[1]);
  return fits ? numberIn<int64_t>(text.substr(1)) : std::nullopt;
}

// T12 or S12: the number.
std::optional<int64_t> valueNumber(std::string_view text) { return numberAfter("TS", text); }

std::optional<double> floatingLiteral(std::string_view text) {
  if (text == "inf" || text == "-inf" || text == "nan") {
    return text == "nan" ? std::numeric_limits<double>::quiet_NaN()
                         : (text[0] == '-' ? -1 : 1) * std::numeric_limits<double>::infinity();
  }
  const size_t first = text.starts_with('-') ? 1 : 0;
  const bool fits = first < text.size() && isDigit(text[first]) && text.find_first_of(".e") != std::string_view::npos;
  return fits ? numberIn<double>(text) : std::nullopt;
}

std::string withoutSpaces(std::string_view text) {
  std::string result(text);
  std::erase(result, ' ');
  return result;
}

std::optional<IterType> typeOfLetter(char c) {
  for (const IterType type : {IterType::Reduction, IterType::Broadcast, IterType::Partial, IterType::Symbolic}) {
    if (markOf(type)[0] == c) {
      return type;
    }
  }
  return std::nullopt;
}

// The text after `: Float[..]` of a tensor.
struct TensorText {
  DataType dtype = DataType::Float;
  std::vector<Dim> logical;
  std::optional<std::string_view> root;  // inside of root[...]
};

}  // namespace

class FusionParser {
 public:
  FusionParser(std::string_view text, std::string_view file)
      : text_(text), file_(file), fusion_(std::make_unique<Fusion>()) {}

  std::unique_ptr<Fusion> parse() {
    reserveIds();
    try {
      program();
    } catch (const Error& e) {
      if (located_) {
        throw;
      }
      failAt(start_, e.what());
    }
    fusion_->nextSymbol_ = nextSymbol_;
    fusion_->nextOrdinal_ = nextOrdinal_;
    return std::move(fusion_);
  }

  // Checks the result of parse().
  void checkProgram(const Fusion& fusion) {
    checkSymbols(fusion);
    const std::string list =
        joined(verify(fusion), "\n", [&](const std::string& violation) { return placeOfValue(violation) + violation; });
    check(list.empty(), "{}", list);
  }

 private:
  // -- what is wrong with a program that was read ------------------------------------------------------------------------------

  // Expressions are of the sizes of inputs, of integers that are given or computed, and of symbolic mesh axes; coord.x is the coordinate
  // of a rank.
  void checkSymbols(const Fusion& fusion) {
    std::set<std::string> known;
    auto add = [&](const IntExpr& e) { std::ranges::move(e.symbols(), std::inserter(known, known.end())); };
    for (const Val* in : fusion.inputs()) {
      if (in->isTensor()) {
        std::ranges::for_each(in->asTensor()->shape(), add);
      } else if (in->dtype() == DataType::Int) {
        add(in->intExpr());
      }
    }
    for (const Expr* e : fusion.exprs(ExprSet::All)) {
      for (const Val* out : e->outputs()) {
        if (!out->isTensor() && out->dtype() == DataType::Int) {
          add(out->intExpr());
        }
      }
    }
    for (const DeviceMesh& mesh : fusion.meshes()) {
      for (int64_t a = 0; a < mesh.numAxes(); a++) {
        add(mesh.axisSize(a));
      }
    }
    for (const auto& [symbol, at] : symbolPlaces_) {
      if (symbol.find('.') == std::string::npos && !known.contains(symbol)) {
        failAt(at, fmt::format("the symbol {} is in the extents of no input; there are: {}", symbol,
                               known.empty() ? "none" : joined(known, ", ")));
      }
    }
  }

  // "FILE:LINE:COLUMN: " of the line of the first value that a violation names.
  std::string placeOfValue(std::string_view violation) const {
    for (int64_t k = 0; k < std::ssize(violation); k++) {
      if (!isWordStart(violation[k]) || (k > 0 && isWord(violation[k - 1]))) {
        continue;
      }
      const std::optional<int64_t> number = valueNumber(wordIn(violation, k));
      if (auto it = number ? valuePlaces_.find(*number) : valuePlaces_.end(); it != valuePlaces_.end()) {
        return placeOf(it->second) + ": ";
      }
    }
    return fmt::format("{}: ", file_);
  }

  // -- cursor ---------------------------------------------------------------------------------------------------------------

  std::string placeOf(size_t at) const {
    const std::string_view before = text_.substr(0, at);
    const size_t lineStart = before.rfind('\n') + 1;  // 0 in the first line
    return fmt::format("{}:{}:{}", file_, std::ranges::count(before, '\n') + 1, at - lineStart + 1);
  }
  [[noreturn]] void failAt(size_t at, std::string_view message) {
    located_ = true;
    throwUserError(fmt::format("{}: {}", placeOf(at), message));
  }
  [[noreturn]] void fail(std::string_view message) { failAt(at_, message); }

  size_t lineEnd() const { return std::min(text_.find('\n', at_), text_.size()); }
  void skip() {
    while (at_ < text_.size() && (text_[at_] == '#' || isSpace(text_[at_]))) {
      at_ = text_[at_] == '#' ? lineEnd() : at_ + 1;
    }
    start_ = at_;
  }
  bool atEnd() {
    skip();
    return at_ == text_.size();
  }
  bool accept(char c) {
    const bool found = !atEnd() && text_[at_] == c;
    at_ += found ? 1 : 0;
    return found;
  }
  std::string_view shown() {
    skip();
    const std::string_view rest = text_.substr(at_, std::min<size_t>(lineEnd() - at_, 20));
    return rest.empty() ? "the end" : rest;
  }
  void expect(char c) {
    if (!accept(c)) {
      fail(fmt::format("expected '{}', got '{}'", c, shown()));
    }
  }
  // The word that begins at a position of `text`; "" if none does.
  static std::string_view wordIn(std::string_view text, size_t at) {
    const std::string_view rest = text.substr(at);
    const bool isOne = !rest.empty() && isWordStart(rest[0]);
    return {rest.begin(), isOne ? std::ranges::find_if_not(rest, isWord) : rest.begin()};
  }
  std::string_view peekWord() {
    skip();
    return wordIn(text_, at_);
  }
  bool acceptWord(std::string_view expected) {
    const bool found = peekWord() == expected;
    at_ += found ? expected.size() : 0;
    return found;
  }
  std::string_view word(std::string_view what) {
    std::string_view w = peekWord();
    if (w.empty()) {
      fail(fmt::format("expected {}, got '{}'", what, shown()));
    }
    at_ += w.size();
    return w;
  }
  // The text up to the matching closing bracket; the cursor is then after it.
  std::string_view inside(char close) {
    skip();
    size_t begin = at_;
    int64_t depth = 0;
    for (; at_ < text_.size() && text_[at_] != '\n'; at_++) {
      char c = text_[at_];
      if (depth == 0 && c == close) {
        at_++;
        return text_.substr(begin, at_ - 1 - begin);
      }
      depth += nesting(c);
    }
    failAt(begin, fmt::format("no '{}' closes this bracket on its line", close));
  }
  std::string_view bracketed(char open, char close) {
    expect(open);
    return inside(close);
  }

  // The position of a part of the text, for errors.
  void standAt(std::string_view part) { start_ = static_cast<size_t>(part.data() - text_.data()); }

  // -- expressions ------------------------------------------------------------------------------------------------------------

  IntExpr expression(std::string_view text) {
    standAt(text);
    return parseIntExpr(text, [this](std::string_view name) {
      check(!valueNumber(name), "{} names a value, expected a symbol, such as i0", name);
      noteSymbol(name);
      symbolPlaces_.try_emplace(std::string(name), name.data() - text_.data());
      auto it = facts_.find(std::string(name));
      return it == facts_.end() ? SymbolFacts{} : it->second;
    });
  }

  void noteSymbol(std::string_view name) {
    if (const std::optional<int64_t> number = numberAfter("i", name); number && *number < INT32_MAX) {
      nextSymbol_ = std::max(nextSymbol_, *number + 1);
    }
  }

  // The text in the braces: "16", for a Partial dim also "2, max".
  Dim markedDim(IterType type, std::string_view text) {
    const std::vector<std::string_view> parts = splitAtCommas(text);
    const size_t most = type == IterType::Partial ? 2 : 1;
    standAt(text);
    check(!parts.empty() && parts.size() <= most, "'{}' in the braces of a dim; expected an extent{}", text,
          most == 2 ? " and, if it is not sum, the op that combines the contributions" : "");
    const ReduceOp combine = parts.size() == 2 ? parseReduceOp(parts[1]) : ReduceOp::Sum;
    return {expression(parts[0]), type, combine};
  }
  Dim dim(std::string_view text) {
    const bool isMarked = text.size() >= 3 && text[1] == '{' && text.back() == '}';
    const std::optional<IterType> type = isMarked ? typeOfLetter(text[0]) : std::nullopt;
    return type ? markedDim(*type, text.substr(2, text.size() - 3)) : Dim{expression(text)};
  }
  std::vector<Dim> dimList(std::string_view text) {
    return mapped(splitAtCommas(text), [this](std::string_view part) { return dim(part); });
  }

  // -- lines ------------------------------------------------------------------------------------------------------------------

  // Values get the ids of their names; constants, which have no name, come after them.
  void reserveIds() {
    int64_t last = -1;
    for (const auto characters : std::views::split(text_, '\n')) {
      const std::string_view line(characters.begin(), characters.end());
      const size_t equals = line.find('=');
      if (equals == std::string_view::npos) {
        continue;
      }
      const std::string_view names = trimmed(line.substr(0, equals));
      for (std::string_view part : splitAtCommas(names)) {
        if (std::optional<int64_t> number = valueNumber(part)) {
          if (*number >= kMostIds) {
            failAt(names.data() - text_.data(),
                   fmt::format("value number {} is too large; expected a number below {}", *number, kMostIds));
          }
          last = std::max(last, *number);
        }
      }
    }
    fusion_->reserveId(last);
  }

  void program() {
    if (!acceptWord("fusion")) {
      fail(fmt::format("expected 'fusion', got '{}'", shown()));
    }
    expect('{');
    while (!accept('}')) {
      if (atEnd()) {
        fail("expected '}' at the end of the fusion");
      }
      line();
    }
    if (!atEnd()) {
      fail("unexpected text after the fusion's '}'");
    }
  }

  void line() {
    if (acceptWord("mesh")) {
      meshLine();
    } else if (acceptWord("planner")) {
      plannerLine();
    } else if (acceptWord("symbol")) {
      symbolLine();
    } else if (acceptWord("output")) {
      Val* out = value(word("a value"));
      fusion_->addOutput(out, acceptWord("as") ? outputName() : "");
    } else if (acceptWord("alias")) {
      Val* out = value(word("a value"));
      expect('-');
      expect('>');
      fusion_->aliasOutputToInput(out, value(word("a value")));
    } else if (valueNumber(peekWord())) {
      valueLine();
    } else {
      fail(fmt::format(
          "expected a line that begins with mesh, planner, symbol, output, alias, or a value such as T0; got '{}'",
          shown()));
    }
  }

  // The text up to the next space.
  std::string outputName() {
    skip();
    const size_t begin = at_;
    while (at_ < text_.size() && !isSpace(text_[at_])) {
      at_++;
    }
    if (begin == at_) {
      fail("expected a name");
    }
    return std::string(text_.substr(begin, at_ - begin));
  }

  void meshLine() {
    std::string_view number = word("a mesh such as M0");
    if (number != fmt::format("M{}", fusion_->meshes().size())) {
      failAt(number.data() - text_.data(), fmt::format("mesh {} is defined where M{} is expected; number meshes from 0",
                                                       number, fusion_->meshes().size()));
    }
    std::vector<DeviceMesh::Axis> axes;
    MeshSizes hints;
    for (std::string_view part : splitAtCommas(bracketed('{', '}'))) {
      standAt(part);
      check(contains(part, ':'), "expected an axis as name: size, got '{}'", part);
      const auto [nameText, size] = splitAt(':', part);
      const std::string name(nameText);
      const std::string_view hint = size.starts_with(name) ? trimmed(size.substr(name.size())) : std::string_view();
      if (size != name && !hint.starts_with("hint ")) {
        axes.emplace_back(name, parseInteger(size));
        continue;
      }
      axes.emplace_back(name);
      facts_.emplace(name, SymbolFacts{.lower = 1});
      if (!hint.empty()) {
        hints[name] = parseInteger(trimmed(hint.substr(5)));
      }
    }
    std::vector<int64_t> ids;
    for (std::string_view part : splitAtCommas(bracketed('[', ']'))) {
      standAt(part);
      ids.push_back(parseInteger(part));
    }
    standAt(number);
    DeviceMesh mesh = DeviceMesh::create(std::move(axes), std::move(ids)).hint(hints);
    check(!contains(fusion_->meshes_, mesh), "mesh {} is equal to a mesh above; define each mesh once", number);
    fusion_->meshes_.push_back(mesh);
  }

  void plannerLine() {
    PlannerSettings settings = fusion_->planner();
    for (std::string_view part : splitAtCommas(bracketed('{', '}'))) {
      standAt(part);
      readPlannerSetting(part, settings);
    }
    fusion_->setPlanner(std::move(settings));
  }

  void symbolLine() {
    std::string name(word("a symbol"));
    while (at_ < text_.size() && text_[at_] == '.') {  // coord.x, coord.x.1
      const size_t dot = at_++;
      while (at_ < text_.size() && isWord(text_[at_])) {
        at_++;
      }
      if (at_ == dot + 1) {
        fail(fmt::format("expected the next part of the symbol {} after the dot, got '{}'", name, shown()));
      }
      name += text_.substr(dot, at_ - dot);
    }
    noteSymbol(name);
    SymbolFacts facts;
    for (std::string_view part : splitAtCommas(bracketed('{', '}'))) {
      standAt(part);
      const auto [key, number] = splitAt(':', part);
      if (key == "lower") {
        facts.lower = number == "none" ? INT64_MIN : parseInteger(number);
      } else if (key == "upper") {
        facts.upper = parseInteger(number);
      } else if (key == "divisor") {
        facts.divisor = parseInteger(number);
        check(facts.divisor >= 1, "divisor {} of {}; expected at least 1", facts.divisor, name);
      } else {
        throwUserError(fmt::format("the facts of a symbol are lower, upper and divisor; got '{}'", key));
      }
    }
    check(facts.lower <= facts.upper, "symbol {} with lower: {}, upper: {}; expected an upper not below the lower",
          name, facts.lower, facts.upper);
    facts_[name] = facts;
  }

  Val* value(std::string_view name) {
    std::optional<int64_t> number = valueNumber(name);
    Val* v = number && *number < fusion_->numVals() ? fusion_->val(*number) : nullptr;
    if (v == nullptr || v->isTensor() != (name[0] == 'T')) {
      standAt(name);
      throwUserError(fmt::format("{} is not defined above; give it a line first", name));
    }
    return v;
  }

  Val* operand(std::string_view text) {
    standAt(text);
    if (valueNumber(text)) {
      return value(text);
    }
    if (text == "true" || text == "false") {
      return fusion_->scalar(text == "true");
    }
    if (std::optional<double> literal = floatingLiteral(text)) {
      return fusion_->scalar(*literal);
    }
    return fusion_->intScalar(expression(text));
  }

  void valueLine() {
    std::vector<std::string_view> names = {word("a value")};
    while (accept(',')) {
      names.push_back(word("a value"));
    }
    for (std::string_view name : names) {
      std::optional<int64_t> number = valueNumber(name);
      standAt(name);
      check(number.has_value(), "expected a value such as T0 or S0, got '{}'", name);
      check(*number < kMostIds, "value number {} is too large; expected a number below {}", *number, kMostIds);
      check(*number >= fusion_->numVals() || fusion_->val(*number) == nullptr,
            "value number {} is defined twice; give each value a number of its own", *number);
      valuePlaces_[*number] = start_;
    }
    expect('=');
    std::string_view op = word("an op");
    std::string_view arguments = bracketed('(', ')');
    if (op == "input" || op == "undefined") {
      for (std::string_view name : names) {
        expect(':');
        Val* v = result(name, nullptr, {}, {});
        if (op == "input") {
          standAt(name);
          fusion_->addInput(v, std::string(trimmed(arguments)));
        }
      }
      return;
    }
    standAt(op);
    std::optional<PointOp> point = parsePointOp(op);
    std::optional<ExprKind> kind = point ? ExprKind::Point : parseExprKind(op);
    check(kind && (point || *kind != ExprKind::Point),
          "there is no op '{}', expected a name such as add, reduce or matmul", op);
    ExprAttributes attributes;
    attributes.point = point.value_or(PointOp::Add);
    std::vector<Val*> operands = parseArguments(*kind, arguments, attributes);
    nextOrdinal_ = std::max(nextOrdinal_, *kind == ExprKind::Random ? attributes.ordinal + 1 : 0);
    std::vector<Val*> results;
    for (std::string_view name : names) {
      expect(':');
      results.push_back(result(name, &*kind, operands, attributes));
    }
    standAt(op);
    fusion_->addExpr(*kind, std::move(operands), std::move(results), std::move(attributes));
  }

  std::vector<Val*> parseArguments(ExprKind kind, std::string_view text, ExprAttributes& attributes) {
    std::vector<Val*> operands;
    for (std::string_view part : splitAtCommas(text)) {
      standAt(part);
      if (contains(part, '=')) {
        const auto [key, value] = splitAt('=', part);
        parseAttribute(kind, key, value, std::bind_front(&FusionParser::expression, this), fusion_->meshes(),
                       attributes);
      } else {
        operands.push_back(operand(part));
      }
    }
    return operands;
  }

  // -- results ------------------------------------------------------------------------------------------------------------------

  Val* result(std::string_view name, const ExprKind* kind, const std::vector<Val*>& operands,
              const ExprAttributes& attributes) {
    std::string_view typeName = word("a type");
    standAt(typeName);
    std::optional<DataType> dtype = parseDataType(typeName);
    check(dtype.has_value(), "there is no type '{}', expected one such as Float or Int", typeName);
    int64_t number = *valueNumber(name);
    if (name[0] == 'S') {
      fusion_->nextValId_ = number;
      Val* v = fusion_->take(std::make_unique<Val>(), *dtype);
      if (*dtype == DataType::Int) {
        const size_t begin = std::exchange(at_, lineEnd());
        v->intExpr_ = expression(trimmed(text_.substr(begin, at_ - begin)));
        fusion_->scalars_["Int " + v->intExpr_.toString()] = v;
      }
      return v;
    }
    TensorText t{.dtype = *dtype, .logical = dimList(bracketed('[', ']')), .root = {}};
    if (acceptWord("root")) {
      t.root = trimmed(bracketed('[', ']'));
    }
    standAt(typeName);
    TensorView* tensor = makeTensor(number, t, kind, operands, attributes);
    while (suffix(tensor)) {
    }
    return tensor;
  }

  TensorView* makeTensor(int64_t number, const TensorText& t, const ExprKind* kind, const std::vector<Val*>& operands,
                         const ExprAttributes& attributes) {
    fusion_->nextValId_ = number;
    const bool implied = !t.root && kind != nullptr && impliesRoot(*kind);
    if (t.root == "logical" || (!t.root && !implied)) {
      return fusion_->tensor(t.dtype, t.logical);
    }
    std::vector<Dim> root;
    std::string_view steps;
    if (implied) {
      check(!operands.empty() && operands[0]->isTensor(), "{} got no tensor as first operand, expected one",
            ruleOf(*kind).name);
      root = dimsOf(operands[0]->asTensor());
    } else {
      standAt(*t.root);
      check(contains(*t.root, ';'), "expected root[dims; steps], got root[{}]", *t.root);
      const auto parts = splitAt(';', *t.root);
      root = dimList(parts.first);
      steps = parts.second;
    }
    const RootReader reader{fusion_.get(), std::bind_front(&FusionParser::expression, this),
                            std::bind_front(&FusionParser::standAt, this)};
    return fusion_->tensorFromRoot(t.dtype, root, [&](Fusion& fusion, const std::vector<IterDomain*>& ids) {
      std::vector<IterDomain*> dims = implied ? connectImplied(fusion, *kind, attributes, ids, t.logical)
                                              : applyRootSteps(steps, ids, t.logical, reader);
      checkLogical(dims, t.logical);
      for (int64_t k = 0; k < std::ssize(dims); k++) {
        dims[k]->iterType_ = t.logical[k].type;
        dims[k]->combine_ = t.logical[k].combine;
      }
      return dims;
    });
  }

  void checkLogical(const std::vector<IterDomain*>& dims, const std::vector<Dim>& logical) {
    const std::vector<IntExpr> derived = mapped(dims, &IterDomain::extent);
    const std::vector<IntExpr> given = mapped(logical, &Dim::extent);
    check(derived == given, "the op and the root domain give the shape {}, the line says {}; make them equal",
          toString(derived), toString(given));
  }

  // One of contiguity[], alloc[], mesh, pinned, a loop transform, loop[]; false if none follows.
  bool suffix(TensorView* t) {
    const size_t end = lineEnd();
    const std::string_view w = peekWord();
    const size_t wordAt = at_;
    if (at_ >= end) {
      return false;  // the next line's
    }
    at_ += w.size();
    if (w == "contiguity" || w == "alloc" || w == "reorder" || w == "loop") {
      const std::string_view list = bracketed('[', ']');
      start_ = wordAt;
      const std::string_view whole(list.data() - 1, list.size() + 2);
      if (w == "contiguity") {
        t->setContiguity(parseFlags(whole));
      } else if (w == "alloc") {
        setAllocation(t, parseIntegers(whole));
      } else if (w == "reorder") {
        t->applyLoopTransforms({{.kind = LoopTransform::Kind::Reorder, .order = parseIntegers(whole)}});
      } else {
        checkLoop(t, list);
      }
    } else if (w == "mesh") {
      std::string_view number = word("a mesh such as M0");
      standAt(number);
      check(number.starts_with("M"), "expected a mesh such as M0, got '{}'", number);
      int64_t k = parseInteger(number.substr(1));
      check(k >= 0 && k < std::ssize(fusion_->meshes()), "mesh {} is not defined above; give it a line first", number);
      t->setDeviceMesh(fusion_->meshes()[k]);
    } else if (w == "pinned") {
      t->setUserSharded(true);
    } else if (w == "split" || w == "inner_split" || w == "outer_split" || w == "partition" || w == "merge" ||
               w == "parallelize") {
      std::vector<std::string_view> arguments = splitAtCommas(bracketed('(', ')'));
      start_ = wordAt;
      loopTransform(t, w, arguments);
    } else {
      at_ = wordAt;
      return false;
    }
    return true;
  }

  void loopTransform(TensorView* t, std::string_view name, const std::vector<std::string_view>& arguments) {
    size_t wanted = name == "merge" ? 1 : 2;
    check(arguments.size() == wanted || (name == "merge" && arguments.size() == 2), "{} has {} arguments; expected {}",
          name, arguments.size(), wanted);
    int64_t axis = parseInteger(arguments[0]);
    if (name == "parallelize") {
      std::optional<ParallelType> type = parseParallelType(arguments[1]);
      check(type.has_value(), "there is no axis '{}'; there are DIDx, DIDy, DIDz, DID3, ..., Stream", arguments[1]);
      t->parallelize(axis, *type);
    } else if (name == "merge") {
      const int64_t next = axis == INT64_MAX ? axis : axis + 1;  // merge refuses it
      t->merge(axis, arguments.size() == 2 ? parseInteger(arguments[1]) : next);
    } else {
      const auto read = [this, start = start_](std::string_view text) {
        IntExpr e = expression(text);
        start_ = start;
        return e;
      };
      if (name == "partition") {
        t->partition(axis, parseEach(arguments[1], read));
      } else {
        t->split(axis, read(arguments[1]), name != "outer_split");
      }
    }
  }

  void setAllocation(TensorView* t, const std::vector<int64_t>& order) {
    std::vector<IterDomain*> stored = t->noReductions();
    std::vector<IterDomain*> ids;
    for (int64_t k : order) {
      check(k >= 0 && k < std::ssize(stored), "alloc names dim {}, expected 0 to {}", k, std::ssize(stored) - 1);
      ids.push_back(stored[k]);
    }
    t->setAllocationDomain(std::move(ids), t->contiguity());
  }

  void checkLoop(const TensorView* t, std::string_view text) {
    const std::string loop = joined(t->getLoopDomain(), ", ", &IterDomain::toString);
    check(withoutSpaces(loop) == withoutSpaces(text),
          "the transforms give loop[{}], the line says loop[{}]; make them equal, or leave out loop[]", loop, text);
  }

  std::string_view text_;
  std::string_view file_;
  std::unique_ptr<Fusion> fusion_;
  std::map<std::string, SymbolFacts> facts_;
  size_t at_ = 0;
  size_t start_ = 0;
  bool located_ = false;
  int64_t nextSymbol_ = 0;
  int64_t nextOrdinal_ = 0;
  std::map<int64_t, size_t> valuePlaces_;                    // by number: where its line begins
  std::map<std::string, size_t, std::less<>> symbolPlaces_;  // first position of each symbol
};

std::unique_ptr<Fusion> parseFusion(std::string_view text, std::string_view file) {
  return FusionParser(text, file).parse();
}

std::unique_ptr<Fusion> readProgram(std::string_view text, std::string_view file) {
  FusionParser parser(text, file);
  std::unique_ptr<Fusion> fusion = parser.parse();
  parser.checkProgram(*fusion);
  return fusion;
}

}  // namespace meshfuse
