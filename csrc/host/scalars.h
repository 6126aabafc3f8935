// Values of scalars in a call: arguments, constants, and results of scalar ops.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "digits/int_expr.h"
#include "ir/point_op.h"
#include "tensor/argument.h"

namespace meshfuse {

class Fusion;
class Val;

// Whether a symbol is the value of an Int input of the fusion.
[[nodiscard]] bool isRunTimeInteger(const Fusion& fusion, std::string_view symbol);
// An integer expression over the fusion's Int inputs.
[[nodiscard]] int64_t integerValue(const Fusion& fusion, const IntExpr& expr, std::span<const Argument> inputs);

// Scalars of a fusion as a list of steps, each computed once in a call.
class ScalarSteps {
 public:
  // Adds `val` and its operands; returns its number. `values`: of the symbols of the program.
  int64_t add(const Fusion& fusion, const Val* val, const std::map<std::string, int64_t>& values = {});
  // Computes all. Allocates nothing.
  void run(const Fusion& fusion, std::span<const Argument> inputs);
  // A value as the 8-byte slot of a kernel argument of type `type` (tile/tile.h).
  [[nodiscard]] uint64_t bits(int64_t number, DataType type) const;

 private:
  enum class Kind : uint8_t { Constant, Input, Integer, Cast, Point };
  struct Step {
    Kind kind = Kind::Constant;
    DataType dtype = DataType::Double;
    DataType type = DataType::Double;  // Point: the type of computation
    PointOp op = PointOp::Add;
    IntExpr integer = 0;  // Integer: over the symbols of Int inputs
    int64_t input = -1;
    std::array<int64_t, 3> operands = {-1, -1, -1};
    double real = 0;    // the value, of floating types
    int64_t whole = 0;  // of integers and Bool
  };
  double realOf(int64_t number) const;
  int64_t wholeOf(int64_t number) const;
  static void assign(Step& step, const Argument& value);
  void compute(Step& step) const;

  std::vector<Step> steps_;              // operands first
  std::map<int64_t, int64_t> numberOf_;  // by Val id
};

}  // namespace meshfuse
