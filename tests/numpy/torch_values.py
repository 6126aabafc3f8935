#!/usr/bin/env python3
"""Compares the written-down results of elementwise ops, tests/point_values.h, with PyTorch's on a CPU. Prints each row that differs.

  torch_values.py

Exit status: 1 if a row differs that csrc/ir/point_op.h does not name, 77 without PyTorch.
"""
import math
import os
import re
import sys

try:
    import torch
except ImportError:
    print("no PyTorch: pip install torch")
    sys.exit(77)

HEADER = os.path.join(os.path.dirname(__file__), "..", "point_tables.h")
TABLES = {  # by type
    torch.float32: ["RealValues", "FloatValues"],
    torch.float64: ["RealValues", "DoubleValues"],
    torch.int8: ["IntegerValues", "IntegerEnds"],
    torch.int16: ["IntegerValues", "IntegerEnds"],
    torch.int32: ["IntegerValues", "IntegerEnds"],
    torch.int64: ["IntegerValues", "IntegerEnds"],
    torch.bool: ["BoolValues"],
}
NOT_IN_TORCH = {"ceilDiv", "fma"}
DIVISIONS = {"div", "mod", "fmod", "remainder"}
SIZES = (1, 33)  # of the tensors: PyTorch has other code for vectors


def rows(table):
    """(op, operands, whether the result is exact, result) of each row, as texts."""
    op, operands, exact = None, [], None
    for word in table.split():
        if word.endswith(":"):
            op, operands, exact = word[:-1], [], None
        elif word in "=~":
            exact = word == "="
        elif exact is None:
            operands.append(word.rstrip(","))
        else:
            yield op, operands, exact, word.rstrip(";")
            operands, exact = [], None


def number(text, dtype):
    if dtype.is_floating_point:
        return float.fromhex(text) if "x" in text else float(text)
    if dtype == torch.bool:
        return int(text)
    range_ = torch.iinfo(dtype)
    ends = {"L": range_.min, "H": range_.max, "W": range_.bits, "V": range_.bits - 1}
    return ends[text] if text in ends else int(text)


def compute(op, operands, dtype):
    if op == "where":
        return torch.where(operands[0].bool(), *operands[1:])
    if op == "div" and not dtype.is_floating_point:
        return torch.div(*operands, rounding_mode="trunc")
    return getattr(torch, "fmod" if op == "mod" else op)(*operands)


def is_close(a, b, exact, dtype):
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    if exact:
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    return abs(a - b) <= 4 * torch.finfo(dtype).eps * abs(b)


def is_named(op, operands, dtype):
    """Whether csrc/ir/point_op.h says that PyTorch differs there."""
    if op == "sign" and operands == ["nan"]:
        return True
    return not dtype.is_floating_point and op in DIVISIONS and operands[1] == "0"


def main():
    compared = named = wrong = 0
    with open(HEADER, encoding="utf-8") as file:
        tables = dict(re.findall(r'\bk(\w+) = R"\((.*?)\)"', file.read(), re.S))
    for dtype, names in TABLES.items():
        for op, texts, exact, expected in (row for name in names for row in rows(tables[name])):
            if op in NOT_IN_TORCH:
                continue
            if op in DIVISIONS and texts == ["L", "-1"] and dtype in (torch.int32, torch.int64):
                named += 1  # ends the process
                continue
            values = [number(text, dtype) for text in texts]
            for size in SIZES:
                compared += 1
                try:
                    got = compute(op, [torch.full((size,), v, dtype=dtype) for v in values], dtype)[size // 2].item()
                except RuntimeError as error:
                    got = str(error).split("\n", 1)[0]
                if not isinstance(got, str) and is_close(got, number(expected, dtype), exact, dtype):
                    continue
                if is_named(op, texts, dtype):
                    named += 1
                    continue
                wrong += 1
                print(f"{dtype} [{size}] {op}: {', '.join(texts)} = {expected}; PyTorch: {got}")
    print(f"PyTorch {torch.__version__}: {compared} compared, {named} differ as csrc/ir/point_op.h says, {wrong} differ")
    return 1 if wrong or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
