// The parts of verify() of ir/text.h: what holds of each tensor's domains, what each op asks of its operands and results, and both for
// dims of contributions to a reduction.
#pragma once

#include <string>
#include <vector>

namespace meshfuse {

class Expr;
class TensorView;

// Violations are appended, one a line, each naming the value.
void verifyDomains(const TensorView& tensor, std::vector<std::string>& violations);
void verifyExpr(const Expr& expr, std::vector<std::string>& violations);
void verifyPartialDims(const TensorView& tensor, std::vector<std::string>& violations);
void verifyContributions(const Expr& expr, std::vector<std::string>& violations);

}  // namespace meshfuse
