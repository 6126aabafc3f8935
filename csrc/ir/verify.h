// The two halves of verify() of ir/text.h: what holds of each tensor's domains, and what each op asks of its operands and results.
#pragma once

#include <string>
#include <vector>

namespace meshfuse {

class Expr;
class TensorView;

// Violations are appended, one a line, each naming the value.
void verifyDomains(const TensorView& tensor, std::vector<std::string>& violations);
void verifyExpr(const Expr& expr, std::vector<std::string>& violations);

}  // namespace meshfuse
