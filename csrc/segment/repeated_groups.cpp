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

// The first of them.
struct EqualGroups {
  std::unique_ptr<const Judgement> judgement;
  std::string refusal;
  std::vector<const TensorView*> tensors;
  std::optional<std::variant<KernelPlan, LibraryCall>> step = std::nullopt;  // once it is written
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
  EqualJudgement(const Group& g, std::shared_ptr<EqualGroups> first, std::vector<const TensorView*> own)
      : Judgement(g), like(std::move(first)), tensors(std::move(own)) {
    const Judgement& j = *like->judgement;
    callsLibrary = j.callsLibrary;
    writesAnyLayout = j.writesAnyLayout;
    kind = j.kind;
    cost = j.cost;
    loops = j.loops;
    positions = j.positions;
  }

  [[nodiscard]] std::variant<KernelPlan, LibraryCall> write() const override {
    if (callsLibrary) {
      return LibraryCall{group.exprs.back(), group.layouts};
    }
    if (!like->step) {
      like->step = like->judgement->write();
      KernelPlan& plan = std::get<KernelPlan>(*like->step);
      plan.text = tile::toString(plan.program);
    }
    KernelPlan plan = std::get<KernelPlan>(*like->step);
    for (KernelPlan::Slot& slot : plan.slots) {
      slot.tensor = slot.tensor == nullptr ? nullptr : tensors.at(positionIn(like->tensors, slot.tensor));
    }
    return plan;
  }
  [[nodiscard]] bool readsWhereItWrites(const TensorView* output, const TensorView* input) const override {
    const auto inFirst = [&](const TensorView* tv) { return like->tensors.at(positionIn(tensors, tv)); };
    return like->judgement->readsWhereItWrites(inFirst(output), inFirst(input));
  }
  [[nodiscard]] std::optional<std::string> refuseParts(const Judgement&, const Judgement&) const override {
    throwInternalError("[segment] parts are compared with the judgement of an equal group");
  }

  std::shared_ptr<EqualGroups> like;
  std::vector<const TensorView*> tensors;  // as those of the first
};

}  // namespace

RepeatedGroups::RepeatedGroups(const LocalContext& context) : context_(context) {}

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
    return context_.judge(group);
  }
  Key key = keyOf(group);
  std::shared_ptr<EqualGroups>& like = judged_[std::move(key.numbers)];
  if (like == nullptr) {
    Verdict verdict = context_.judge(group);
    like = std::make_shared<EqualGroups>(
        EqualGroups{std::move(verdict.judgement), std::move(verdict.refusal), std::move(key.tensors)});
    if (like->judgement == nullptr) {
      return {nullptr, like->refusal};
    }
    return {std::make_unique<const EqualJudgement>(group, like, like->tensors), like->refusal};
  }
  std::optional<std::string> refusal = renamed(like->refusal, like->tensors, key.tensors);
  if (!refusal) {
    return context_.judge(group);
  }
  if (like->judgement == nullptr) {
    return {nullptr, *std::move(refusal)};
  }
  return {std::make_unique<const EqualJudgement>(group, like, std::move(key.tensors)), *std::move(refusal)};
}

std::unique_ptr<const Judgement> RepeatedGroups::judgementOf(const Group& group) {
  Verdict verdict = judge(group);
  return verdict.judgement != nullptr ? std::move(verdict.judgement) : context_.judgementOf(group);
}

bool standsForEqualGroups(const Judgement& judgement) {
  return dynamic_cast<const EqualJudgement*>(&judgement) != nullptr;
}

}  // namespace meshfuse
