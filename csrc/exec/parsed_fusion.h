// ParsedFusion: a fusion whose text is parsed when it is first read.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace meshfuse {

class Fusion;

// By Val id: the builder of an op, which errors name and the text of a fusion does not. A literal.
using Builders = std::map<int64_t, std::string_view>;

[[nodiscard]] Builders buildersOf(const Fusion& fusion);
// "5 embedding_fwd" for each builder.
[[nodiscard]] std::vector<std::string> linesOf(const Builders& builders);
// Builders from such lines. The names are the literals in the ops of `fusion`, the user's, from which those of the text were made; a line
// whose builder no op of `fusion` has is left out. UserError if a line does not begin with a number.
[[nodiscard]] Builders buildersFrom(const std::vector<std::string>& lines, const Fusion& fusion);
// The fusion of a text with these builders. UserError if the text is malformed, or if `builders` has a value that no op of the text
// computes.
[[nodiscard]] std::unique_ptr<Fusion> parseWith(const Builders& builders, std::string_view text);

// Copies share one fusion. Several threads may read it.
class ParsedFusion {
 public:
  ParsedFusion() = default;  // none
  // This fusion; null: none.
  template <std::convertible_to<std::shared_ptr<const Fusion>> Pointer>
  ParsedFusion(Pointer fusion) : ParsedFusion(Made{std::move(fusion)}) {}  // NOLINT(google-explicit-constructor)
  // That of a text that some fusion printed. `whenBad` is called before the InternalError that fusion() throws if parseWith() fails, so
  // that the caller can delete the stored text.
  ParsedFusion(std::shared_ptr<const std::string> text, Builders builders, std::function<void()> whenBad = {});

  // InternalError if there is none, or the text is no fusion.
  [[nodiscard]] const std::shared_ptr<const Fusion>& fusion() const;
  const Fusion& operator*() const { return *fusion(); }
  const Fusion* operator->() const { return fusion().get(); }

 private:
  struct State;
  struct Made {
    std::shared_ptr<const Fusion> fusion;
  };
  explicit ParsedFusion(Made made);
  std::shared_ptr<State> state_;
};

}  // namespace meshfuse
