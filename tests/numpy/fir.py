"""Reads the text form of programs (csrc/ir/text.h): what is computed, not where."""
import re
from dataclasses import dataclass, field


@dataclass
class Result:
    name: str
    dtype: str
    dims: list = None  # (mark, extent) for each dim, the mark "" or a letter; None: a number
    extent: str = None  # of an Int number: its expression


@dataclass
class Line:
    op: str
    results: list
    operands: list = field(default_factory=list)
    attributes: dict = field(default_factory=dict)


@dataclass
class Program:
    inputs: list = field(default_factory=list)
    lines: list = field(default_factory=list)
    outputs: list = field(default_factory=list)


def split_at_commas(text):
    """The parts between commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for at, c in enumerate(text):
        if c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    return parts + [last] if last or parts else []


def closing(text, at):
    """The position of the bracket that closes the one at `at`."""
    depth = 0
    for k in range(at, len(text)):
        depth += (text[k] in "([{") - (text[k] in ")]}")
        if depth == 0:
            return k
    raise ValueError(f"nothing closes the bracket at {at} of: {text}")


def read_list(text):
    return split_at_commas(text[1:-1])


def read_dim(text):
    marked = re.fullmatch(r"([rbsp])\{(.*)\}", text)
    return (marked[1], marked[2]) if marked else ("", text)


def read_result(name, text):
    """`Float[i0, r{4}] contiguity..`, `Double`, or `Int i0*4`."""
    dtype = re.match(r"\w+", text)[0]
    rest = text[len(dtype):]
    if name.startswith("S"):
        return Result(name, dtype, extent=rest.strip() or None)
    dims = rest[1:closing(rest, 0)]
    return Result(name, dtype, [read_dim(d) for d in split_at_commas(dims)])


def read_line(text):
    names, _, rest = text.partition(" = ")
    op = re.match(r"\w+", rest)[0]
    end = closing(rest, len(op))
    operands, attributes = [], {}
    for part in split_at_commas(rest[len(op) + 1:end]):
        key, equals, value = part.partition("=")
        if equals:
            attributes[key] = value
        else:
            operands.append(part)
    types = rest[end + 1:].split(" : ")[1:]
    results = [read_result(n.strip(), t) for n, t in zip(names.split(","), types, strict=True)]
    return Line(op, results, operands, attributes)


def read_program(text):
    program = Program()
    for line in text.splitlines():
        line = line.split("#")[0].strip()
        word = line.split(" ")[0]
        if word == "output":
            program.outputs.append(line.split(" ")[1])
        elif re.fullmatch(r"[TS]\d+,?", word):
            read = read_line(line)
            (program.inputs if read.op == "input" else program.lines).append(read)
        elif word not in ("fusion", "}", "mesh", "symbol", "planner", "alias", ""):
            raise ValueError(f"a line that begins with '{word}'")
    return program


FUNCTIONS = {
    "floorDiv": lambda a, b: a // b,
    "ceilDiv": lambda a, b: -(-a // b),
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
}


def integer(text, symbols):
    """The value of an integer expression."""
    return int(eval(text, {"__builtins__": {}}, {**FUNCTIONS, **symbols}))  # Python's grammar has them all


def integers(text, symbols):
    return [integer(part, symbols) for part in read_list(text)] if text else []


def flags(text):
    return [part == "t" for part in read_list(text)]
