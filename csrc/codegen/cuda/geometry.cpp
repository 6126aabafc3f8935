#include "codegen/cuda/geometry.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/ranges.h"

namespace meshfuse::cuda {

using tile::Level;

int64_t countOf(const std::vector<DigitInfo>& digits) { return productOf(digits, &DigitInfo::size); }

IntExpr positionOf(const std::vector<DigitInfo>& digits, Unit unit) {
  IntExpr position = 0;
  int64_t weight = 1;
  for (auto d = digits.rbegin(); d != digits.rend(); ++d) {
    if (unit == Unit::Element || d->level != Level::Vector) {
      position += d->value() * weight;
    }
    weight *= d->size;
  }
  return position;
}

IntExpr atZero(const IntExpr& e, const std::set<std::string, std::less<>>& symbols) {
  return e.substitute([&](std::string_view symbol) -> std::optional<IntExpr> {
    return symbols.contains(symbol) ? std::optional<IntExpr>(0) : std::nullopt;
  });
}

Geometry::Geometry(const tile::Program& program, Names& names) : program_(program) {
  auto add = [&](const std::string& symbol, const SymbolFacts& facts) {
    if (!cNames_.contains(symbol)) {
      cNames_[symbol] = names.fresh(symbol);
      meaning_[symbol] = IntExpr::symbol(cNames_[symbol], facts);
    }
  };
  for (const tile::SizeParam& s : program.sizes) {
    add(s.name, s.facts);
  }
  for (const tile::GridDim& g : program.grid) {
    add(g.symbol, factsBelow(resolve(g.count)));
  }
  for (const tile::Space& space : program.spaces) {
    addDigits(space, names);
  }
  for (const tile::Space& space : program.spaces) {
    for (const tile::Axis& axis : space.axes) {
      meaning_[axis.name] = sumOf(axis.digits, [&](const tile::Digit& d) {
        return d.size.isConst(1) ? IntExpr(0) : meaning_.at(d.symbol) * resolve(d.stride);
      });
    }
  }
}

void Geometry::addDigits(const tile::Space& space, Names& names) {
  std::vector<DigitInfo>& infos = spaces_.emplace_back();
  std::vector<tile::DigitRef> refs = tile::digitsOf(space);
  for (const tile::Axis& axis : space.axes) {
    for (const tile::Digit& d : axis.digits) {
      if (!cNames_.contains(d.symbol)) {
        cNames_[d.symbol] = names.fresh(d.symbol);
        meaning_[d.symbol] =
            d.size.isConst(1) ? IntExpr(0) : IntExpr::symbol(cNames_[d.symbol], factsBelow(resolve(d.size)));
      }
    }
  }
  for (int64_t i = 0; i < std::ssize(refs); i++) {
    const tile::Digit& d = space.axes[refs[i].axis].digits[refs[i].digit];
    infos.push_back(
        {uint64_t{1} << i, refs[i].axis, d.level, d.size.constValue(), resolve(d.stride), cNames_[d.symbol]});
  }
  orderThreads(infos);
}

// Neighbouring lanes walk the axis with the vector digit, else the last one: there the addresses are contiguous.
void Geometry::orderThreads(std::vector<DigitInfo>& digits) const {
  int64_t vectorAxis = -1;
  for (const DigitInfo& d : digits) {
    vectorAxis = d.level == Level::Vector && d.size > 1 ? d.axis : vectorAxis;
  }
  for (Level level : {Level::Cluster, Level::Warp, Level::Lane}) {
    int64_t weight = 1;
    for (bool onVectorAxis : {true, false}) {
      for (auto d = digits.rbegin(); d != digits.rend(); ++d) {
        if (d->level == level && (d->axis == vectorAxis) == onVectorAxis) {
          d->weight = weight;
          weight *= d->size;
        }
      }
    }
  }
}

std::vector<DigitInfo> Geometry::onLevel(int64_t space, uint64_t set, Level level) const {
  return filtered(digits(space),
                  [&](const DigitInfo& d) { return (set & d.bit) != 0 && d.level == level && d.size != 1; });
}

std::vector<DigitInfo> Geometry::registers(int64_t space, uint64_t set) const {
  std::vector<DigitInfo> out = onLevel(space, set, Level::Repeat);
  append(out, onLevel(space, set, Level::Vector));
  return out;
}

std::optional<DigitInfo> Geometry::vector(int64_t space, uint64_t set) const {
  std::vector<DigitInfo> vectors = onLevel(space, set, Level::Vector);
  return vectors.empty() ? std::nullopt : std::optional(vectors.back());
}

std::vector<DigitInfo> Geometry::threads(int64_t space, uint64_t set) const {
  return filtered(digits(space),
                  [&](const DigitInfo& d) { return (set & d.bit) != 0 && isThread(d.level) && d.size != 1; });
}

IntExpr Geometry::resolve(const IntExpr& e) const {
  return e.substitute([&](std::string_view symbol) -> std::optional<IntExpr> {
    auto it = meaning_.find(std::string(symbol));
    return it == meaning_.end() ? std::nullopt : std::optional<IntExpr>(it->second);
  });
}

IntExpr Geometry::coordinate(int64_t space, int64_t axis) const {
  return meaning_.at(program_.spaces[space].axes[axis].name);
}

const std::string& Geometry::cName(const std::string& symbol) const {
  auto it = cNames_.find(symbol);
  invariant(it != cNames_.end(), "[codegen cuda] kernel {} has no symbol {}", program_.name, symbol);
  return it->second;
}

bool Geometry::mentionsAxis(const IntExpr& e, int64_t space, int64_t axis) const {
  const tile::Axis& a = program_.spaces[space].axes[axis];
  return e.contains(a.name) ||
         std::ranges::any_of(a.digits, [&](const tile::Digit& d) { return e.contains(d.symbol); });
}

}  // namespace meshfuse::cuda
