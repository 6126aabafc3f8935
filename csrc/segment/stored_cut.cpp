#include "segment/stored_cut.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/entry_texts.h"
#include "base/error.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "segment/local_context.h"
#include "segment/repeated_groups.h"
#include "segment/view_steps.h"

namespace meshfuse {

namespace {

// Takes the ops of a fusion, each once and after the ops that it reads from.
class OpsInOrder {
 public:
  explicit OpsInOrder(const Fusion& fusion) {
    for (Expr* e : fusion.exprs()) {
      if (e->output()->isTensor()) {
        byId_[e->id()] = e;
      }
    }
  }

  // UserError if no op has this id, if it has been taken, or if an op that it reads from has not.
  Expr* take(int64_t id) {
    const auto found = byId_.find(id);
    check(found != byId_.end() && taken_.insert(id).second, "[stored cut] op {} is none, or in two steps", id);
    for (const TensorView* in : found->second->tensorInputs()) {
      check(in->definition() == nullptr || taken_.contains(in->definition()->id()),
            "[stored cut] op {} stands before an op that it reads from", id);
    }
    return found->second;
  }

  bool areTaken() const { return taken_.size() == byId_.size(); }

 private:
  std::unordered_map<int64_t, Expr*> byId_;
  std::unordered_set<int64_t> taken_;
};

SegmentKind kindFrom(std::string_view text) {
  const int64_t number = EntryReader::number(text);
  check(number <= static_cast<int64_t>(SegmentKind::Reference), "[stored cut] {} is no kind of step", number);
  return static_cast<SegmentKind>(number);
}

// UserError if segmentation gives no step of this kind to these ops. Templates judge kernels and library calls.
void checkKind(const Segment& s, const LocalContext& context) {
  const std::vector<Expr*>& exprs = s.group.exprs;
  const Expr& first = *exprs[0];
  const auto isOfKind = [&](const Expr* e) {
    const bool isCollective = e->kind() == ExprKind::Communicate;
    return isCollective == (s.kind == SegmentKind::Communicate) &&
           (isCollective || touchesEmpty(*e) == (s.kind == SegmentKind::Reference));
  };
  const bool isAlone = exprs.size() == 1;
  const bool fits = s.kind == SegmentKind::Kernel ? true
                    : s.kind == SegmentKind::View ? isView(s.group) || (isAlone && isAlwaysView(first, context))
                                                  : isAlone;
  check(fits && std::ranges::all_of(exprs, isOfKind), "[stored cut] op {} is in a step of another kind", first.id());
}

}  // namespace

std::string entryOf(std::span<const Segment> segments) {
  EntryWriter writer;
  writer.add(std::to_string(segments.size()));
  for (const Segment& s : segments) {
    writer.add(std::to_string(static_cast<int64_t>(s.kind)));
    writer.add(fmt::format("{}", fmt::join(mapped(s.group.exprs, &Expr::id), " ")));
    writer.add(s.boundary);
    writer.add(s.joins);
  }
  return writer.bytes();
}

std::optional<std::vector<Segment>> segmentsOf(const std::string& entry, const Fusion& fusion,
                                               const LocalContext& context) {
  try {
    EntryReader reader(entry);
    OpsInOrder ops(fusion);
    RepeatedGroups groups(context);
    std::vector<Segment> result;
    int64_t lastCollective = -1;
    for (int64_t left = EntryReader::number(reader.text()); left > 0; left--) {
      Segment s{.kind = kindFrom(reader.text())};
      std::vector<Expr*> exprs;
      for (const int64_t id : EntryReader::numbers(reader.text())) {
        exprs.push_back(ops.take(id));
      }
      check(!exprs.empty(), "[stored cut] a step has no ops");
      s.boundary = reader.text();
      s.joins = reader.texts();
      s.group = context.groupOf(fusion, exprs);
      if (s.kind == SegmentKind::Kernel || s.kind == SegmentKind::Library) {
        s.judgement = groups.judge(s.group).judgement;
        check(s.judgement != nullptr && s.judgement->callsLibrary == (s.kind == SegmentKind::Library),
              "[stored cut] no template takes the step of op {}", exprs.back()->id());
      }
      checkKind(s, context);
      if (s.kind == SegmentKind::Communicate) {
        check(exprs[0]->id() > lastCollective, "[stored cut] the collective of op {} is out of turn", exprs[0]->id());
        lastCollective = exprs[0]->id();
      }
      result.push_back(std::move(s));
    }
    reader.finish();
    check(ops.areTaken(), "[stored cut] some op is in no step");
    return result;
  } catch (const UserError&) {
    return std::nullopt;
  } catch (const InternalError&) {  // of a template that judges a group of another program
    return std::nullopt;
  }
}

}  // namespace meshfuse
