#!/usr/bin/env python3
"""How fast is meshfuse on CPUs against JAX and PyTorch, eager and compiled? run.py [--rounds N] [--json FILE] SIDE_PROGRAM [PART_OF_A_NAME..]

Each side is a process of its own with two threads, buffers that are reused and huge pages. In each round all sides run in turn; a figure is
the median over the rounds of the ratio of a peer's time to that of meshfuse, and the ratio of a workload is that of its fastest peer. The
results of all sides are compared before.
"""

import argparse
import ast
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy
from workloads import WORKLOADS

HERE = pathlib.Path(__file__).resolve().parent
PEERS = ["jax", "torch", "compiled"]
# The largest difference of two results, of the largest element, by the type of the inputs: sides round and order sums as they like
ALLOWED = {"float": 1e-4, "double": 1e-11, "bf16": 1 / 32}
TURN = 0.06  # seconds of calls
# No block of memory goes back to the system, and all are of huge pages
MALLOC = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184:glibc.malloc.arena_max=1"
SYMBOLS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}


def steps_of(text):
    """A program as a list of steps [result, operation, operands]; operands are names, numbers and lists of numbers."""
    steps = []

    def value(node, name=None):
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.BinOp):
            operation, operands = SYMBOLS[type(node.op)], [node.left, node.right]
        elif isinstance(node, ast.Call):
            operation, operands = node.func.id, node.args
        else:
            return ast.literal_eval(node)
        operands = [value(o) for o in operands]
        steps.append([name or f"t{len(steps)}", operation, operands])
        return steps[-1][0]

    for statement in ast.parse(text).body[:-1]:
        value(statement.value, statement.targets[0].id)
    return {"result": value(ast.parse(text).body[-1].value), "steps": steps}


def write_input(text, folder, random):
    name, rest = text.split(":")
    words = rest.split()
    extents, kind = [int(w) for w in words if w.isdigit()], [w for w in words if not w.isdigit()]
    file = f"{folder}/{name}"
    if kind == ["below"]:
        bound = extents.pop()
        random.integers(0, bound, extents).tofile(file)
        return {"name": name, "file": file, "extents": extents, "type": "int"}
    type_name = kind[0] if kind else "float"
    # weights of a layer, such as w0_1, are of a size that keeps the activations about 1
    scale = extents[-1] ** -0.5 if len(extents) == 2 and name[0] == "w" else 1
    array = random.standard_normal(extents, numpy.float64 if type_name == "double" else numpy.float32) * numpy.float32(scale)
    (array.astype(ml_dtypes.bfloat16) if type_name == "bf16" else array).tofile(file)
    return {"name": name, "file": file, "extents": extents, "type": type_name}


class Side:
    def __init__(self, command, malloc):
        environment = dict(os.environ, OMP_NUM_THREADS="2", MKL_NUM_THREADS="2", JAX_PLATFORMS="cpu", CUDA_VISIBLE_DEVICES="")
        if malloc:
            environment["GLIBC_TUNABLES"] = MALLOC
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE, env=environment)

    def tell(self, **request):
        print(json.dumps(request), file=self.process.stdin, flush=True)

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{' '.join(self.process.args)} has ended")
        return json.loads(line)


def difference(results, expected):
    """The largest difference of two lists of results, of the largest finite element of each. Infinities and NaNs must be at the same places."""
    worst = 0.0
    for a, b in zip(results, expected, strict=True):
        if a.shape != b.shape:
            return math.inf
        finite = numpy.isfinite(a) & numpy.isfinite(b)
        if not numpy.array_equal(a[~finite], b[~finite], equal_nan=True):
            return math.inf
        a, b = a[finite], b[finite]
        if b.size:
            worst = max(worst, float(numpy.max(numpy.abs(a - b)) / (numpy.max(numpy.abs(b)) or 1)))
    return worst


def ratios_of(workload, sides, rounds, random):
    """{variant: ratio}, milliseconds of meshfuse, the largest difference of two sides, whether it is allowed."""
    side_of = {"meshfuse": sides[0], "jax": sides[1], "torch": sides[2], "compiled": sides[2]}
    results, kinds = {}, set()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        inputs = [write_input(i, folder, random) for i in workload.inputs]
        kinds = {i["type"] for i in inputs} - {"int"}
        for side in sides:
            side.tell(do="prepare", program=workload.program, inputs=inputs, **steps_of(workload.program), out=f"{folder}/out")
            for variant, files in side.answer().items():
                results[variant] = [numpy.fromfile(f) for f in files]
                for file in files:
                    os.remove(file)
    # a sort's indices differ between sides where values are equal
    compared = 1 if "topk" in workload.program else None
    apart = max(difference(results[p][:compared], results["meshfuse"][:compared]) for p in PEERS)
    seconds = {variant: [] for variant in side_of}
    for _ in range(rounds):
        for variant, side in side_of.items():
            side.tell(do="time", variant=variant, seconds=TURN)
            seconds[variant].append(side.answer())
    ratios = {p: statistics.median(a / b for a, b in zip(seconds[p], seconds["meshfuse"])) for p in PEERS}
    return ratios, 1e3 * statistics.median(seconds["meshfuse"]), apart, apart <= max(ALLOWED[k] for k in kinds)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json")
    parser.add_argument("ours")
    parser.add_argument("parts", nargs="*")
    arguments = parser.parse_intermixed_args()
    chosen = [w for w in WORKLOADS if not arguments.parts or any(part in w.name for part in arguments.parts)]
    if not chosen:
        sys.exit("no workload has such a name; there are: " + ", ".join(w.name for w in WORKLOADS))
    sides = [Side([os.path.abspath(arguments.ours)], False)] + [Side([sys.executable, f"{p}_side.py"], True) for p in ("jax", "torch")]
    print(f"{'times of peers over ours':<26} {'ours, ms':>9}" + "".join(f"{p:>10}" for p in PEERS) + f"{'best':>8}{'goal':>7}  difference")
    rows, wrong = [], []
    random = numpy.random.default_rng(1)
    for workload in chosen:
        ratios, milliseconds, apart, agrees = ratios_of(workload, sides, arguments.rounds, random)
        best = min(ratios.values())
        print(f"{workload.name:<26} {milliseconds:>9.3f}" + "".join(f"{ratios[p]:>10.2f}" for p in PEERS)
              + f"{best:>8.2f}{workload.goal:>7}  {apart:.1e}{'' if best >= workload.goal else '  short'}", flush=True)
        if not agrees:
            wrong.append(f"{workload.name}: results differ by {apart:.2g} of the largest element")
        rows.append({"name": f"peers {workload.name}", "figure": best, "unit": "of best peer", "goal": workload.goal, "better": "higher"})
    print(f"geometric mean {math.exp(statistics.fmean(math.log(r['figure']) for r in rows)):.2f}")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
