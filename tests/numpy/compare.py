#!/usr/bin/env python3
"""Compares the results of random programs with NumPy's. README.md says what is compared.

  compare.py build/release/bin/numpy_programs FIRST LAST [--step N] [--show N] [--special]
  compare.py build/release/bin/numpy_programs FIRST LAST --plant add=sub     a check of the comparison

Exit status: 1 if a result is wrong, or a program ended with anything but results or a UserError. With --plant: 0 if some programs are
wrong, at least half as many as have the op, and no more.
"""
import argparse
import collections
import io
import re
import subprocess
import sys
import time

import numpy as np

import evaluate
import fir
from bounded import from_stored


class Case:
    """A program, its inputs, and what meshfuse made of it."""

    def __init__(self, seed):
        self.seed = seed
        self.text = None
        self.inputs = []
        self.whole = {}   # by output: stored elements
        self.parts = {}   # by output and rank
        self.places = {}  # the same: positions in the whole output
        self.errors = []  # way, kind, message
        self.ending = ""

    def take(self, words, data):
        key, *rest = words
        if key == "program":
            self.text = data.decode()
        elif key == "input":
            self.inputs.append(stored(data))
        elif key == "error":
            self.errors.append((*rest, data.decode()))
        elif key == "end":
            self.ending = data.decode()
        else:
            where = {"whole": self.whole, "part": self.parts, "places": self.places}[key]
            where[tuple(int(word) for word in rest)] = stored(data)


def stored(data):
    return np.lib.format.read_array(io.BytesIO(data))


def cases(stream):
    case = None
    while header := stream.readline():
        *words, size = header.decode().split()
        data = stream.read(int(size))
        if words[0] == "seed":
            case = Case(int(data))
            continue
        case.take(words, data)
        if words[0] == "end":
            yield case


def elements(dtype, array):
    return from_stored(dtype, array).value


def with_planted(text, plant):
    """The program with another op: NumPy computes what meshfuse does not."""
    op, other = plant.split("=")
    return text.replace(f"= {op}(", f"= {other}(")


class Wrong(Exception):
    """A result that is not NumPy's, with the number of elements of the output."""

    def __init__(self, message, size):
        super().__init__(message)
        self.size = size


STORED_AS = {"Double": "<f8", "Float": "<f4", "Half": "<f2", "BFloat16": "|V2", "Int": "<i8", "Int32": "<i4", "Short": "<i2",
             "Char": "|i1", "UInt16": "<u2", "Byte": "|u1", "Bool": "|b1"}


def check(what, array, expected, value, error):
    """Elements within the bound, or equal if they are no numbers."""
    if array.dtype != np.dtype(STORED_AS[expected.dtype]) or array.shape != value.shape:
        raise Wrong(f"{what}: got {array.dtype}{array.shape}, expected {expected.dtype}{value.shape}", value.size)
    got = elements(expected.dtype, array)
    with np.errstate(invalid="ignore"):
        right = (got == value) | (np.abs(got - value) <= error) | ~np.isfinite(error) | (np.isnan(got) & np.isnan(value))
    if not right.all():
        at = tuple(int(k) for k in np.argwhere(~right)[0])
        raise Wrong(f"{what}: {np.count_nonzero(~right)} of {value.size} elements; the first at {list(at)}: got {got[at]}, "
                    f"expected {value[at]} up to {error[at]}", value.size)


def compare(case, tally, plant):
    text = with_planted(case.text, plant) if plant else case.text
    if text != case.text:
        tally["programs with the planted op"] += 1
    program = fir.read_program(text)
    inputs = [from_stored(line.results[0].dtype, array) for line, array in zip(program.inputs, case.inputs, strict=True)]
    expected = evaluate.outputs(program, inputs)
    if sorted(case.whole) != [(k,) for k in range(len(expected))]:
        raise Wrong(f"{len(case.whole)} outputs, expected {len(expected)}", 0)
    for k, output in enumerate(expected):
        check(f"output {k} on one rank", case.whole[(k,)], output, output.value, output.error)
        known = np.maximum(0.01, 0.01 * np.abs(output.value))
        tally["elements"] += output.value.size
        tally["elements known to no more than 1%"] += int(np.count_nonzero(~(output.error < known) & ~np.isnan(output.value)))
    if not case.parts:
        return
    ranks = 1 + max(rank for _, rank in case.parts)
    tally["programs on several ranks"] += 1
    expected = evaluate.outputs(program, inputs, ranks)
    held = [np.zeros(output.value.size, bool) for output in expected]
    for (k, rank), array in sorted(case.parts.items()):
        places = case.places[(k, rank)]
        held[k][places] = True
        value, error = (a.reshape(-1)[places] for a in (expected[k].value, expected[k].error))
        check(f"output {k} on rank {rank} of {ranks}", array, expected[k], value, error)
    for k, reached in enumerate(held):
        if not reached.all():
            raise Wrong(f"output {k}: no rank of {ranks} holds {np.count_nonzero(~reached)} of {reached.size} elements",
                        reached.size)


def without_numbers(message):
    message = message.splitlines()[0] if message else ""
    message = re.sub(r"\b[TSi]\d+", lambda m: m[0][0] + "#", message)
    return re.sub(r"\d[\d.e+-]*", "#", message)[:160]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", help="the binary numpy_programs")
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--show", type=int, default=3, help="the number of failing programs to print")
    parser.add_argument("--special", action="store_true", help="with inputs that are infinite, NaN, very large or small")
    parser.add_argument("--plant", metavar="OP=OTHER", help="NumPy computes OTHER for OP, which most such programs must show")
    options = parser.parse_args()

    start = time.monotonic()
    tally = collections.Counter()
    refused = collections.Counter()
    failures = []  # size, seed, message, text
    command = [options.programs, str(options.first), str(options.last), str(options.step)] + ["special"] * options.special
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        for case in cases(process.stdout):
            tally["programs"] += 1
            bad = [f"{way}: {kind}: {message}" for way, kind, message in case.errors if kind != "UserError"]
            if case.ending:
                bad.append(case.ending)
            for way, kind, message in case.errors:
                refused[f"{way}: {kind}: {without_numbers(message)}"] += 1
            if bad:
                tally["internal errors, crashes, hangs"] += 1
                failures.append((0, case.seed, "; ".join(bad), case.text))
            elif not case.whole:
                tally["refused"] += 1
            else:
                try:
                    compare(case, tally, options.plant)
                    tally["refused by ranks" if case.errors else "equal"] += 1
                except Wrong as wrong:
                    tally["wrong"] += 1
                    failures.append((wrong.size, case.seed, str(wrong), case.text))
                except Exception as error:  # of this evaluator
                    tally["not computed by NumPy"] += 1
                    failures.append((0, case.seed, f"{type(error).__name__} in the evaluator: {error}", case.text))
    failures.sort(key=lambda failure: failure[:2])
    print(f"seeds {options.first} to {options.last}, {time.monotonic() - start:.0f} s")
    for name, count in tally.items():
        print(f"  {count} {name}")
    for cause, count in refused.most_common():
        print(f"  refused: {count} x {cause}")
    for size, seed, message, _ in failures:
        print(f"  FAILED seed {seed}: {message[:300]}")
    for size, seed, message, text in failures[:options.show]:
        print(f"\nseed {seed}: {message[:2000]}\n{text}")
    expected = len(range(options.first, options.last + 1, options.step))
    if tally["programs"] != expected or process.returncode != 0:
        print(f"  FAILED {tally['programs']} programs came, expected {expected}; exit status {process.returncode}")
        return 1
    if options.plant:
        planted = tally["programs with the planted op"]
        return 0 if len(failures) == tally["wrong"] and planted <= 2 * tally["wrong"] <= 2 * planted and planted > 0 else 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
