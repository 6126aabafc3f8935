"""Computes a program with NumPy: each op in float64 or int64, rounded to the type that the text declares."""
import re

import numpy as np

import fir
import lines
import philox
import point
from bounded import MANTISSA, Bounded, bit_cast, cast, exact, rounded, ulp, wrap


class Unknown(Exception):
    """Something that this evaluator does not know."""


class Evaluation:
    def __init__(self, program, inputs, partials):
        self.partials = partials
        self.symbols = {}
        self.values = {}
        self.made_by = {}
        for line, given in zip(program.inputs, inputs, strict=True):
            result = line.results[0]
            self.values[result.name] = given
            for (_, extent), size in zip(result.dims or [], given.shape, strict=True):
                if extent.isidentifier():
                    self.symbols.setdefault(extent, size)
            self.bind_number(result)
        for line in program.lines:
            self.run(line)

    def bind_number(self, result):
        if result.extent and result.extent.isidentifier():
            self.symbols[result.extent] = int(self.values[result.name].value)

    def run(self, line):
        result = line.results[0]
        self.made_by[result.name] = line
        sizes = None if result.dims is None else self.sizes(result)
        value = self.compute(line, result, sizes)
        if value.dtype != result.dtype:
            value = cast(result.dtype, value)
        if sizes is not None and value.shape != sizes:
            raise Unknown(f"{line.op} gives the shape {value.shape}, {result.name} has {sizes}")
        self.values[result.name] = value
        self.bind_number(result)

    def sizes(self, result):
        return tuple(self.integer(extent) for mark, extent in result.dims if mark != "r")

    def integer(self, text):
        return fir.integer(text, self.symbols)

    def integers(self, line, key):
        return fir.integers(line.attributes.get(key, ""), self.symbols)

    def operand(self, text):
        """A value, a constant (1.0, true), or an integer expression."""
        if text in self.values:
            return self.values[text]
        if text in ("true", "false"):
            return exact("Bool", text == "true")
        if re.fullmatch(r"-?(inf|nan|\d[\d.e+-]*[.e][\d.e+-]*)", text):
            return exact("Double", float(text))
        return exact("Int", self.integer(text))

    def compute(self, line, result, sizes):
        operands = [self.operand(text) for text in line.operands]
        if point.is_op(line.op):
            return point.evaluate(line.op, operands, [o.startswith("T") for o in line.operands], result.dtype)
        method = getattr(self, "op_" + line.op, None)
        if method is None:
            raise Unknown(f"the op {line.op}")
        return method(line, result, sizes, *operands)

    # -- copies and shapes

    def op_set(self, line, result, sizes, x):
        return x

    op_segment_set = op_redistribute = op_set

    def op_cast(self, line, result, sizes, x):
        return cast(result.dtype, x)

    def op_bit_cast(self, line, result, sizes, x):
        return bit_cast(result.dtype, x)

    def op_reshape(self, line, result, sizes, x):
        return x.moved(lambda a: a.reshape(sizes))

    def op_broadcast(self, line, result, sizes, x):
        fresh = tuple(k for k, flag in enumerate(fir.flags(line.attributes["flags"])) if flag)
        return x.moved(lambda a: np.expand_dims(a, fresh))

    def op_squeeze(self, line, result, sizes, x):
        dropped = tuple(k for k, flag in enumerate(fir.flags(line.attributes["flags"])) if flag)
        return x.moved(lambda a: np.squeeze(a, dropped))

    def op_expand(self, line, result, sizes, x):
        return x.moved(lambda a: np.broadcast_to(a, sizes))

    def op_permute(self, line, result, sizes, x):
        return x.moved(lambda a: np.transpose(a, self.integers(line, "order")))

    def op_slice(self, line, result, sizes, x):
        ranges = tuple(slice(*r) for r in zip(*(self.integers(line, key) for key in ("starts", "stops", "steps"))))
        return x.moved(lambda a: a[ranges])

    def op_pad(self, line, result, sizes, x, fill):
        left, right = self.integers(line, "starts"), self.integers(line, "stops")
        cut = tuple(slice(max(-l, 0), n - max(-r, 0)) for l, r, n in zip(left, right, x.shape))
        widths = [(max(l, 0), max(r, 0)) for l, r in zip(left, right)]
        fill = cast(x.dtype, fill)
        return Bounded(x.dtype, np.pad(x.value[cut], widths, constant_values=fill.value),
                       np.pad(x.error[cut], widths, constant_values=fill.error))

    def op_cat(self, line, result, sizes, *parts):
        dim = int(line.attributes["dim"])
        return Bounded(result.dtype, np.concatenate([p.value for p in parts], dim),
                       np.concatenate([p.error for p in parts], dim))

    # -- lines and products

    def op_reduce(self, line, result, sizes, x):
        axes = [k for k, (mark, _) in enumerate(result.dims) if mark == "r"]
        return lines.reduced(line.attributes["op"], x, axes, self.partials)

    def op_scan(self, line, result, sizes, x):
        return lines.scanned(line.attributes["op"], x, int(line.attributes["dim"]))

    def op_argsort(self, line, result, sizes, x):
        dim = int(line.attributes["dim"])
        return lines.argsorted(x, dim, fir.flags(line.attributes["flags"])[0], sizes[dim])

    def op_matmul(self, line, result, sizes, a, b):
        return lines.contracted(result.dtype, a, b, np.matmul, None, self.partials)

    def op_linear(self, line, result, sizes, x, weight, bias=None):
        return lines.contracted(result.dtype, x, weight, lambda a, b: np.matmul(a, b.T), bias, self.partials)

    # -- indices: positions that may be others leave nothing certain

    def op_take_along_axis(self, line, result, sizes, x, index):
        dim = int(line.attributes["dim"])
        shapes = [list(x.shape), list(index.shape)]
        for k in range(len(sizes)):
            if k != dim:
                shapes[0][k] = shapes[1][k] = sizes[k]
        places = np.broadcast_to(index.value, shapes[1])
        taken = x.moved(lambda a: np.take_along_axis(np.broadcast_to(a, shapes[0]), places, dim))
        error = np.where(np.broadcast_to(index.error, shapes[1]) > 0, np.inf, taken.error)
        sort = self.made_by.get(line.operands[1])
        if sort and sort.op == "argsort" and sort.operands[0] == line.operands[0] and int(sort.attributes["dim"]) == dim:
            # elements in order move by no more than the largest error
            largest = x.error.max(axis=dim, keepdims=True, initial=0)
            largest = np.where(np.isnan(x.value).any(axis=dim, keepdims=True) & (largest > 0), np.inf, largest)
            error = np.minimum(error, np.maximum(taken.error, largest))
        return Bounded(x.dtype, taken.value, error)

    def op_gather(self, line, result, sizes, x, index):
        dim = int(line.attributes["dim"])
        part = tuple(slice(None) if k == dim else slice(n) for k, n in enumerate(index.shape))
        taken = x.moved(lambda a: np.take_along_axis(a[part], index.value, dim))
        return Bounded(x.dtype, taken.value, np.where(index.error > 0, np.inf, taken.error))

    def op_index_select(self, line, result, sizes, x, index):
        dim = int(line.attributes["dim"])
        taken = x.moved(lambda a: np.take(a, index.value, dim))
        unknown = (index.error > 0).reshape([-1 if k == dim else 1 for k in range(len(x.shape))])
        return Bounded(x.dtype, taken.value, np.where(unknown, np.inf, taken.error))

    def op_embedding(self, line, result, sizes, index, weight):
        taken = weight.moved(lambda a: a[index.value])
        return Bounded(weight.dtype, taken.value, np.where(index.error[..., None] > 0, np.inf, taken.error))

    def op_scatter(self, line, result, sizes, x, index, source):
        dim = int(line.attributes["dim"])
        value, error = x.value.copy(), x.error.copy()
        for j in range(index.shape[dim]):  # in order: the last one counts
            place, v, e = (np.take(a, [j], dim) for a in (index.value, source.value, source.error))
            np.put_along_axis(value, place, v, dim)
            np.put_along_axis(error, place, e, dim)
        unknown = (index.error > 0).any(axis=dim, keepdims=True)
        return Bounded(x.dtype, value, np.where(unknown, np.inf, error))

    def op_index_put_accumulate(self, line, result, sizes, x, index, rows):
        return lines.accumulated(x, index, rows, self.partials)

    # -- tensors of nothing

    def op_full(self, line, result, sizes, number):
        number = cast(result.dtype, number)
        return number.moved(lambda a: np.full(sizes, a))

    def op_iota(self, line, result, sizes, start, step):
        turns = np.arange(sizes[0]) + self.integers(line, "starts")[0]
        if result.dtype not in MANTISSA:
            return exact(result.dtype, wrap(result.dtype, start.value + turns * step.value))
        value = start.value + turns * step.value
        size = np.abs(start.value) + np.abs(turns * step.value)
        whole = np.all(value == np.rint(value)) and start.value == np.rint(start.value)
        return rounded(result.dtype, value, 0 if whole and np.all(size * ulp(result.dtype) < 1) else 4 * ulp(result.dtype) * size)

    def op_eye(self, line, result, sizes):
        row, column = self.integers(line, "starts")
        return exact(result.dtype, np.eye(*sizes, k=row - column))

    def op_random(self, line, result, sizes, seed, offset):
        starts, whole = self.integers(line, "starts"), self.integers(line, "stops")
        position = np.zeros(sizes, np.int64)
        for k, n in enumerate(sizes):
            along = (np.arange(n) + starts[k]).reshape([-1 if d == k else 1 for d in range(len(sizes))])
            position = position * whole[k] + along
        counter = int(offset.value) + int(line.attributes["ordinal"])
        wide = result.dtype == "Double"
        value, radius = philox.random(line.attributes["kind"], position, counter, int(seed.value), wide)
        # the logarithm and the root of a normal number are off by ulps, and so is the angle
        return rounded(result.dtype, value, 16 * ulp(result.dtype) * radius + (radius > 0) * 2.0**-126)


def outputs(program, inputs, partials=1):
    with np.errstate(all="ignore"):
        values = Evaluation(program, inputs, partials).values
        return [values[name] for name in program.outputs]
