#include "segment/repeated_groups.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/ranges.h"
#include "ir/attribute_text.h"
#include "ir/fusion.h"
#include "ir/root_text.h"

namespace meshfuse {

// Judges groups, also after the context is gone.
struct GroupJudge {
  DeviceInfo device;
  std::span<const Template> templates;

  Verdict judge(const Group& group) const { return meshfuse::judge(group, device, templates); }
};

// What an accepted group is to its readers, beside what only the judgement itself knows.
struct JudgedFacts {
  bool callsLibrary = false;
  bool writesAnyLayout = false;
  std::string_view kind;
  Cost cost;
  std::vector<IntExpr> loops;
  int64_t positions = 0;
};

// The judgement of the first of them is not kept here: it holds the coordinates of all its tensors, and most groups grow into larger ones.
struct EqualGroups {
  std::optional<JudgedFacts> facts;  // nothing: all templates refuse
  std::string refusal;
  std::vector<const TensorView*> tensors;  // of the first group
  // The kernel, once one of the groups has written it, and the tensors of that group.
  std::optional<KernelPlan> plan = std::nullopt;
  std::vector<const TensorView*> planTensors = {};
};

namespace {

// The permutation that sorts a list by id.
template <class T>
void appendOrder(std::vector<int64_t>& numbers, const std::vector<T>& list) {
  const size_t begin = numbers.size();
  append(numbers, indices(list));
  std::ranges::sort(numbers.begin() + static_cast<int64_t>(begin), numbers.end(), {},
                    [&](int64_t k) { return list[k]->id(); });
}

void appendDims(std::string& text, const TensorView& tensor) {
  for (const IterDomain* id : tensor.getLogicalDomain()) {
    text += fmt::format(" {}{}{}", static_cast<int>(id->iterType()), static_cast<int>(id->combine()), ':');
    text += id->extent().isConst() ? std::to_string(id->extent().constValue()) : id->extent().toString();
  }
  if (tensor.hasRoot()) {
    text += rootText(tensor, &IntExpr::toString);
  }
}

// A text about the tensors of one group, with the numbers of those of an equal one: T3 becomes T9. Nothing if it names another tensor.
std::optional<std::string> renamed(const std::string& text, const std::vector<const TensorView*>& from,
                                   const std::vector<const TensorView*>& to) {
  const auto isWord = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  std::string result;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    if (!isWord(text[at])) {
      result += text[at];
      at = end;
      continue;
    }
    while (end < text.size() && isWord(text[end])) {
      end++;
    }
    const std::string_view word = std::string_view(text).substr(at, end - at);
    const auto number = word[0] == 'T' ? numberIn<int64_t>(word.substr(1)) : std::nullopt;
    if (number) {
      const auto named = std::ranges::find(from, *number, &TensorView::id);
      if (named == from.end()) {
        return std::nullopt;
      }
      result += fmt::format("T{}", to[named - from.begin()]->id());
    } else {
      result += word;
    }
    at = end;
  }
  return result;
}

struct EqualJudgement final : Judgement {
  EqualJudgement(const Group& g, std::shared_ptr<EqualGroups> equal, std::vector<const TensorView*> itsTensors,
                 std::shared_ptr<const GroupJudge> groupJudge, std::unique_ptr<const Judgement> first)
      : Judgement(g),
        like(std::move(equal)),
        tensors(std::move(itsTensors)),
        judge(std::move(groupJudge)),
        alone(std::move(first)) {
    const JudgedFacts& f = like->facts.value();
    callsLibrary = f.callsLibrary;
    writesAnyLayout = f.writesAnyLayout;
    kind = f.kind;
    cost = f.cost;
    loops = f.loops;
    positions = f.positions;
  }

  [[nodiscard]] std::variant<KernelPlan, LibraryCall> write() const override {
    if (callsLibrary) {
      return LibraryCall{group.exprs.back(), group.layouts};
    }
    if (!like->plan) {
      like->plan = std::get<KernelPlan>(own().write());
      like->plan->text = tile::toString(like->plan->program);
      like->planTensors = tensors;
    }
    KernelPlan plan = *like->plan;
    for (KernelPlan::Slot& slot : plan.slots) {
      slot.tensor = slot.tensor == nullptr ? nullptr : tensors.at(positionIn(like->planTensors, slot.tensor));
    }
    return plan;
  }
  [[nodiscard]] bool readsWhereItWrites(const TensorView* output, const TensorView* input) const override {
    return own().readsWhereItWrites(output, input);
  }
  [[nodiscard]] std::optional<std::string> refuseParts(const Judgement&, const Judgement&) const override {
    throwInternalError("[segment] parts are compared with the judgement of an equal group");
  }

  // The judgement of this group alone.
  const Judgement& own() const {
    if (alone == nullptr) {
      alone = judge->judge(group).judgement;
      invariant(alone != nullptr, "[segment] a group is refused that is equal to one that a template took");
    }
    return *alone;
  }

  std::shared_ptr<EqualGroups> like;
  std::vector<const TensorView*> tensors;  // as those of the first
  std::shared_ptr<const GroupJudge> judge;
  mutable std::unique_ptr<const Judgement> alone;  // null until it is asked for, but of the first group
};

}  // namespace

RepeatedGroups::RepeatedGroups(const LocalContext& context)
    : judge_(std::make_shared<const GroupJudge>(GroupJudge{context.device, context.templates})) {}

int64_t RepeatedGroups::numberOf(std::string text) {
  return texts_.try_emplace(std::move(text), std::ssize(texts_)).first->second;
}

int64_t RepeatedGroups::numberOf(const Expr& e) {
  const auto [number, isNew] = ofExprs_.try_emplace(e.id());
  if (isNew) {
    const auto mesh = [](const DeviceMesh&) { return int64_t{0}; };
    std::string text = fmt::format("{} {}", e.opName(), attributesText(e, &IntExpr::toString, mesh));
    for (const Val* out : e.outputs()) {
      text += fmt::format(" to {}", static_cast<int>(out->dtype()));
      appendDims(text, *out->asTensor());
    }
    number->second = numberOf(std::move(text));
  }
  return number->second;
}

int64_t RepeatedGroups::numberOf(const TensorView& tensor) {
  const auto [number, isNew] = ofTensors_.try_emplace(tensor.id());
  if (isNew) {
    std::string text = std::to_string(static_cast<int>(tensor.dtype()));
    appendDims(text, tensor);
    number->second = numberOf(std::move(text));
  }
  return number->second;
}

int64_t RepeatedGroups::numberOf(const Layout& layout) {
  return numberOf(fmt::format("strides {} at {}", listText(layout.strides, &IntExpr::toString), layout.alignment));
}

RepeatedGroups::Key RepeatedGroups::keyOf(const Group& group) {
  Key key{{std::ssize(group.exprs), std::ssize(group.inputs), std::ssize(group.outputs)}, {}};
  std::vector<int64_t>& numbers = key.numbers;
  const auto placeOf = [&](const TensorView* tv) {
    const int64_t place = positionIn(key.tensors, tv);
    if (place == std::ssize(key.tensors)) {
      key.tensors.push_back(tv);
    }
    return place;
  };
  for (const Expr* e : group.exprs) {
    numbers.push_back(numberOf(*e));
    numbers.push_back(std::ssize(e->inputs()));
    for (const Val* in : e->inputs()) {
      numbers.push_back(in->isTensor() ? placeOf(in->asTensor()) : -1 - in->id());
    }
    for (const Val* out : e->outputs()) {
      numbers.push_back(placeOf(out->asTensor()));
    }
  }
  for (const auto* list : {&group.inputs, &group.outputs}) {
    for (const TensorView* tv : *list) {
      numbers.push_back(placeOf(tv));
      numbers.push_back(numberOf(*tv));
      const auto layout = group.layouts.find(tv->id());
      numbers.push_back(layout == group.layouts.end() ? -1 : numberOf(layout->second));
    }
  }
  appendOrder(numbers, key.tensors);
  appendOrder(numbers, group.exprs);
  return key;
}

Verdict RepeatedGroups::judge(const Group& group) {
  const bool isOfTensors =
      std::ranges::all_of(group.exprs, [](const Expr* e) { return std::ranges::all_of(e->outputs(), &Val::isTensor); });
  if (!isOfTensors || !group.aliases.empty()) {
    return judge_->judge(group);
  }
  Key key = keyOf(group);
  std::shared_ptr<EqualGroups>& like = judged_[std::move(key.numbers)];
  std::unique_ptr<const Judgement> first;
  if (like == nullptr) {
    Verdict verdict = judge_->judge(group);
    like = std::make_shared<EqualGroups>(EqualGroups{{}, std::move(verdict.refusal), key.tensors});
    first = std::move(verdict.judgement);
    if (first != nullptr) {
      like->facts = {first->callsLibrary, first->writesAnyLayout, first->kind,
                     first->cost,         first->loops,           first->positions};
    }
  }
  std::optional<std::string> refusal = renamed(like->refusal, like->tensors, key.tensors);
  if (!refusal) {
    return judge_->judge(group);
  }
  if (!like->facts) {
    return {nullptr, *std::move(refusal)};
  }
  return {std::make_unique<const EqualJudgement>(group, like, std::move(key.tensors), judge_, std::move(first)),
          *std::move(refusal)};
}

std::unique_ptr<const Judgement> RepeatedGroups::judgementOf(const Group& group) {
  Verdict verdict = judge(group);
  invariant(verdict.judgement != nullptr, "[segment] no template takes a group that one took before: {}",
            verdict.refusal);
  return std::move(verdict.judgement);
}

bool standsForEqualGroups(const Judgement& judgement) {
  return dynamic_cast<const EqualJudgement*>(&judgement) != nullptr;
}

}  // namespace meshfuse
