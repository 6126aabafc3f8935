// The parts of verify() of ir/text.h: the rules for the domains of each tensor, the rules for operands and results of each op, and the
// rules for Partial dims.
#pragma once

#include <fmt/core.h>

#include <string>
#include <utility>
#include <vector>

#include "ir/expr.h"
#include "ir/tensor_view.h"

namespace meshfuse {

// An argument as messages show it: expressions, dims and types as their texts.
template <class T>
[[nodiscard]] decltype(auto) shown(const T& value) {
  if constexpr (requires { value.toString(); }) {
    return value.toString();
  } else if constexpr (requires { value->toString(); }) {
    return value->toString();
  } else if constexpr (requires { name(value); }) {
    return name(value);
  } else if constexpr (requires { toString(value); }) {
    return toString(value);
  } else {
    return (value);
  }
}

// Collects what is wrong with an expr or a tensor. Violations are appended as lines; each names its value.
class Verifier {
 public:
  Verifier(const Expr& expr, std::vector<std::string>& violations) : expr_(&expr), violations_(violations) {}
  Verifier(const TensorView& tensor, std::vector<std::string>& violations)
      : tensor_(&tensor), violations_(violations) {}

  template <class... Args>
  using Message = fmt::format_string<decltype(shown(std::declval<const Args&>()))...>;

  template <class... Args>
  void report(Message<Args...> message, const Args&... args) {
    violations_.push_back(subject() + ": " + fmt::format(message, shown(args)...));
  }

  // Reports unless `holds`, which it returns.
  template <class... Args>
  bool require(bool holds, Message<Args...> message, const Args&... args) {
    if (!holds) {
      report(message, args...);
    }
    return holds;
  }

 private:
  std::string subject() const;

  const Expr* expr_ = nullptr;
  const TensorView* tensor_ = nullptr;
  std::vector<std::string>& violations_;
};

void verifyDomains(const TensorView& tensor, std::vector<std::string>& violations);
void verifyExpr(const Expr& expr, std::vector<std::string>& violations);
void verifyPartialDims(const TensorView& tensor, std::vector<std::string>& violations);
void verifyContributions(const Expr& expr, std::vector<std::string>& violations);

}  // namespace meshfuse
