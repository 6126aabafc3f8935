#include "tile/programs.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "tile/builder.h"

namespace meshfuse::tile {

namespace {

using enum Level;
using enum PointOp;

DataType computeType(DataType dtype) { return dtype == DataType::Double ? DataType::Double : DataType::Float; }

int64_t ceilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Elements of 16 bytes on a GPU; of 64 bytes of the type computed in on a CPU.
int64_t vectorOf(Target target, DataType dtype) {
  return target == Target::Gpu ? 16 / dataTypeSize(dtype) : 64 / dataTypeSize(computeType(dtype));
}

// A builder with what the examples share: sizes with honest facts, contiguous tensors, arithmetic in the compute type.
struct Writer {
  Writer(const std::string& name, Target target, DataType dtype)
      : b(name + "_" + std::string(info(dtype).token), target),
        target(target),
        dtype(dtype),
        wide(computeType(dtype)) {}

  IntExpr size(std::string name, int64_t value) {
    int64_t divisor = value == 0 ? 64 : std::min<int64_t>(64, value & -value);
    sizes.push_back(value);
    return b.size(std::move(name), {.lower = 1, .divisor = divisor});
  }
  int64_t scalar(std::string name, DataType type, double value) {
    scalars.push_back(value);
    return b.scalar(std::move(name), type);
  }
  int64_t tensor(std::string name, Memory memory, std::vector<IntExpr> extents, DataType type, bool zeroed = false) {
    std::vector<IntExpr> strides(extents.size(), 1);
    for (size_t i = extents.size(); i-- > 1;) {
      strides[i - 1] = strides[i] * extents[i];
    }
    return b.tensor({std::move(name), type, memory, std::move(extents), std::move(strides), 64, zeroed});
  }
  int64_t tensor(std::string name, Memory memory, std::vector<IntExpr> extents) {
    return tensor(std::move(name), memory, std::move(extents), dtype);
  }
  // The element, in the compute type.
  ValueId load(int64_t tensor, std::vector<Index> index, int64_t space, AccessOptions options = {}) {
    return b.cast(b.load(tensor, std::move(index), space, std::move(options)), wide);
  }
  void store(int64_t tensor, std::vector<Index> index, ValueId value, Cache cache = Cache::Keep) {
    b.store(tensor, std::move(index), b.cast(value, b.program().tensors[tensor].dtype), {.cache = cache});
  }
  ValueId constant(double value) { return b.constant(wide, value); }
  ValueId op(PointOp op, std::vector<ValueId> operands) { return b.point(op, std::move(operands)); }
  // The element count as a value of the compute type.
  ValueId count(const IntExpr& n, int64_t space) { return b.cast(b.indexValue(n, space), wide); }
  // A loop without carried values.
  void each(int64_t space, int64_t axis, int64_t digit, const std::function<void()>& body) {
    b.loop(space, axis, digit, {}, [&](std::span<const ValueId>) {
      body();
      return std::vector<ValueId>{};
    });
  }
  // combiner over a loop of value(), spread over `digits` until the loop ends, then over axis `axis` at once.
  ValueId reduceLoop(int64_t space, int64_t axis, int64_t digit, Combiner combiner, PointOp step, uint64_t digits,
                     const std::function<ValueId()>& value) {
    ValueId start = identity(b, combiner, wide, space, digits);
    ValueId partial = b.loop(space, axis, digit, {start}, [&](std::span<const ValueId> carried) {
      return std::vector<ValueId>{op(step, {carried[0], value()})};
    })[0];
    return b.reduceAxis(partial, axis, combiner);
  }
  uint64_t digits(int64_t space, int64_t axis) const { return axisDigits(b.program().spaces[space], axis); }
  Example take() { return {b.take(), std::move(sizes), std::move(scalars)}; }

  Builder b;
  Target target;
  DataType dtype;
  DataType wide;
  std::vector<int64_t> sizes;
  std::vector<double> scalars;
};

// Rows of `n` columns in registers of a block: short rows one a warp, longer ones one a block; repeats take the waste.
int64_t registerRows(Writer& w, const IntExpr& m, const IntExpr& n, int64_t columns) {
  int64_t v = vectorOf(w.target, w.dtype);
  if (columns <= 32 * v * 4) {
    int64_t rows = 4;
    w.b.gridDim("pm", ceilDiv(m, rows));
    return w.b.space("s", {{"m", m, {{Part, 0, "pm"}, {Warp, rows}}},
                           {"n", n, {{Repeat, ceilDivide(columns, 32 * v)}, {Lane, 32}, {Vector, v}}}});
  }
  int64_t warps = std::min<int64_t>(
      32, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(ceilDivide(columns, 32 * v * 4)))));
  w.b.gridDim("pm", m);
  return w.b.space("s",
                   {{"m", m, {{Part, 0, "pm"}}},
                    {"n", n, {{Repeat, ceilDivide(columns, 32 * v * warps)}, {Warp, warps}, {Lane, 32}, {Vector, v}}}});
}

// Parts of 16 rows, a row in a loop of four vectors.
int64_t loopRows(Writer& w, const IntExpr& m, const IntExpr& n) {
  constexpr int64_t kRows = 16;
  w.b.gridDim("pm", ceilDiv(m, kRows));
  return w.b.space("s", {{"m", m, {{Part, 0, "pm"}, {Serial, kRows}}},
                         {"n", n, {{Serial, 0}, {Repeat, 4}, {Vector, vectorOf(w.target, w.dtype)}}}});
}

// body(m, n) for every element of an [m, n] space, in parts and loops as the target likes them.
void pointwise(Writer& w, const IntExpr& m, const IntExpr& n,
               const std::function<void(int64_t, IntExpr, IntExpr)>& body) {
  if (w.target == Target::Gpu) {
    int64_t v = vectorOf(w.target, w.dtype);
    w.b.gridDim("pm", m);
    w.b.gridDim("pn", ceilDiv(n, 2 * 4 * 32 * v));
    int64_t s = w.b.space("s", {{"m", m, {{Part, 0, "pm"}}},
                                {"n", n, {{Part, 0, "pn"}, {Repeat, 2}, {Warp, 4}, {Lane, 32}, {Vector, v}}}});
    body(s, w.b.coord(s, 0), w.b.coord(s, 1));
    return;
  }
  int64_t s = loopRows(w, m, n);
  w.each(s, 0, 1, [&] { w.each(s, 1, 0, [&] { body(s, w.b.coord(s, 0), w.b.coord(s, 1)); }); });
}

// body(n) for every element of a row.
void pointwise(Writer& w, const IntExpr& n, const std::function<void(int64_t, IntExpr)>& body) {
  int64_t v = vectorOf(w.target, w.dtype);
  if (w.target == Target::Gpu) {
    w.b.gridDim("pn", ceilDiv(n, 4 * 4 * 32 * v));
    int64_t s = w.b.space("s", {{"n", n, {{Part, 0, "pn"}, {Repeat, 4}, {Warp, 4}, {Lane, 32}, {Vector, v}}}});
    body(s, w.b.coord(s, 0));
    return;
  }
  w.b.gridDim("pn", ceilDiv(n, 8 * 4 * v));
  int64_t s = w.b.space("s", {{"n", n, {{Part, 0, "pn"}, {Serial, 8}, {Repeat, 4}, {Vector, v}}}});
  w.each(s, 0, 1, [&] { body(s, w.b.coord(s, 0)); });
}

}  // namespace

Example addProgram(Target target, DataType dtype, int64_t n) {
  Writer w("add", target, dtype);
  IntExpr extent = w.size("N", n);
  int64_t x = w.tensor("X", Memory::Input, {extent});
  int64_t y = w.tensor("Y", Memory::Input, {extent});
  int64_t z = w.tensor("Z", Memory::Output, {extent});
  pointwise(w, extent, [&](int64_t s, const IntExpr& i) {
    w.store(z, {{i}},
            w.op(Add, {w.load(x, {{i}}, s, {.cache = Cache::Once}), w.load(y, {{i}}, s, {.cache = Cache::Once})}),
            Cache::Once);
  });
  return w.take();
}

Example biasGeluProgram(Target target, DataType dtype, int64_t m, int64_t n) {
  Writer w("bias_gelu", target, dtype);
  IntExpr rows = w.size("M", m);
  IntExpr columns = w.size("N", n);
  int64_t x = w.tensor("X", Memory::Input, {rows, columns});
  int64_t bias = w.tensor("B", Memory::Input, {columns});
  int64_t y = w.tensor("Y", Memory::Output, {rows, columns});
  pointwise(w, rows, columns, [&](int64_t s, const IntExpr& i, const IntExpr& j) {
    ValueId a = w.op(Add, {w.load(x, {{i}, {j}}, s), w.load(bias, {{j}}, s)});
    ValueId phi = w.op(Add, {w.op(Erf, {w.op(Mul, {a, w.constant(0.70710678118654752)})}), w.constant(1)});
    w.store(y, {{i}, {j}}, w.op(Mul, {w.op(Mul, {a, w.constant(0.5)}), phi}));
  });
  return w.take();
}

Example softmaxProgram(Target target, DataType dtype, int64_t m, int64_t n) {
  Writer w("softmax", target, dtype);
  IntExpr rows = w.size("M", m);
  IntExpr columns = w.size("N", n);
  int64_t x = w.tensor("X", Memory::Input, {rows, columns});
  int64_t y = w.tensor("Y", Memory::Output, {rows, columns});
  if (target == Target::Gpu) {
    int64_t s = registerRows(w, rows, columns, n);
    std::vector<Index> at{{w.b.coord(s, 0)}, {w.b.coord(s, 1)}};
    ValueId value = w.load(x, at, s);
    ValueId e = w.op(Exp, {w.op(Sub, {value, w.b.reduceAxis(value, 1, Combiner::Max)})});
    w.store(y, at, w.op(Div, {e, w.b.reduceAxis(e, 1, Combiner::Sum)}));
    return w.take();
  }
  int64_t row = w.tensor("E", Memory::Scratch, {columns}, w.wide);
  int64_t s = loopRows(w, rows, columns);
  std::vector<Index> at{{w.b.coord(s, 0)}, {w.b.coord(s, 1)}};
  std::vector<Index> inRow{at[1]};
  w.each(s, 0, 1, [&] {
    ValueId mx = w.reduceLoop(s, 1, 0, Combiner::Max, Maximum, w.digits(s, 1), [&] { return w.load(x, at, s); });
    ValueId sum = w.reduceLoop(s, 1, 0, Combiner::Sum, Add, w.digits(s, 1), [&] {
      ValueId e = w.op(Exp, {w.op(Sub, {w.load(x, at, s), mx})});
      w.store(row, inRow, e);
      return e;
    });
    w.each(s, 1, 0, [&] { w.store(y, at, w.op(Div, {w.load(row, inRow, s), sum})); });
  });
  return w.take();
}

Example layerNormProgram(Target target, DataType dtype, int64_t m, int64_t n) {
  Writer w("layer_norm", target, dtype);
  IntExpr rows = w.size("M", m);
  IntExpr columns = w.size("N", n);
  int64_t eps = w.scalar("eps", w.wide, 1e-5);
  int64_t x = w.tensor("X", Memory::Input, {rows, columns});
  int64_t weight = w.tensor("W", Memory::Input, {columns});
  int64_t bias = w.tensor("B", Memory::Input, {columns});
  int64_t y = w.tensor("Y", Memory::Output, {rows, columns});
  int64_t mean = w.tensor("Mean", Memory::Output, {rows}, w.wide);
  int64_t rstd = w.tensor("Rstd", Memory::Output, {rows}, w.wide);
  bool registers = target == Target::Gpu;
  int64_t s = registers ? registerRows(w, rows, columns, n) : loopRows(w, rows, columns);
  IntExpr i = w.b.coord(s, 0);
  IntExpr j = w.b.coord(s, 1);
  auto normalized = [&](ValueId value, ValueId mu, ValueId r) {
    ValueId scaled = w.op(Mul, {w.op(Mul, {w.op(Sub, {value, mu}), r}), w.load(weight, {{j}}, s)});
    w.store(y, {{i}, {j}}, w.op(Add, {scaled, w.load(bias, {{j}}, s)}));
  };
  auto inverse = [&](ValueId squares, ValueId total) {
    return w.op(Rsqrt, {w.op(Add, {w.op(Div, {squares, total}), w.b.scalarValue(eps, s)})});
  };
  if (registers) {
    ValueId total = w.count(columns, s);
    ValueId value = w.b.keep(w.load(x, {{i}, {j}}, s));
    ValueId mu = w.op(Div, {w.b.reduceAxis(value, 1, Combiner::Sum), total});
    ValueId d = w.op(Sub, {value, mu});
    ValueId r = inverse(w.b.reduceAxis(w.op(Mul, {d, d}), 1, Combiner::Sum), total);
    w.store(mean, {{i}}, mu);
    w.store(rstd, {{i}}, r);
    normalized(value, mu, r);
    return w.take();
  }
  w.each(s, 0, 1, [&] {
    ValueId total = w.count(columns, s);
    auto load = [&] { return w.load(x, {{i}, {j}}, s); };
    ValueId mu = w.op(Div, {w.reduceLoop(s, 1, 0, Combiner::Sum, Add, w.digits(s, 1), load), total});
    ValueId squares = w.reduceLoop(s, 1, 0, Combiner::Sum, Add, w.digits(s, 1), [&] {
      ValueId d = w.op(Sub, {load(), mu});
      return w.op(Mul, {d, d});
    });
    ValueId r = inverse(squares, total);
    w.store(mean, {{i}}, mu);
    w.store(rstd, {{i}}, r);
    w.each(s, 1, 0, [&] { normalized(load(), mu, r); });
  });
  return w.take();
}

Example innerSumProgram(Target target, DataType dtype, int64_t m, int64_t n) {
  Writer w("inner_sum", target, dtype);
  IntExpr rows = w.size("M", m);
  IntExpr columns = w.size("N", n);
  int64_t x = w.tensor("X", Memory::Input, {rows, columns});
  int64_t y = w.tensor("Y", Memory::Output, {rows});
  int64_t v = vectorOf(target, dtype);
  if (target == Target::Gpu) {  // rows of any length: a loop over register chunks, two rows a block
    w.b.gridDim("pm", ceilDiv(rows, 2));
    int64_t s = w.b.space("s", {{"m", rows, {{Part, 0, "pm"}, {Warp, 2}}},
                                {"n", columns, {{Serial, 0}, {Repeat, 2}, {Warp, 2}, {Lane, 32}, {Vector, v}}}});
    std::vector<Index> at{{w.b.coord(s, 0)}, {w.b.coord(s, 1)}};
    ValueId sum =
        w.reduceLoop(s, 1, 0, Combiner::Sum, Add, w.digits(s, 0) | w.digits(s, 1), [&] { return w.load(x, at, s); });
    w.store(y, {at[0]}, sum);
    return w.take();
  }
  int64_t s = loopRows(w, rows, columns);
  std::vector<Index> at{{w.b.coord(s, 0)}, {w.b.coord(s, 1)}};
  w.each(s, 0, 1, [&] {
    ValueId sum = w.reduceLoop(s, 1, 0, Combiner::Sum, Add, w.digits(s, 1), [&] { return w.load(x, at, s); });
    w.store(y, {at[0]}, sum);
  });
  return w.take();
}

Example outerSumProgram(Target target, DataType dtype, int64_t m, int64_t n) {
  Writer w("outer_sum", target, dtype);
  bool gpu = target == Target::Gpu;
  IntExpr rows = w.size("M", m);
  IntExpr columns = w.size("N", n);
  int64_t v = vectorOf(target, dtype);
  int64_t partRows = gpu ? 64 : 32;
  int64_t partColumns = 8 * v;
  IntExpr parts = ceilDiv(rows, partRows);
  IntExpr blocks = ceilDiv(columns, partColumns);
  int64_t x = w.tensor("X", Memory::Input, {rows, columns});
  int64_t y = w.tensor("Y", Memory::Output, {columns});
  int64_t partial = w.tensor("P", Memory::Workspace, {parts, columns}, w.wide);
  int64_t counter = w.tensor("C", Memory::Workspace, {blocks}, DataType::Int32, true);
  IntExpr pm = w.b.gridDim("pm", parts);
  IntExpr pn = w.b.gridDim("pn", blocks);
  using Digits = std::vector<Builder::DigitSpec>;
  // The first space sums a part's rows, the second one the parts.
  int64_t s = w.b.space("s", {{"m", rows,
                               gpu ? Digits{{Part, 0, "pm"}, {Serial, 2}, {Repeat, 2}, {Warp, 4}, {Lane, 4}}
                                   : Digits{{Part, 0, "pm"}, {Serial, 8}, {Repeat, 4}}},
                              {"n", columns,
                               gpu ? Digits{{Part, 0, "pn"}, {Lane, 8}, {Vector, v}}
                                   : Digits{{Part, 0, "pn"}, {Serial, 4}, {Repeat, 2}, {Vector, v}}}});
  int64_t t = w.b.space("t", {{"k", parts, {{Serial, 0}}},
                              {"j", columns,
                               gpu ? Digits{{Part, 0, "pn"}, {Lane, 8}, {Vector, v}}
                                   : Digits{{Part, 0, "pn"}, {Serial, 4}, {Repeat, 2}, {Vector, v}}}});
  auto sumRows = [&] {
    ValueId sum = w.reduceLoop(s, 0, 1, Combiner::Sum, Add, w.digits(s, 0) | w.digits(s, 1), [&] {
      return w.load(x, {{w.b.coord(s, 0)}, {w.b.coord(s, 1)}}, s, {.cache = Cache::Once});
    });
    w.store(partial, {{pm}, {w.b.coord(s, 1)}}, sum);
  };
  auto sumParts = [&] {
    ValueId sum = w.reduceLoop(t, 0, 0, Combiner::Sum, Add, w.digits(t, 1), [&] {
      return w.load(partial, {{w.b.coord(t, 0)}, {w.b.coord(t, 1)}}, t);
    });
    w.store(y, {{w.b.coord(t, 1)}}, sum);
  };
  if (gpu) {
    sumRows();
    w.b.lastArriver(counter, {{pn}}, sumParts);
  } else {
    w.each(s, 1, 1, sumRows);
    w.b.lastArriver(counter, {{pn}}, [&] { w.each(t, 1, 1, sumParts); });
  }
  return w.take();
}

Example transposeProgram(Target target, DataType dtype, int64_t m, int64_t n) {
  Writer w("transpose", target, dtype);
  IntExpr rows = w.size("M", m);
  IntExpr columns = w.size("N", n);
  int64_t x = w.tensor("X", Memory::Input, {rows, columns});
  int64_t y = w.tensor("Y", Memory::Output, {columns, rows});
  auto block = [&](int64_t from, int64_t to) {
    ValueId value = w.b.load(x, {{w.b.coord(from, 0)}, {w.b.coord(from, 1)}}, from);
    w.b.store(y, {{w.b.coord(to, 1)}, {w.b.coord(to, 0)}}, w.b.convert(value, to));
  };
  if (target == Target::Gpu) {
    int64_t v = std::max<int64_t>(1, 4 / dataTypeSize(dtype));
    w.b.gridDim("pm", ceilDiv(rows, 32 * v));
    w.b.gridDim("pn", ceilDiv(columns, 32 * v));
    int64_t from = w.b.space("s", {{"m", rows, {{Part, 0, "pm"}, {Repeat, 8 * v}, {Warp, 4}}},
                                   {"n", columns, {{Part, 0, "pn"}, {Lane, 32}, {Vector, v}}}});
    int64_t to = w.b.space("t", {{"mt", rows, {{Part, 0, "pm"}, {Lane, 32}, {Vector, v}}},
                                 {"nt", columns, {{Part, 0, "pn"}, {Repeat, 8 * v}, {Warp, 4}}}});
    block(from, to);
    return w.take();
  }
  int64_t v = vectorOf(target, dtype);
  w.b.gridDim("pm", ceilDiv(rows, v));
  int64_t from =
      w.b.space("s", {{"m", rows, {{Part, 0, "pm"}, {Repeat, v}}}, {"n", columns, {{Serial, 0}, {Vector, v}}}});
  int64_t to = w.b.space(
      "t", {{"mt", rows, {{Part, 0, "pm"}, {Vector, v}}}, {"nt", columns, {{Serial, 0, "n_s"}, {Repeat, v}}}});
  w.each(from, 1, 0, [&] { block(from, to); });
  return w.take();
}

Example shiftProgram(DataType dtype, int64_t m, int64_t n) {
  Writer w("shift", Target::Cpu, dtype);
  const IntExpr rows = w.size("M", m);
  const IntExpr columns = w.size("N", n);
  const int64_t x = w.tensor("X", Memory::Input, {rows, columns});
  const int64_t z = w.tensor("Z", Memory::Input, {rows, columns});
  const int64_t y = w.tensor("Y", Memory::Output, {rows, columns});
  const int64_t fixed = w.tensor("W", Memory::Output, {rows, columns});
  const int64_t v = vectorOf(Target::Cpu, dtype);
  w.b.gridDim("pm", ceilDiv(rows, 4));
  const int64_t s =
      w.b.space("s", {{"m", rows, {{Part, 0, "pm"}, {Repeat, 4}}}, {"n", columns, {{Serial, 0}, {Vector, v}}}});
  w.each(s, 1, 0, [&] {
    const std::vector<Index> at = {{w.b.coord(s, 0)}, {w.b.coord(s, 1)}};
    const ValueId before = w.b.load(x, at, s);
    const ValueId after = w.b.load(z, at, s);
    w.b.store(y, at, w.b.shift(before, after, mod(w.b.coord(s, 0) * 3, v)));
    w.b.store(fixed, at, w.b.shift(before, after, v == 16 ? 5 : 3));
  });
  return w.take();
}

Example padCatProgram(Target target, DataType dtype, int64_t m, int64_t n, int64_t k) {
  Writer w("pad_cat", target, dtype);
  IntExpr rows = w.size("M", m);
  IntExpr first = w.size("N", n);
  IntExpr second = w.size("K", k);
  IntExpr columns = first + second + 2;
  int64_t fill = w.scalar("fill", dtype, 7);
  int64_t a = w.tensor("A", Memory::Input, {rows, first});
  int64_t b = w.tensor("B", Memory::Input, {rows, second});
  int64_t y = w.tensor("Y", Memory::Output, {rows, columns});
  pointwise(w, rows, columns, [&](int64_t s, const IntExpr& i, const IntExpr& j) {
    ValueId fillValue = w.b.scalarValue(fill, s);
    IntExpr inA = j - 1;
    IntExpr inB = j - 1 - first;
    ValueId left = w.load(a, {{i}, {inA}}, s, {.where = {{0, j}, {inA, first}}, .fill = fillValue});
    ValueId right = w.load(b, {{i}, {inB}}, s, {.where = {{first, j}, {inB, second}}, .fill = fillValue});
    ValueId isLeft = w.op(Lt, {w.b.indexValue(j, s), w.b.indexValue(first + 1, s)});
    w.store(y, {{i}, {j}}, w.op(Where, {isLeft, left, right}));
  });
  return w.take();
}

Example gatherProgram(Target target, DataType dtype, int64_t k, int64_t m, int64_t n) {
  Writer w("gather", target, dtype);
  IntExpr table = w.size("K", k);
  IntExpr rows = w.size("M", m);
  IntExpr columns = w.size("N", n);
  int64_t x = w.tensor("X", Memory::Input, {table, columns});
  int64_t index = w.tensor("I", Memory::Input, {rows}, DataType::Int);
  int64_t y = w.tensor("Y", Memory::Output, {rows, columns});
  pointwise(w, rows, columns, [&](int64_t s, const IntExpr& i, const IntExpr& j) {
    ValueId row = w.b.load(index, {{i}}, s);
    w.b.store(y, {{i}, {j}}, w.b.load(x, {{0, row}, {j}}, s));
  });
  return w.take();
}

Example dropoutProgram(Target target, DataType dtype, int64_t n) {
  Writer w("dropout", target, dtype);
  IntExpr extent = w.size("N", n);
  int64_t seed = w.scalar("seed", DataType::Int, 42);
  int64_t offset = w.scalar("offset", DataType::Int, 1000);
  int64_t keep = w.scalar("keep", DataType::Float, 0.75);
  int64_t x = w.tensor("X", Memory::Input, {extent});
  int64_t y = w.tensor("Y", Memory::Output, {extent});
  pointwise(w, extent, [&](int64_t s, const IntExpr& i) {
    ValueId position = w.op(Add, {w.b.indexValue(i, s), w.b.scalarValue(offset, s)});
    ValueId word = w.b.random(w.b.scalarValue(seed, s), w.b.integer(DataType::Int, 0), position, 0);
    ValueId uniform = w.op(Mul, {w.b.cast(word, DataType::Double), w.b.constant(DataType::Double, 0x1p-32)});
    ValueId rate = w.b.cast(w.b.scalarValue(keep, s), DataType::Double);
    ValueId scaled = w.op(Div, {w.load(x, {{i}}, s), w.b.cast(w.b.scalarValue(keep, s), w.wide)});
    w.store(y, {{i}}, w.op(Where, {w.op(Lt, {uniform, rate}), scaled, w.constant(0)}));
  });
  return w.take();
}

std::vector<NamedExample> representativePrograms() {
  using enum Target;
  using enum DataType;
  return {{"add_cpu", addProgram(Cpu, Float, 1003)},
          {"add_gpu", addProgram(Gpu, BFloat16, 4096)},
          {"bias_gelu_cpu", biasGeluProgram(Cpu, BFloat16, 20, 96)},
          {"bias_gelu_gpu", biasGeluProgram(Gpu, Half, 20, 96)},
          {"softmax_cpu", softmaxProgram(Cpu, Float, 33, 130)},
          {"softmax_gpu", softmaxProgram(Gpu, Float, 33, 1100)},
          {"layer_norm_cpu", layerNormProgram(Cpu, BFloat16, 17, 200)},
          {"layer_norm_gpu", layerNormProgram(Gpu, BFloat16, 17, 200)},
          {"inner_sum_cpu", innerSumProgram(Cpu, Float, 19, 333)},
          {"inner_sum_gpu", innerSumProgram(Gpu, Float, 19, 1333)},
          {"outer_sum_cpu", outerSumProgram(Cpu, Float, 100, 150)},
          {"outer_sum_gpu", outerSumProgram(Gpu, Half, 200, 136)},
          {"transpose_cpu", transposeProgram(Cpu, Float, 40, 70)},
          {"transpose_gpu", transposeProgram(Gpu, BFloat16, 100, 70)},
          {"pad_cat_cpu", padCatProgram(Cpu, Float, 5, 37, 64)},
          {"pad_cat_gpu", padCatProgram(Gpu, Float, 5, 37, 64)},
          {"gather_cpu", gatherProgram(Cpu, Float, 11, 21, 48)},
          {"gather_gpu", gatherProgram(Gpu, BFloat16, 11, 21, 48)},
          {"dropout_cpu", dropoutProgram(Cpu, Float, 500)},
          {"dropout_gpu", dropoutProgram(Gpu, Float, 500)}};
}

}  // namespace meshfuse::tile
