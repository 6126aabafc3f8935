// Elementwise values: evaluated inside the loops of whoever needs them.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "codegen/cuda/emitter.h"
#include "codegen/cuda/point_text.h"

namespace meshfuse::cuda {

using namespace tile;

namespace {

constexpr size_t kLongest = 80;  // characters of a value written into its consumer

bool isTrivial(const Value& v) { return v.kind == ValueKind::Const || v.kind == ValueKind::Scalar; }

}  // namespace

// In the order of their evaluation: operands come before users.
std::vector<ValueId> Emitter::inlineValues(std::span<const ValueId> wanted) const {
  std::set<ValueId> found;
  std::vector<ValueId> open(wanted.begin(), wanted.end());
  while (!open.empty()) {
    ValueId id = open.back();
    open.pop_back();
    if (id == kNone || s_.tiles.contains(id) || !found.insert(id).second) {
      continue;
    }
    const Value& v = value(id);
    invariant(v.kind != ValueKind::Load && v.kind != ValueKind::Reduce && v.kind != ValueKind::Convert && v.kind != ValueKind::Carry &&
                  v.kind != ValueKind::LoopResult,
              "[codegen cuda] kernel {} uses value {} where it is not defined", p_.name, id);
    open.insert(open.end(), v.operands.begin(), v.operands.end());
  }
  return {found.begin(), found.end()};
}

std::string Emitter::valueText(ValueId id, const std::map<ValueId, std::string>& known) {
  if (auto it = s_.tiles.find(id); it != s_.tiles.end()) {
    return element(it->second);
  }
  if (auto it = known.find(id); it != known.end()) {
    return it->second;
  }
  const Value& v = value(id);
  std::vector<std::string> operands;
  for (ValueId o : v.operands) {
    operands.push_back(valueText(o, known));
  }
  auto operandType = [&](size_t i) { return value(v.operands[i]).dtype; };
  switch (v.kind) {
    case ValueKind::Const:
      return isFloatingPoint(v.dtype) ? floatLiteral(v.constant, v.dtype, s_.uses) : integerLiteral(v.integer, v.dtype, s_.uses);
    case ValueKind::Scalar: return scalarNames_[static_cast<size_t>(v.param)];
    case ValueKind::Index: use("types"); return fmt::format("i64({})", text(geometry_.resolve(v.index[0].expr)));
    case ValueKind::Cast: return castText(operands[0], operandType(0), v.dtype, s_.uses);
    case ValueKind::Point:
      return pointText(v.op, operandType(v.operands.size() == 3 && v.op == PointOp::Where ? 1 : 0),
                       usage_.coarse[static_cast<size_t>(id)], operands, s_.uses);
    case ValueKind::Random:
      use("philox");
      return fmt::format("philox({}, {}, {}, {})", operands[0], operands[1], operands[2], v.param);
    case ValueKind::Load:
    case ValueKind::Reduce:
    case ValueKind::Carry:
    case ValueKind::LoopResult:
    case ValueKind::Convert: break;
  }
  throwInternalError(fmt::format("[codegen cuda] kernel {}: value {} has no place yet", p_.name, id));
}

void Emitter::nest(int space, uint64_t digits, std::span<const ValueId> wanted, const Hooks& hooks) {
  const std::vector<DigitInfo> registers = geometry_.registers(space, digits);
  const std::vector<ValueId> values = inlineValues(wanted);
  std::map<ValueId, size_t> level;  // loops that must be open
  std::map<ValueId, int> uses;
  for (ValueId id : values) {
    uint64_t set = value(id).digits;
    size_t deepest = 0;
    for (size_t k = 0; k < registers.size(); k++) {
      deepest = (set & registers[k].bit) != 0 ? k + 1 : deepest;
    }
    level[id] = deepest;
    for (ValueId o : value(id).operands) {
      uses[o]++;
      level[id] = std::max(level[id], level.contains(o) ? level[o] : 0);
    }
  }
  for (ValueId id : wanted) {
    uses[id]++;
  }
  // A value used once, at its own level, is written into its user.
  std::map<ValueId, size_t> userLevel;
  for (ValueId id : values) {
    for (ValueId o : value(id).operands) {
      userLevel[o] = level[id];
    }
  }
  for (ValueId id : wanted) {
    userLevel[id] = registers.size();
  }
  std::map<ValueId, std::string> known;
  auto evaluate = [&](size_t at) {
    for (ValueId id : values) {
      if (level[id] != at) {
        continue;
      }
      std::string t = valueText(id, known);
      bool inlined = isTrivial(value(id)) || (uses[id] == 1 && userLevel[id] == at && t.size() < kLongest);
      if (!inlined) {
        std::string name = s_.names.fresh(fmt::format("v{}", id));
        line(fmt::format("const {} {} = {};", registerType(value(id).dtype), name, unwrapped(t)));
        t = name;
      }
      known[id] = t;
    }
  };
  size_t opened = 0;
  bool hasVector = !registers.empty() && registers.back().level == Level::Vector;
  evaluate(0);
  for (size_t k = 0; k < registers.size(); k++) {
    if (hasVector && k + 1 == registers.size() && hooks.beforeVector) {
      hooks.beforeVector();
    }
    openLoop(registers[k]);
    opened++;
    evaluate(k + 1);
  }
  std::vector<std::string> texts;
  for (ValueId id : wanted) {
    texts.push_back(id == kNone ? std::string() : valueText(id, known));
  }
  if (hooks.element) {
    hooks.element(texts);
  }
  if (hasVector) {
    close();
    opened--;
    if (hooks.afterVector) {
      hooks.afterVector();
    }
  }
  for (; opened > 0; opened--) {
    close();
  }
}

void Emitter::assign(const Tile& tile, const std::string& text) {
  if (tile.elements == 1) {
    line(fmt::format("{} = {};", tile.name, unwrapped(text)));
  } else if (tile.packed) {
    use("put_bits");
    line(fmt::format("putBits({}, {}, {});", tile.name, elementIndex(tile), unwrapped(text)));
  } else {
    line(fmt::format("{}[{}] = {};", tile.name, elementIndex(tile), unwrapped(text)));
  }
}

ValueId Emitter::packedSource(ValueId id) const {
  const Value& v = value(id);
  bool rounds = v.kind == ValueKind::Cast && isHalfPrecision(v.dtype) && value(v.operands[0]).dtype == DataType::Float;
  return rounds && !s_.tiles.contains(id) ? v.operands[0] : kNone;
}

void Emitter::packVector(const std::string& destination, const std::string& floats, DataType dtype, int64_t width) {
  bool bf16 = dtype == DataType::BFloat16;
  use(bf16 ? "pack_words_bf16" : "pack_words_f16");
  line(fmt::format("packWords{}<{}>({}, {});", bf16 ? "Bf16" : "F16", width, destination, floats));
}

void Emitter::materialise(ValueId id) {
  const Value& v = value(id);
  Tile tile = newTile("v", id);
  declare(tile);
  ValueId source = tile.packed ? packedSource(id) : kNone;
  Hooks hooks;
  if (source != kNone) {
    const DigitInfo vector = geometry_.registers(v.space, v.digits).back();
    std::string q = s_.names.fresh("q");
    hooks.beforeVector = [&, q] { line(fmt::format("float {}[{}];", q, vector.size)); };
    hooks.element = [&, q](std::span<const std::string> t) { line(fmt::format("{}[{}] = {};", q, vector.symbol, unwrapped(t[0]))); };
    hooks.afterVector = [&, q] {
      packVector(within(tile.name, elementIndex(tile, true), true), q, v.dtype, vector.size);
    };
    nest(v.space, v.digits, std::span(&source, 1), hooks);
  } else {
    hooks.element = [&](std::span<const std::string> t) { assign(tile, t[0]); };
    nest(v.space, v.digits, std::span(&id, 1), hooks);
  }
  s_.tiles[id] = tile;
}

}  // namespace meshfuse::cuda
