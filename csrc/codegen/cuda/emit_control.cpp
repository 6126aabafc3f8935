// Statements: loops, branches, and the statements of the last worker.
#include <algorithm>
#include <cstdint>

#include "base/ranges.h"
#include "codegen/cuda/emitter.h"

namespace meshfuse::cuda {

using namespace tile;

void Emitter::block(const std::vector<Stmt>& body) {
  for (size_t i = 0; i < body.size(); i++) {
    if (i + 1 < body.size() && reducesTogether(body[i], body[i + 1])) {
      reducePair(body[i].value, body[i + 1].value);
      i++;
    } else {
      statement(body[i]);
    }
  }
}

void Emitter::statement(const Stmt& s) {
  switch (s.kind) {
    case StmtKind::Define:
      return define(s.value);
    case StmtKind::Keep:
      if (!s_.tiles.contains(s.value)) {
        materialise(s.value);
      }
      return;
    case StmtKind::Store:
      return store(s);
    case StmtKind::Prefetch:
      return;  // a GPU hides latency with other warps
    case StmtKind::For:
      return loop(s);
    case StmtKind::If:
      return branch(s);
    case StmtKind::LastArriver:
      return lastArriver(s);
  }
}

void Emitter::define(ValueId id) {
  if (!usage_.stored[id] || s_.tiles.contains(id)) {
    return;
  }
  switch (value(id).kind) {
    case ValueKind::Load:
      return load(id);
    case ValueKind::Reduce:
      return reduce(id);
    case ValueKind::Convert:
      return convert(id);
    case ValueKind::Scan:
      return scan(id);
    case ValueKind::ScanTotal:
      return;  // its Scan names it
    case ValueKind::Carry:
    case ValueKind::LoopResult:
      return;  // their For names them
    case ValueKind::Const:
    case ValueKind::Scalar:
    case ValueKind::Index:
    case ValueKind::Point:
    case ValueKind::Cast:
    case ValueKind::Random:
    case ValueKind::Shift:  // refused by the verifier
      return materialise(id);
  }
}

// -- loops ------------------------------------------------------------------------------------------------------------

// The loop ends at the bound of its axis where that comes before its size. Threads may not leave it apart: the test
// takes the thread digits as zero.
std::string Emitter::loopHeader(const Stmt& s, std::set<std::pair<int64_t, int64_t>>& guards) {
  const Axis& axis = space(s.space).axes[s.axis];
  const Digit& digit = axis.digits[s.digit];
  const std::string& symbol = geometry_.cName(digit.symbol);
  IntExpr size = geometry_.resolve(digit.size);
  IntExpr bound = geometry_.resolve(axis.bound);
  IntExpr stride = geometry_.resolve(digit.stride);
  IntExpr first = IntExpr::symbol(symbol, factsBelow(size)) * stride;
  bool threadsOutside = false;
  for (int64_t d = 0; d < s.digit; d++) {
    const Digit& outer = axis.digits[d];
    if (isThread(outer.level) && !outer.size.isConst(1)) {
      threadsOutside = true;
    } else if (!isRegister(outer.level) && !outer.size.isConst(1)) {
      first += geometry_.resolve(IntExpr::symbol(outer.symbol)) * geometry_.resolve(outer.stride);
    }
  }
  std::string condition;
  bool ends = provenLess(first, bound);
  // Without outer digits the size of a loop that runs to the bound says nothing that the bound does not.
  bool sizeFollows = s.digit == 0 && size == ceilDiv(bound, stride);
  if (ends || !sizeFollows) {
    std::string limit = text(size);
    if (!size.isConst() && !size.isSymbol()) {
      std::string name = s_.names.fresh(symbol + "_end");
      line(fmt::format("const i64 {} = {};", name, limit));
      limit = name;
    }
    condition = fmt::format("{} < {}", symbol, limit);
  }
  if (!ends) {
    condition += (condition.empty() ? "" : " && ") + conditionText({first, bound});
  }
  if (!threadsOutside && stride.isConst() && bound.divisibleBy(stride.constValue()) &&
      first.divisibleBy(stride.constValue())) {
    guards.insert({s.space, s.axis});
  }
  use("types");
  return fmt::format("for ({0} {1} = 0; {2}; ++{1})", counterType(size), symbol, condition);
}

void Emitter::loop(const Stmt& s) {
  for (const Carried& c : s.carried) {
    Tile carry = declaredTile("c", c.carry);
    fill(carry, c.init);
    s_.tiles[c.carry] = carry;
  }
  std::set<std::pair<int64_t, int64_t>> guards;
  std::string header = loopHeader(s, guards);
  // Its first statements follow its last ones, so it is emitted again with what it leaves open, until it leaves nothing else open: reductions
  // may take other slots each time.
  const State before = s_;
  Arena::Open fromLast;
  loopOnce(s, header, guards);
  while (!fromLast.contains(s_.arena.open)) {
    fromLast.merge(s_.arena.open);
    s_ = before;
    s_.arena.open.merge(fromLast);
    loopOnce(s, header, guards);
  }
  s_.arena.open.merge(before.arena.open);
  for (const Carried& c : s.carried) {
    s_.tiles[c.result] = s_.tiles[c.carry];
  }
}

void Emitter::loopOnce(const Stmt& s, const std::string& header, const std::set<std::pair<int64_t, int64_t>>& guards) {
  const Digit& digit = space(s.space).axes[s.axis].digits[s.digit];
  auto tiles = s_.tiles;
  auto openSerial = s_.openSerial;
  auto guarded = s_.guardedAxes;
  s_.openSerial.insert(geometry_.cName(digit.symbol));
  s_.guardedAxes.insert(guards.begin(), guards.end());
  open(header);
  block(s.body);
  assignCarried(s);
  close();
  s_.tiles = std::move(tiles);
  s_.openSerial = std::move(openSerial);
  s_.guardedAxes = std::move(guarded);
}

// Assigns all carries at the same time, so no next value reads a new carry. Positions beyond the bound keep their values.
void Emitter::assignCarried(const Stmt& s) {
  if (s.carried.empty()) {
    return;
  }
  std::vector<ValueId> next = mapped(s.carried, &Carried::next);
  const Value& first = value(s.carried[0].carry);
  bool together = std::ranges::all_of(s.carried, [&](const Carried& c) {
    return value(c.carry).space == first.space && value(c.carry).digits == first.digits;
  });
  const std::string& looped = space(s.space).axes[s.axis].digits[s.digit].symbol;
  auto condition = [&](const Value& v) {
    auto isLooped = [&](int64_t a) { return contains(mapped(space(v.space).axes[a].digits, &Digit::symbol), looped); };
    return conditionText(openPredicates(v.space, v.digits, {}, {}, isLooped));
  };
  if (together) {
    auto assignAll = [&](Texts texts) {
      std::vector<std::string> values(texts.begin(), texts.end());
      for (int64_t i = 0; values.size() > 1 && i < std::ssize(values); i++) {
        std::string name = s_.names.fresh("next");
        line(fmt::format("const {} {} = {};", registerType(value(next[i]).dtype), name, unwrapped(values[i])));
        values[i] = name;
      }
      when(condition(first), [&] {
        for (int64_t i = 0; i < std::ssize(values); i++) {
          assign(s_.tiles.at(s.carried[i].carry), values[i]);
        }
      });
    };
    nest(first.space, first.digits, next, {.element = assignAll});
    return;
  }
  for (const Carried& c : s.carried) {
    if (!s_.tiles.contains(c.next)) {
      materialise(c.next);
    }
  }
  // A next value that is itself a carried tile is copied before that is assigned.
  std::map<ValueId, Tile> sources;
  for (const Carried& c : s.carried) {
    sources[c.next] = s_.tiles.at(c.next);
    if (contains(mapped(s.carried, &Carried::carry), c.next) && c.next != c.carry) {
      sources[c.next] = declaredTile("copy", c.next);
      fill(sources[c.next], c.next);
    }
  }
  for (const Carried& c : s.carried) {
    const Value& v = value(c.carry);
    auto assignOne = [&](Texts) {
      std::string test = condition(v);
      const Tile& carry = s_.tiles.at(c.carry);
      std::string from = element(sources.at(c.next));
      assign(carry, test.empty() ? from : fmt::format("{} ? {} : {}", test, from, element(carry)));
    };
    nest(v.space, v.digits, {}, {.element = assignOne});
  }
}

// -- branches ---------------------------------------------------------------------------------------------------------

void Emitter::skippable(const std::string& header, const std::function<void()>& body) {
  Arena::Open before = s_.arena.open;
  auto tiles = s_.tiles;
  open(header);
  body();
  close();
  s_.tiles = std::move(tiles);
  s_.arena.open.merge(before);
}

void Emitter::branch(const Stmt& s) {
  auto resolved = [&](const Pred& p) { return Pred{geometry_.resolve(p.lhs), geometry_.resolve(p.rhs)}; };
  std::string condition = conditionText(mapped(s.where, resolved));
  skippable(condition.empty() ? "" : fmt::format("if ({})", condition), [&] { block(s.body); });
}

void Emitter::lastArriver(const Stmt& s) {
  bool cluster = p_.cluster() > 1;
  const std::string slot = "kTicket";
  s_.arena.reserve(slot, 4);
  use("fence");
  use("ticket");
  use("thread_index");
  IntExpr workers = geometry_.resolve(arrivals(p_, s));
  IntExpr at = sumOf(indices(s.index), [&](int64_t k) {
    return geometry_.resolve(s.index[k].expr) * geometry_.resolve(tensor(s.param).strides[k]);
  });
  s_.arena.open.written.insert(slot);
  line("fence();");
  wait(cluster ? Arena::Wait::Cluster : Arena::Wait::Block);
  std::string counter = tensorNames_[s.param];
  std::string address = at.isConst(0) ? counter : counter + " + " + text(at);
  open(cluster ? "if (rank == 0 && threadIndex() == 0)" : "if (threadIndex() == 0)");
  std::string ticketSite = nextSite();
  line(sharedStore(DataType::Int32, slot,
                   fmt::format("ticket({}, {}, {}) == {} - 1", address, exprText(workers, s_.uses), ticketSite,
                               parenthesized(workers, s_.uses))));
  close();
  s_.arena.open.written.insert(slot);
  wait(cluster ? Arena::Wait::Cluster : Arena::Wait::Block);
  std::string last = s_.names.fresh("last");
  std::string read = cluster ? remoteLoad(DataType::Int32, slot, "0") : sharedLoad(DataType::Int32, slot);
  line(fmt::format("const bool {} = {} != 0;", last, read));
  (cluster ? s_.arena.open.remote : s_.arena.open.read).insert(slot);
  skippable(fmt::format("if ({})", last), [&] {
    line("fence();");
    block(s.body);
  });
}

}  // namespace meshfuse::cuda
