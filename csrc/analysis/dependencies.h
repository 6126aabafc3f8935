// Dependencies between the values and exprs of one fusion.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace meshfuse {

class Expr;
class Fusion;
class Val;

class Dependencies {
 public:
  static constexpr std::string_view kName = "dependencies";
  explicit Dependencies(const Fusion& fusion);

  // Position of the expr in fusion.exprs(ExprSet::All); -1 if it was created later.
  [[nodiscard]] int position(const Expr* expr) const;
  // Whether `later` is computed from `earlier` (a value is computed from itself).
  [[nodiscard]] bool dependsOn(const Val* later, const Val* earlier) const;
  // Exprs on a path from a value of `from` to a value of `to`, in topological order.
  [[nodiscard]] std::vector<Expr*> between(std::span<Val* const> from, std::span<Val* const> to) const;
  // Exprs that `to` needs, in topological order.
  [[nodiscard]] std::vector<Expr*> upstream(std::span<Val* const> to) const;
  // Exprs that need a value of `from`, in topological order.
  [[nodiscard]] std::vector<Expr*> downstream(std::span<Val* const> from) const;

 private:
  const Fusion& fusion_;
  std::vector<Expr*> order_;
  std::vector<int> position_;  // by id of expr
};

}  // namespace meshfuse
