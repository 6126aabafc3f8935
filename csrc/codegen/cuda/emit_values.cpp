// Elementwise values: evaluated inside the loops of their consumers.
#include "base/error.h"
#include "base/ranges.h"
#include "codegen/cuda/emitter.h"
#include "codegen/cuda/point_text.h"

namespace meshfuse::cuda {

using namespace tile;

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
    invariant(v.kind != ValueKind::Load && v.kind != ValueKind::Reduce && v.kind != ValueKind::Convert &&
                  v.kind != ValueKind::Carry && v.kind != ValueKind::LoopResult && v.kind != ValueKind::Scan &&
                  v.kind != ValueKind::ScanTotal,
              "[codegen cuda] kernel {} uses value {} where it is not defined", p_.name, id);
    append(open, v.operands);
  }
  return {found.begin(), found.end()};
}

std::string Emitter::valueText(ValueId id, const std::map<ValueId, std::string>& known) {
  if (auto tile = s_.tiles.find(id); tile != s_.tiles.end()) {
    return element(tile->second);
  }
  if (auto text = known.find(id); text != known.end()) {
    return text->second;
  }
  const Value& v = value(id);
  std::vector<std::string> operands = mapped(v.operands, [&](ValueId o) { return valueText(o, known); });
  auto operandType = [&](size_t i) { return value(v.operands[i]).dtype; };
  switch (v.kind) {
    case ValueKind::Const:
      return isFloatingPoint(v.dtype) ? floatLiteral(v.constant, v.dtype, s_.uses)
                                      : integerLiteral(v.integer, v.dtype, s_.uses);
    case ValueKind::Scalar:
      return scalarNames_[v.param];
    case ValueKind::Index:
      use("types");
      return fmt::format("i64({})", text(geometry_.resolve(v.index[0].expr)));
    case ValueKind::Cast:
      return castText(operands[0], operandType(0), v.dtype, s_.uses);
    case ValueKind::Point:
      if (v.op == PointOp::CheckedIndex) {
        return checkedIndexText(v, operands);
      }
      return pointText(v.op, operandType(v.operands.size() == 3 && v.op == PointOp::Where ? 1 : 0),
                       usage_.coarse[id] ? Precision::Coarse : Precision::Full, operands, s_.uses);
    case ValueKind::Random:
      use("philox");
      return fmt::format("philox({}, {}, {}, {})", operands[0], operands[1], operands[2], v.param);
    case ValueKind::Load:
    case ValueKind::Reduce:
    case ValueKind::Carry:
    case ValueKind::LoopResult:
    case ValueKind::Convert:
    case ValueKind::Scan:
    case ValueKind::ScanTotal:
    case ValueKind::Shift:
      break;
  }
  throwInternalError(fmt::format("[codegen cuda] kernel {}: value {} has no storage yet", p_.name, id));
}

// Refuses an index only where the element at the current digits is inside all bounds.
std::string Emitter::checkedIndexText(const Value& v, Texts operands) {
  std::string condition = conditionText(openPredicates(v.space, v.digits, {}, v.where));
  const auto operand = [&](size_t k) { return isUnsigned(v.dtype) ? "(int)" + operands[k] : unwrapped(operands[k]); };
  return fmt::format("checkedIndex({}, {}, {}, {})", operand(0), operand(1), condition.empty() ? "true" : condition,
                     refusedName_);
}

void Emitter::assign(const Tile& tile, const std::string& text) {
  if (tile.elements > 1 && tile.packed) {
    use("put_bits");
    line(fmt::format("putBits({}, {}, {});", tile.name, elementIndex(tile), unwrapped(text)));
  } else {
    line(fmt::format("{} = {};", element(tile), unwrapped(text)));
  }
}

void Emitter::fill(const Tile& tile, ValueId id) {
  nest(tile.space, tile.digits, std::span(&id, 1), {.element = [&](Texts t) { assign(tile, t[0]); }});
}

ValueId Emitter::packedSource(ValueId id) const {
  const Value& v = value(id);
  bool rounds = v.kind == ValueKind::Cast && isHalfPrecision(v.dtype) && value(v.operands[0]).dtype == DataType::Float;
  return rounds && !s_.tiles.contains(id) ? v.operands[0] : kNone;
}

std::optional<Emitter::PackedSum> Emitter::packedSum(ValueId id, const DigitInfo& vector) const {
  const ValueId source = packedSource(id);
  const bool isSum = source != kNone && value(source).kind == ValueKind::Point &&
                     (value(source).op == PointOp::Add || value(source).op == PointOp::Sub);
  if (!isSum) {
    return std::nullopt;
  }
  std::vector<Tile> packed;
  for (ValueId o : value(source).operands) {
    const ValueId from = value(o).kind == ValueKind::Cast ? value(o).operands[0] : kNone;
    const auto tile = s_.tiles.find(from);
    if (tile == s_.tiles.end() || value(from).dtype != value(id).dtype || (tile->second.digits & vector.bit) == 0) {
      return std::nullopt;
    }
    packed.push_back(tile->second);
  }
  return PackedSum{packed[0], packed[1], value(source).op == PointOp::Add ? 1 : -1};
}

void Emitter::sumVector(const std::string& destination, const PackedSum& sum, int64_t width) {
  use(fmt::format("sum_words_{}", info(sum.a.dtype).token));
  line(fmt::format("sumWords{}<{}, {}>({}, {}, {});", capitalToken(sum.a.dtype), width, sum.sign, destination,
                   vectorAddress(sum.a), vectorAddress(sum.b)));
}

void Emitter::packVector(const std::string& destination, const std::string& floats, DataType dtype, int64_t width) {
  use(fmt::format("pack_words_{}", info(dtype).token));
  line(fmt::format("packWords{}<{}>({}, {});", capitalToken(dtype), width, destination, floats));
}

void Emitter::materialise(ValueId id) {
  const Value& v = value(id);
  Tile tile = declaredTile("v", id);
  ValueId source = tile.packed ? packedSource(id) : kNone;
  if (source == kNone) {
    fill(tile, id);
  } else if (const DigitInfo vector = *geometry_.vector(v.space, v.digits); const auto sum = packedSum(id, vector)) {
    nest(v.space, v.digits & ~vector.bit, {},
         {.element = [&](Texts) { sumVector(vectorAddress(tile), *sum, vector.size); }});
  } else {
    std::string q = s_.names.fresh("q");
    nest(v.space, v.digits, std::span(&source, 1),
         {.beforeVector = [&] { line(fmt::format("float {}[{}];", q, vector.size)); },
          .element = [&](Texts t) { line(fmt::format("{}[{}] = {};", q, vector.symbol, unwrapped(t[0]))); },
          .afterVector = [&] { packVector(vectorAddress(tile), q, v.dtype, vector.size); }});
  }
  s_.tiles[id] = tile;
}

}  // namespace meshfuse::cuda
