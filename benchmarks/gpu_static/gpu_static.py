#!/usr/bin/env python3
"""How good is the machine code of kernels for sm_90, next to that of Triton? Needs no GPU: gpu_static.py [NAME...]

For each program of programs/*.fir, or those whose names begin with a NAME, a row for our kernels and one for each number of warps of the
twin in twins.py:
  instr      instructions that all threads execute, over the elements of the largest input (sass.py says how they are counted)
  ratio      ours over the twin marked *: of those without spills and with at least our occupancy the one with the fewest instructions,
             or if there is none, the one with the highest occupancy, where possible without spills
  occup      the lowest occupancy of the kernels: the part of the warps of a multiprocessor that can be resident
  regs, spill  registers of a thread, the most of the kernels; accesses of a thread to memory that stands in for registers
  moved      bytes that the accesses of the code move, over those of the inputs and outputs once; it shows wrong counts of loops
  wide       the part of these bytes in accesses of 16 bytes
  bar        barriers of a thread
Sectors and conflicts of shared memory are not counted here: the code does not have the addresses. The tests of tests/simt count them.
"""
import argparse
import math
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import sass
import twins

HERE = pathlib.Path(__file__).resolve().parent
SIZES = {"Float": 4, "BFloat16": 2, "Int": 8}
GOALS = {"median": 1.00, "worst": 1.20}


class Kernel:
    """A launch: its machine code, blocks, threads and dynamic shared memory."""

    def __init__(self, tools, cubin, blocks, threads, shared, trips, parts=()):
        run = lambda *command: subprocess.run([*command, cubin], capture_output=True, text=True, check=True).stdout
        self.counts = sass.count(run(tools["nvdisasm"], "-c"), trips, parts)
        usage = run(tools["cuobjdump"], "-res-usage")
        self.registers = int(re.search(r"REG:(\d+)", usage)[1])
        self.threads = blocks * threads
        shared_usage = shared + int(re.search(r"SHARED:(\d+)", usage)[1])
        self.occupancy = sass.occupancy(threads, self.registers, shared_usage)


def our_kernels(tools, program, trips):
    with tempfile.TemporaryDirectory() as out:
        text = subprocess.run([tools["meshfuse"], "compile", program, "--arch", "sm_90a", "-o", out], capture_output=True, text=True)
        if text.returncode:
            return text.stderr.split("; ")[0].strip()
        steps = re.findall(r"^(?:CUDA routine .*|kernel \w+)", text.stdout, re.M)
        if any(step.startswith("CUDA") for step in steps):  # whose instructions are not counted
            return ", ".join(f"the {step}" for step in steps)
        kernels = []
        launches = re.findall(r"^kernel (\w+):.*\n\s+(\d+) blocks of (\d+) threads.*?, (\d+) bytes", text.stdout, re.M)
        for (name, blocks, threads, shared), loops in zip(launches, trips or [[]] * len(launches), strict=True):
            tile = (pathlib.Path(out) / f"{name}.tile").read_text()
            parts = [int(blocks) // int(n) for n in re.findall(r"^workspace \w+ i32 \[(\d+)\].* zeroed$", tile, re.M)]  # arrivals at a counter
            kernels.append(Kernel(tools, f"{out}/{name}.cubin", int(blocks), int(threads), int(shared), loops, parts))
        return kernels


def twin_kernels(tools, name, dtype, warps):
    kernels = []
    for launch in twins.TWINS[name]:
        cubin, blocks, threads, shared, trips = twins.compiled(launch, dtype, warps)
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(cubin)
            file.flush()
            kernels.append(Kernel(tools, file.name, blocks, threads, shared, trips))
    return kernels


def tensors_of(text):
    """Elements and bytes of each input and output of a program."""
    made = {name: (dtype, shape) for name, dtype, shape in re.findall(r"(T\d+) = .* : (\w+)\[([^\]]*)\]", text)}
    names = re.findall(r"(T\d+) = input", text) + re.findall(r"output (T\d+)", text)
    for name in names:
        dtype, shape = made[name]
        elements = math.prod(int(e) for e in shape.split(", ") if not e.startswith("r"))
        yield elements, elements * SIZES[dtype]


class Row:
    def __init__(self, kernels, tensors):
        self.instructions = sum(k.threads * k.counts.instructions for k in kernels) / max(e for e, _ in tensors)
        self.occupancy = min(k.occupancy for k in kernels)
        self.registers = max(k.registers for k in kernels)
        self.spills = sum(k.counts.spills for k in kernels)
        self.barriers = sum(k.counts.barriers for k in kernels)
        moved, wide = 0, 0
        for k in kernels:
            for accesses in (k.counts.loads, k.counts.stores):
                moved += k.threads * sum(size * n for size, n in accesses.items())
                wide += k.threads * 16 * accesses.get(16, 0)
        self.moved = moved / sum(b for _, b in tensors)
        self.wide = wide / moved

    def text(self):
        return (
            f"{self.instructions:7.2f} {self.occupancy:6.2f} {self.registers:5} {self.spills:5g} {self.moved:6.2f} {self.wide:5.2f} "
            f"{self.barriers:4g}"
        )


def main():
    triton_tools = pathlib.Path(twins.triton.__file__).parent / "backends/nvidia/bin"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--meshfuse", default=str(HERE.parent.parent / "build/release/bin/meshfuse"))
    parser.add_argument("--nvdisasm", default=str(triton_tools / "nvdisasm"), help="default: Triton's")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    tools = {"meshfuse": options.meshfuse, "nvdisasm": options.nvdisasm, "cuobjdump": str(triton_tools / "cuobjdump")}
    ratios, narrow, spilled = {}, [], []
    print(f"{'':24} {'instr':>7} {'occup':>6} {'regs':>5} {'spill':>5} {'moved':>6} {'wide':>5} {'bar':>4}  ratio")
    for program in sorted((HERE / "programs").glob("*.fir")):
        if options.names and not program.stem.startswith(tuple(options.names)):
            continue
        name, dtype = program.stem.rsplit("_", 1)
        tensors = list(tensors_of(program.read_text()))
        kernels = our_kernels(tools, program, twins.OUR_TRIPS.get(name))
        ours = None if isinstance(kernels, str) else Row(kernels, tensors)
        theirs = {w: Row(twin_kernels(tools, name, {"float": "fp32"}.get(dtype, dtype), w), tensors) for w in (2, 4, 8, 16)}
        best = sass.best(theirs, ours.occupancy if ours else 0)
        if ours is None:
            print(f"{program.stem:24} none: {kernels}")
        else:
            ratios[program.stem] = ours.instructions / theirs[best].instructions
            narrow += [program.stem] if ours.wide < 0.95 else []
            spilled += [program.stem] if ours.spills else []
            print(f"{program.stem:24} {ours.text()}  {ratios[program.stem]:5.2f}")
        for w, row in theirs.items():
            print(f"  twin, {w:2} warps{'*' if w == best else ' ':8} {row.text()}")
    if ratios:
        print(f"ratio: median {statistics.median(ratios.values()):.2f} (goal {GOALS['median']:.2f}), worst", end=" ")
        print(f"{max(ratios.values()):.2f}, {max(ratios, key=ratios.get)} (goal {GOALS['worst']:.2f})")
    print(f"with spills: {', '.join(spilled) or 'none'}; with narrower accesses: {', '.join(narrow) or 'none'}")


if __name__ == "__main__":
    sys.exit(main())
