// The parts of verify() of ir/text.h: the rules for the domains of each tensor, the rules for operands and results of each op, and the
// rules for Partial dims.
#pragma once

#include <string>
#include <vector>

namespace meshfuse {

class Expr;
class TensorView;

// Violations are appended as lines; each names its value.
void verifyDomains(const TensorView& tensor, std::vector<std::string>& violations);
void verifyExpr(const Expr& expr, std::vector<std::string>& violations);
void verifyPartialDims(const TensorView& tensor, std::vector<std::string>& violations);
void verifyContributions(const Expr& expr, std::vector<std::string>& violations);

}  // namespace meshfuse
