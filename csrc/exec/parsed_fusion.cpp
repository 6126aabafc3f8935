#include "exec/parsed_fusion.h"

#include <fmt/core.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/entry_texts.h"
#include "base/error.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/text.h"

namespace meshfuse {

struct ParsedFusion::State {
  std::once_flag once;
  std::shared_ptr<const Fusion> fusion = {};
  std::shared_ptr<const std::string> text = {};
  Builders builders = {};
  std::function<void()> whenBad = {};
};

ParsedFusion::ParsedFusion(Made made) {
  if (made.fusion != nullptr) {
    state_ = std::make_shared<State>();
    state_->fusion = std::move(made.fusion);
  }
}

ParsedFusion::ParsedFusion(std::shared_ptr<const std::string> text, Builders builders, std::function<void()> whenBad)
    : state_(std::make_shared<State>()) {
  state_->text = std::move(text);
  state_->builders = std::move(builders);
  state_->whenBad = std::move(whenBad);
}

const std::shared_ptr<const Fusion>& ParsedFusion::fusion() const {
  invariant(state_ != nullptr, "[parsed fusion] there is none to read");
  State& s = *state_;
  std::call_once(s.once, [&] {
    if (s.fusion == nullptr) {
      try {
        s.fusion = parseWith(s.builders, *s.text);
      } catch (const Error& error) {
        if (s.whenBad) {
          s.whenBad();
        }
        throwInternalError(fmt::format("[parsed fusion] {}\nin\n{}", error.what(), *s.text));
      }
    }
  });
  return s.fusion;
}

Builders buildersOf(const Fusion& fusion) {
  Builders result;
  for (const Expr* e : fusion.exprs()) {
    if (const std::string_view called = e->attributes().calledAs; !called.empty()) {
      result[e->output()->id()] = called;
    }
  }
  return result;
}

std::vector<std::string> linesOf(const Builders& builders) {
  return mapped(builders, [](const auto& entry) { return fmt::format("{} {}", entry.first, entry.second); });
}

Builders buildersFrom(const std::vector<std::string>& lines, const Fusion& fusion) {
  std::map<std::string_view, std::string_view> literals;
  for (const Expr* e : fusion.exprs()) {
    literals[e->attributes().calledAs] = e->attributes().calledAs;
  }
  Builders result;
  for (const std::string& line : lines) {
    const size_t space = std::min(line.find(' '), line.size());
    const auto literal = literals.find(std::string_view(line).substr(std::min(space + 1, line.size())));
    if (literal != literals.end()) {
      result[EntryReader::number(std::string_view(line).substr(0, space))] = literal->second;
    }
  }
  return result;
}

std::unique_ptr<Fusion> parseWith(const Builders& builders, std::string_view text) {
  std::unique_ptr<Fusion> result = parseFusion(text, "plan");
  for (const auto& [id, builder] : builders) {
    const Val* val = id < result->numVals() ? result->val(id) : nullptr;
    check(val != nullptr && val->definition() != nullptr, "[stored plan] T{} is no result of the program", id);
    result->setCalledAs(val->definition(), builder);
  }
  return result;
}

}  // namespace meshfuse
