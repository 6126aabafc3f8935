// Text -> Fusion: see ir/text.h and ir/read_program.h.
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <set>

#include "base/error.h"
#include "digits/part_sizes.h"
#include "ir/attribute_text.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "ir/read_program.h"
#include "ir/root_text.h"
#include "ir/text.h"

namespace meshfuse {

namespace {

constexpr int kMostIds = 1 << 22;

bool isWordStart(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool isWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// T12 or S12: the number. Nothing else.
std::optional<int> valueNumber(std::string_view text) {
  int number = 0;
  if (text.size() < 2 || (text[0] != 'T' && text[0] != 'S') || std::isdigit(static_cast<unsigned char>(text[1])) == 0) {
    return std::nullopt;
  }
  auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional<int>(number) : std::nullopt;
}

std::optional<double> floatingLiteral(std::string_view text) {
  if (text == "inf" || text == "-inf" || text == "nan") {
    return text == "nan" ? std::numeric_limits<double>::quiet_NaN()
                         : (text[0] == '-' ? -1 : 1) * std::numeric_limits<double>::infinity();
  }
  size_t first = text.starts_with('-') ? 1 : 0;
  double value = 0;
  if (first >= text.size() || std::isdigit(static_cast<unsigned char>(text[first])) == 0 ||
      text.find_first_of(".e") == std::string_view::npos) {
    return std::nullopt;
  }
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional<double>(value) : std::nullopt;
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
  bool rootGiven = false;
  std::string_view root;  // inside of root[...]
};

}  // namespace

class FusionParser {
 public:
  FusionParser(std::string_view text, std::string_view file)
      : text_(text), file_(file), fusion_(std::make_unique<Fusion>()) {}

  std::unique_ptr<Fusion> parse() {
    reserveIds();
    guarded([&] {
      expectWord("fusion");
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
    });
    fusion_->nextSymbol_ = nextSymbol_;
    fusion_->nextOrdinal_ = nextOrdinal_;
    return std::move(fusion_);
  }

  // Checks the result of parse().
  void checkProgram(const Fusion& fusion) {
    checkSymbols(fusion);
    std::string list;
    for (const std::string& violation : verify(fusion)) {
      list += fmt::format("{}{}{}", list.empty() ? "" : "\n", placeOfValue(violation), violation);
    }
    check(list.empty(), "{}", list);
  }

 private:
  // -- what is wrong with a program that was read ------------------------------------------------------------------------------

  // Sizes depend on the sizes of inputs, integer inputs, and symbolic mesh axes; coord.x is the coordinate of a rank.
  void checkSymbols(const Fusion& fusion) {
    std::set<std::string> known;
    auto add = [&](const IntExpr& e) {
      for (const std::string& symbol : e.symbols()) {
        known.insert(symbol);
      }
    };
    for (const Val* in : fusion.inputs()) {
      if (in->isTensor()) {
        for (const IntExpr& extent : in->asTensor()->shape()) {
          add(extent);
        }
      } else if (in->dtype() == DataType::Int) {
        add(in->intExpr());
      }
    }
    for (const DeviceMesh& mesh : fusion.meshes()) {
      for (int a = 0; a < mesh.numAxes(); a++) {
        add(mesh.axisSize(a));
      }
    }
    for (const auto& [symbol, at] : symbolPlaces_) {
      if (symbol.find('.') == std::string::npos && !known.contains(symbol)) {
        failAt(at, fmt::format("the symbol {} is in the extents of no input; there are: {}", symbol,
                               known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))));
      }
    }
  }

  // "FILE:LINE:COLUMN: " of the line of the first value that a violation names.
  std::string placeOfValue(std::string_view violation) const {
    for (size_t k = 0; k < violation.size(); k++) {
      if (!isWordStart(violation[k]) || (k > 0 && isWord(violation[k - 1]))) {
        continue;
      }
      const size_t end =
          std::find_if_not(violation.begin() + static_cast<int64_t>(k), violation.end(), isWord) - violation.begin();
      const std::optional<int> number = valueNumber(violation.substr(k, end - k));
      if (auto it = number ? valuePlaces_.find(*number) : valuePlaces_.end(); it != valuePlaces_.end()) {
        return placeOf(it->second) + ": ";
      }
    }
    return fmt::format("{}: ", file_);
  }

  // -- cursor ---------------------------------------------------------------------------------------------------------------

  std::string placeOf(size_t at) const {
    size_t lineNumber = 1;
    size_t lineStart = 0;
    for (size_t k = 0; k < std::min(at, text_.size()); k++) {
      if (text_[k] == '\n') {
        lineNumber++;
        lineStart = k + 1;
      }
    }
    return fmt::format("{}:{}:{}", file_, lineNumber, at - lineStart + 1);
  }
  [[noreturn]] void failAt(size_t at, std::string_view message) {
    located_ = true;
    throwUserError(fmt::format("{}: {}", placeOf(at), message));
  }
  [[noreturn]] void fail(std::string_view message) { failAt(at_, message); }

  // Errors thrown in `body` get the position `start_`, where the current part of the text begins.
  template <class Body>
  void guarded(Body body) {
    try {
      body();
    } catch (const Error& e) {
      if (located_) {
        throw;
      }
      failAt(start_, e.what());
    }
  }

  void skip() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') {
          at_++;
        }
      } else if (std::isspace(static_cast<unsigned char>(text_[at_])) != 0) {
        at_++;
      } else {
        break;
      }
    }
    start_ = at_;
  }
  bool atEnd() {
    skip();
    return at_ == text_.size();
  }
  bool peek(char c) {
    skip();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool accept(char c) {
    bool found = peek(c);
    at_ += found ? 1 : 0;
    return found;
  }
  std::string_view shown() {
    skip();
    size_t end = at_;
    while (end < text_.size() && end < at_ + 20 && text_[end] != '\n') {
      end++;
    }
    return end == at_ ? "the end" : text_.substr(at_, end - at_);
  }
  void expect(char c) {
    if (!accept(c)) {
      fail(fmt::format("expected '{}', got '{}'", c, shown()));
    }
  }
  std::string_view peekWord() {
    skip();
    size_t end = at_;
    if (end < text_.size() && isWordStart(text_[end])) {
      while (end < text_.size() && isWord(text_[end])) {
        end++;
      }
    }
    return text_.substr(at_, end - at_);
  }
  std::string_view word(std::string_view what) {
    std::string_view w = peekWord();
    if (w.empty()) {
      fail(fmt::format("expected {}, got '{}'", what, shown()));
    }
    at_ += w.size();
    return w;
  }
  void expectWord(std::string_view expected) {
    if (peekWord() != expected) {
      fail(fmt::format("expected '{}', got '{}'", expected, shown()));
    }
    at_ += expected.size();
  }
  // The text up to the matching closing bracket; the cursor is then after it.
  std::string_view inside(char close) {
    skip();
    size_t begin = at_;
    int depth = 0;
    for (; at_ < text_.size() && text_[at_] != '\n'; at_++) {
      char c = text_[at_];
      if (depth == 0 && c == close) {
        at_++;
        return text_.substr(begin, at_ - 1 - begin);
      }
      depth += c == '(' || c == '[' || c == '{' ? 1 : 0;
      depth -= c == ')' || c == ']' || c == '}' ? 1 : 0;
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
      noteSymbol(name);
      symbolPlaces_.try_emplace(std::string(name), name.data() - text_.data());
      auto it = facts_.find(std::string(name));
      return it == facts_.end() ? SymbolFacts{} : it->second;
    });
  }

  void noteSymbol(std::string_view name) {
    int number = 0;
    if (name.size() >= 2 && name[0] == 'i' && std::isdigit(static_cast<unsigned char>(name[1])) != 0) {
      auto [end, error] = std::from_chars(name.data() + 1, name.data() + name.size(), number);
      if (error == std::errc() && end == name.data() + name.size() && number < INT32_MAX) {
        nextSymbol_ = std::max(nextSymbol_, number + 1);
      }
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
    if (text.size() >= 3 && text[1] == '{' && text.back() == '}') {
      if (std::optional<IterType> type = typeOfLetter(text[0])) {
        return markedDim(*type, text.substr(2, text.size() - 3));
      }
    }
    return {expression(text), IterType::Iteration};
  }
  std::vector<Dim> dimList(std::string_view text) {
    std::vector<Dim> dims;
    for (std::string_view part : splitAtCommas(text)) {
      dims.push_back(dim(part));
    }
    return dims;
  }

  // -- lines ------------------------------------------------------------------------------------------------------------------

  // Values get the ids of their names; constants, which have no name, come after them.
  void reserveIds() {
    int last = -1;
    for (size_t k = 0; k < text_.size(); k++) {
      bool lineStart = k == 0 || text_[k - 1] == '\n';
      if (!lineStart) {
        continue;
      }
      size_t begin = text_.find_first_not_of(" \t", k);
      size_t equals = text_.find('=', k);
      size_t end = text_.find('\n', k);
      if (begin == std::string_view::npos || equals == std::string_view::npos || equals > end) {
        continue;
      }
      for (std::string_view part : splitAtCommas(text_.substr(begin, equals - begin))) {
        if (std::optional<int> number = valueNumber(part)) {
          if (*number >= kMostIds) {
            failAt(begin, fmt::format("value number {} is too large; numbers are below {}", *number, kMostIds));
          }
          last = std::max(last, *number);
        }
      }
    }
    fusion_->vals_.resize(last + 1);
    fusion_->uses_.resize(last + 1);
  }

  void line() {
    std::string_view first = peekWord();
    if (first == "mesh") {
      meshLine();
    } else if (first == "planner") {
      plannerLine();
    } else if (first == "symbol") {
      symbolLine();
    } else if (first == "output") {
      at_ += first.size();
      fusion_->addOutput(value(word("a value")));
    } else if (first == "alias") {
      at_ += first.size();
      Val* out = value(word("a value"));
      expect('-');
      expect('>');
      Val* in = value(word("a value"));
      fusion_->aliasOutputToInput(out, in);
    } else if (valueNumber(first)) {
      valueLine();
    } else {
      fail(fmt::format(
          "expected a line that begins with mesh, planner, symbol, output, alias, or a value such as T0; got '{}'",
          shown()));
    }
  }

  void meshLine() {
    expectWord("mesh");
    std::string_view number = word("a mesh such as M0");
    if (number != fmt::format("M{}", fusion_->meshes().size())) {
      failAt(number.data() - text_.data(), fmt::format("mesh {} is defined where M{} is expected; number meshes from 0",
                                                       number, fusion_->meshes().size()));
    }
    std::vector<DeviceMesh::Axis> axes;
    MeshSizes hints;
    for (std::string_view part : splitAtCommas(bracketed('{', '}'))) {
      standAt(part);
      size_t colon = part.find(':');
      check(colon != std::string_view::npos, "expected an axis as name: size, got '{}'", part);
      std::string name(trimmed(part.substr(0, colon)));
      std::string_view size = trimmed(part.substr(colon + 1));
      const std::string_view hint = size.starts_with(name) ? trimmed(size.substr(name.size())) : std::string_view();
      if (size == name || hint.starts_with("hint ")) {
        axes.emplace_back(name);
        facts_.emplace(name, SymbolFacts{.lower = 1});
        if (!hint.empty()) {
          hints[name] = parseInteger(trimmed(hint.substr(5)));
        }
      } else {
        axes.emplace_back(name, parseInteger(size));
      }
    }
    std::vector<int64_t> ids;
    for (std::string_view part : splitAtCommas(bracketed('[', ']'))) {
      standAt(part);
      ids.push_back(parseInteger(part));
    }
    standAt(number);
    DeviceMesh mesh = DeviceMesh::create(std::move(axes), std::move(ids)).hint(hints);
    check(std::find(fusion_->meshes_.begin(), fusion_->meshes_.end(), mesh) == fusion_->meshes_.end(),
          "mesh {} is equal to a mesh above; define each mesh once", number);
    fusion_->meshes_.push_back(mesh);
  }

  void plannerLine() {
    expectWord("planner");
    PlannerSettings settings = fusion_->planner();
    for (std::string_view part : splitAtCommas(bracketed('{', '}'))) {
      standAt(part);
      readPlannerSetting(part, settings);
    }
    fusion_->setPlanner(std::move(settings));
  }

  void symbolLine() {
    expectWord("symbol");
    std::string name(word("a symbol"));
    while (at_ < text_.size() && text_[at_] == '.') {  // coord.x
      at_++;
      name += fmt::format(".{}", word("the symbol's second part"));
    }
    noteSymbol(name);
    SymbolFacts facts;
    for (std::string_view part : splitAtCommas(bracketed('{', '}'))) {
      standAt(part);
      size_t colon = std::min(part.find(':'), part.size());
      std::string_view key = trimmed(part.substr(0, colon));
      std::string_view number = trimmed(part.substr(std::min(colon + 1, part.size())));
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
    std::optional<int> number = valueNumber(name);
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
      std::optional<int> number = valueNumber(name);
      standAt(name);
      check(number.has_value(), "expected a value such as T0 or S0, got '{}'", name);
      check(*number < kMostIds, "value number {} is too large; numbers are below {}", *number, kMostIds);
      check(*number >= fusion_->numVals() || fusion_->val(*number) == nullptr,
            "value number {} is defined twice; each value has one line", *number);
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
          fusion_->addInput(v);
        }
      }
      return;
    }
    standAt(op);
    std::optional<PointOp> point = parsePointOp(op);
    std::optional<ExprKind> kind = point ? ExprKind::Point : parseExprKind(op);
    check(kind && (point || *kind != ExprKind::Point), "there is no op '{}'", op);
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
      size_t equals = part.find('=');
      if (equals == std::string_view::npos) {
        operands.push_back(operand(part));
        continue;
      }
      auto read = [this](std::string_view e) { return expression(e); };
      parseAttribute(kind, trimmed(part.substr(0, equals)), trimmed(part.substr(equals + 1)), read, fusion_->meshes(),
                     attributes);
    }
    return operands;
  }

  // -- results ------------------------------------------------------------------------------------------------------------------

  Val* result(std::string_view name, const ExprKind* kind, const std::vector<Val*>& operands,
              const ExprAttributes& attributes) {
    std::string_view typeName = word("a type");
    standAt(typeName);
    std::optional<DataType> dtype = parseDataType(typeName);
    check(dtype.has_value(), "there is no type '{}'", typeName);
    int number = *valueNumber(name);
    if (name[0] == 'S') {
      fusion_->nextValId_ = number;
      Val* v = fusion_->take(std::make_unique<Val>(), *dtype);
      if (*dtype == DataType::Int) {
        size_t end = std::min(text_.find('\n', at_), text_.size());
        std::string_view text = trimmed(text_.substr(at_, end - at_));
        at_ = end;
        v->intExpr_ = expression(text);
        fusion_->scalars_["Int " + v->intExpr_.toString()] = v;
      }
      return v;
    }
    TensorText t{.dtype = *dtype, .logical = {}, .rootGiven = false, .root = {}};
    t.logical = dimList(bracketed('[', ']'));
    if (peekWord() == "root") {
      at_ += 4;
      t.rootGiven = true;
      t.root = trimmed(bracketed('[', ']'));
    }
    standAt(typeName);
    TensorView* tensor = makeTensor(number, t, kind, operands, attributes);
    while (suffix(tensor)) {
    }
    return tensor;
  }

  TensorView* makeTensor(int number, const TensorText& t, const ExprKind* kind, const std::vector<Val*>& operands,
                         const ExprAttributes& attributes) {
    fusion_->nextValId_ = number;
    bool implied = !t.rootGiven && kind != nullptr && impliesRoot(*kind);
    if (t.root == "logical" || (!t.rootGiven && !implied)) {
      return fusion_->tensor(t.dtype, t.logical);
    }
    std::vector<Dim> root;
    std::string_view steps;
    if (implied) {
      check(!operands.empty() && operands[0]->isTensor(), "{} needs a tensor as first operand", ruleOf(*kind).name);
      root = dimsOf(operands[0]->asTensor());
    } else {
      size_t semicolon = t.root.find(';');
      standAt(t.root);
      check(semicolon != std::string_view::npos, "expected root[dims; steps], got root[{}]", t.root);
      root = dimList(trimmed(t.root.substr(0, semicolon)));
      steps = trimmed(t.root.substr(semicolon + 1));
    }
    const RootReader reader{fusion_.get(), [this](std::string_view text) { return expression(text); },
                            [this](std::string_view text) { standAt(text); }};
    return fusion_->tensorFromRoot(t.dtype, root, [&](Fusion& fusion, const std::vector<IterDomain*>& ids) {
      std::vector<IterDomain*> dims = implied ? connectImplied(fusion, *kind, attributes, ids, t.logical)
                                              : applyRootSteps(steps, ids, t.logical, reader);
      checkLogical(dims, t.logical);
      for (size_t k = 0; k < dims.size(); k++) {
        dims[k]->iterType_ = t.logical[k].type;
        dims[k]->combine_ = t.logical[k].combine;
      }
      return dims;
    });
  }

  void checkLogical(const std::vector<IterDomain*>& dims, const std::vector<Dim>& logical) {
    std::vector<IntExpr> derived;
    std::vector<IntExpr> given;
    std::ranges::transform(dims, std::back_inserter(derived), &IterDomain::extent);
    std::ranges::transform(logical, std::back_inserter(given), &Dim::extent);
    check(derived == given, "the op and the root domain give the shape {}, the line says {}", toString(derived),
          toString(given));
  }

  // One of contiguity[], alloc[], mesh, pinned, a loop transform, loop[]; false if none follows.
  bool suffix(TensorView* t) {
    size_t end = std::min(text_.find('\n', at_), text_.size());
    std::string_view w = peekWord();
    size_t wordAt = at_;
    if (at_ >= end) {
      return false;  // the next line's
    }
    if (w == "contiguity" || w == "alloc" || w == "reorder" || w == "loop") {
      at_ += w.size();
      std::string_view list = bracketed('[', ']');
      start_ = wordAt;
      std::string_view whole(list.data() - 1, list.size() + 2);
      if (w == "contiguity") {
        t->setContiguity(parseFlags(whole));
      } else if (w == "alloc") {
        setAllocation(t, parseIntegers(whole));
      } else if (w == "reorder") {
        t->applyLoopTransforms({{.kind = LoopTransform::Kind::Reorder, .order = parseIntegers(whole)}});
      } else {
        checkLoop(t, list);
      }
      return true;
    }
    if (w == "mesh") {
      at_ += w.size();
      std::string_view number = word("a mesh such as M0");
      standAt(number);
      check(number.starts_with("M"), "expected a mesh such as M0, got '{}'", number);
      int64_t k = parseInteger(number.substr(1));
      check(k >= 0 && k < std::ssize(fusion_->meshes()), "mesh {} is not defined above", number);
      t->setDeviceMesh(fusion_->meshes()[k]);
      return true;
    }
    if (w == "pinned") {
      at_ += w.size();
      t->setUserSharded(true);
      return true;
    }
    if (w == "split" || w == "inner_split" || w == "outer_split" || w == "partition" || w == "merge" ||
        w == "parallelize") {
      at_ += w.size();
      std::vector<std::string_view> arguments = splitAtCommas(bracketed('(', ')'));
      start_ = wordAt;
      loopTransform(t, w, arguments);
      return true;
    }
    return false;
  }

  void loopTransform(TensorView* t, std::string_view name, const std::vector<std::string_view>& arguments) {
    size_t wanted = name == "merge" ? 1 : 2;
    check(arguments.size() == wanted || (name == "merge" && arguments.size() == 2), "{} has {} arguments; expected {}",
          name, arguments.size(), wanted);
    int axis = static_cast<int>(parseInteger(arguments[0]));
    if (name == "parallelize") {
      std::optional<ParallelType> type = parseParallelType(arguments[1]);
      check(type.has_value(), "there is no axis '{}'; there are DIDx, DIDy, DIDz, DID3, ..., Stream", arguments[1]);
      t->parallelize(axis, *type);
    } else if (name == "merge") {
      t->merge(axis, arguments.size() == 2 ? static_cast<int>(parseInteger(arguments[1])) : axis + 1);
    } else if (name == "partition") {
      size_t start = start_;
      std::vector<IntExpr> sizes = parseEach(arguments[1], [this](std::string_view part) { return expression(part); });
      start_ = start;
      t->partition(axis, sizes);
    } else {
      size_t start = start_;
      IntExpr factor = expression(arguments[1]);
      start_ = start;
      t->split(axis, factor, name != "outer_split");
    }
  }

  void setAllocation(TensorView* t, const std::vector<int>& order) {
    std::vector<IterDomain*> stored = t->noReductions();
    std::vector<IterDomain*> ids;
    for (int k : order) {
      check(k >= 0 && k < std::ssize(stored), "alloc names dim {} of {}", k, stored.size());
      ids.push_back(stored[k]);
    }
    t->setAllocationDomain(std::move(ids), t->contiguity());
  }

  void checkLoop(const TensorView* t, std::string_view text) {
    std::string loop = t->toString();
    loop = loop.substr(loop.find('[') + 1);
    loop.pop_back();
    check(withoutSpaces(loop) == withoutSpaces(text), "the transforms give loop[{}], the line says loop[{}]", loop,
          text);
  }

  std::string_view text_;
  std::string_view file_;
  std::unique_ptr<Fusion> fusion_;
  std::map<std::string, SymbolFacts> facts_;
  size_t at_ = 0;
  size_t start_ = 0;
  bool located_ = false;
  int nextSymbol_ = 0;
  int nextOrdinal_ = 0;
  std::map<int, size_t> valuePlaces_;                        // by number: where its line begins
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
