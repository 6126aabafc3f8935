// Loops over the register digits of a statement, with every value evaluated at the outermost loop that it allows.
#include <algorithm>
#include <cstdint>

#include "base/ranges.h"
#include "codegen/cuda/emitter.h"

namespace meshfuse::cuda {

using namespace tile;

namespace {

constexpr size_t kLongest = 80;  // characters of a value written into its consumer

}  // namespace

Emitter::Nest::Nest(Emitter& emitter, int64_t space, uint64_t digits, std::span<const ValueId> wanted)
    : e_(emitter), registers_(emitter.geometry_.registers(space, digits)), values_(emitter.inlineValues(wanted)) {
  for (ValueId id : values_) {
    level_[id] = loopsOf(id);
    for (ValueId o : e_.value(id).operands) {
      uses_[o]++;
      level_[id] = std::max(level_[id], level_.contains(o) ? level_[o] : 0);
    }
    for (ValueId o : e_.value(id).operands) {
      userLevel_[o] = level_[id];
    }
  }
  for (ValueId id : wanted) {
    uses_[id]++;
    userLevel_[id] = registers_.size();
  }
}

// How many loops must be open for the value's digits to be known.
size_t Emitter::Nest::loopsOf(ValueId id) const {
  auto known = [&](const DigitInfo& d) { return (e_.value(id).digits & d.bit) != 0; };
  return std::ranges::find_if(registers_.rbegin(), registers_.rend(), known).base() - registers_.begin();
}

// A division by a value that is the same in the whole innermost loop. The compiler itself knows how to divide by a constant exactly.
bool Emitter::Nest::dividesByInverse(ValueId id) const {
  const Value& v = e_.value(id);
  uint64_t innermost = registers_.empty() ? 0 : registers_.back().bit;
  return v.kind == ValueKind::Point && v.op == PointOp::Div && v.dtype == DataType::Float &&
         (v.digits & innermost) != 0 && (e_.value(v.operands[1]).digits & innermost) == 0 &&
         (e_.usage_.coarse[id] || e_.value(v.operands[1]).kind != ValueKind::Const);
}

std::string Emitter::Nest::textOf(ValueId id) const {
  const Value& v = e_.value(id);
  if (dividesByInverse(id)) {
    const std::string dividend = e_.valueText(v.operands[0], known_);
    const auto& [scale, scaled, inverse] = inverses_.at({v.operands[1], e_.usage_.coarse[id]});
    return e_.usage_.coarse[id] ? fmt::format("({} * {} * {})", dividend, scale, inverse)
                                : fmt::format("quotient({}, {}, {}, {})", unwrapped(dividend), scale, scaled, inverse);
  }
  return e_.valueText(id, known_);
}

// The values of one level: a value with one reader at the same level is written into the reader; all others get names.
void Emitter::Nest::evaluate(size_t level) {
  for (ValueId id : values_) {
    if (level_[id] != level) {
      continue;
    }
    std::string text = textOf(id);
    ValueKind kind = e_.value(id).kind;
    bool inlined = kind == ValueKind::Const || kind == ValueKind::Scalar ||
                   (uses_[id] == 1 && userLevel_[id] == level && text.size() < kLongest);
    if (!inlined) {
      std::string name = e_.s_.names.fresh(fmt::format("v{}", id));
      e_.line(fmt::format("const {} {} = {};", registerType(e_.value(id).dtype), name, unwrapped(text)));
      text = name;
    }
    known_[id] = text;
  }
  for (ValueId id : values_) {
    ValueId by = dividesByInverse(id) ? e_.value(id).operands[1] : kNone;
    const bool coarse = e_.usage_.coarse[id];
    if (by == kNone || inverses_.contains({by, coarse}) ||
        std::max(loopsOf(by), level_.contains(by) ? level_[by] : 0) != level) {
      continue;
    }
    e_.use(coarse ? "inverse" : "quotient");
    const std::string divisor = e_.valueText(by, known_);
    const Inverse names = {e_.s_.names.fresh("scale"), e_.s_.names.fresh("scaled"), e_.s_.names.fresh("inverse")};
    e_.line(fmt::format("const float {} = inverseScale({});", names.scale, unwrapped(divisor)));
    e_.line(fmt::format("const float {} = {} * {};", names.scaled, divisor, names.scale));
    e_.line(
        fmt::format("const float {} = {}({});", names.inverse, coarse ? "coarseInverse" : "fineInverse", names.scaled));
    inverses_[{by, coarse}] = names;
  }
}

void Emitter::Nest::emit(std::span<const ValueId> wanted, const Hooks& hooks) {
  bool hasVector = !registers_.empty() && registers_.back().level == Level::Vector;
  evaluate(0);
  for (int64_t k = 0; k < std::ssize(registers_); k++) {
    if (hasVector && k + 1 == std::ssize(registers_) && hooks.beforeVector) {
      hooks.beforeVector();
    }
    e_.openLoop(registers_[k]);
    evaluate(k + 1);
  }
  hooks.element(mapped(wanted, [&](ValueId id) { return id == kNone ? std::string() : e_.valueText(id, known_); }));
  for (size_t k = registers_.size(); k > 0; k--) {
    e_.close();
    if (hasVector && k == registers_.size() && hooks.afterVector) {
      hooks.afterVector();
    }
  }
}

void Emitter::nest(int64_t space, uint64_t digits, std::span<const ValueId> wanted, const Hooks& hooks) {
  Nest(*this, space, digits, wanted).emit(wanted, hooks);
}

}  // namespace meshfuse::cuda
