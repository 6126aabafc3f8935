// The random graph of a program: ops of all families on tensors made so far.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fuzz/random.h"
#include "ir/fusion.h"
#include "tensor/argument.h"

namespace meshfuse::fuzz {

using Shape = std::vector<int64_t>;

// A tensor with a bound of its elements' magnitude, roughly.
struct Item {
  TensorView* tv = nullptr;
  double magnitude = 2;
};

[[nodiscard]] Shape shapeOf(const TensorView* tv);
[[nodiscard]] int64_t elementsOf(const Shape& shape);

class Graph {
 public:
  // symbolic: extents of inputs are known at run time only.
  // Most extents are multiples of `factor`, 1 or 3.
  Graph(Fusion& fusion, Random& random, bool symbolic, int64_t factor = 1)
      : fusion_(fusion), random_(random), symbolic_(symbolic), factor_(factor) {}

  // Inputs, `ops` ops, outputs.
  void grow(int ops);
  const std::vector<Argument>& arguments() const { return arguments_; }
  int64_t valueOf(const IntExpr& extent) const;  // with the inputs' sizes

 private:
  // Each adds one result (or more), or none if no operand at hand fits.
  void unary();
  void binary();
  void integers();
  void ternary();
  void activation();
  void cast();
  void reduction();
  void normalization();
  void reshape();
  void order();
  void window();
  void stretch();
  void join();
  void contraction();
  void indexing();
  void scanOrSort();
  void statistics();
  void factory();
  void randomness();
  void outputs();

  Shape shapeOf(const TensorView* tv) const;
  void step();
  Item pick();                      // any tensor, recent ones more often
  Item pickFloating(double limit);  // with elements of at most that magnitude, converted if need be
  Item pickInteger(double limit);
  DataType integerType(double magnitude);  // one that holds elements of that magnitude
  Item pickBool();
  Item limited(Item x, double limit);
  Item positive(Item x);  // at least 0.5
  // Of the same category of types, and a shape that stretches to x's, or to which x's stretches too.
  Item partner(const Item& x, double limit, bool stretchesX = true);
  Item indexInto(int64_t extent, const Shape& shape);
  Item input(Shape shape, DataType dtype, double low, double high);
  Val* scalar();  // a run-time number
  TensorView* toInteger(DataType dtype, TensorView* x);
  void aliases();
  Shape randomShape();
  int64_t randomExtent();
  std::vector<int64_t> someAxes(int rank);
  void add(TensorView* tv, double magnitude);

  Fusion& fusion_;
  Random& random_;
  std::vector<Item> items_;
  std::vector<Argument> arguments_;
  int inputs_ = 0;
  bool symbolic_;
  int64_t factor_;
  std::map<std::string, int64_t, std::less<>> symbols_;
  bool special_ = false;  // inputs hold elements that are no numbers
  uint64_t inputSeed_ = 0;
};

}  // namespace meshfuse::fuzz
