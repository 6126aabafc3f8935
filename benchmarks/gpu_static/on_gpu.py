#!/usr/bin/env python3
"""How long do the twins of twins.py take on this machine's GPU, and PyTorch (compiled or not) for the same work? on_gpu.py FILE.json

FILE.json gets, by peer and program of programs/, microseconds: `triton` of the fastest number of warps of the twin, and `torch`. The result
of a twin is compared with that of PyTorch in Double. gpu_programs_bench measures our kernels the same way: series of calls, and the host
waits after each series.
"""
import json
import sys
import time

import torch
import torch.nn.functional as F
import triton

import twins

CALLS, ROUNDS = 20, 4
M, N = twins.ROWS, twins.COLUMNS


def seconds_of_series(call):
    seconds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        torch.cuda.synchronize()
        seconds.append((time.perf_counter() - begin) / CALLS)
    return sorted(seconds[1:])[1]  # the first compiles


def data(dtype):
    """The operands of all programs, and what PyTorch computes of them, by the names of the twins."""
    torch.manual_seed(1)

    def uniform(*shape, dtype=dtype):
        return (torch.rand(*shape, device="cuda") * 4 - 2).to(dtype)

    x, y, w, b = uniform(M, N), uniform(M, N), uniform(N), uniform(N)
    mean, invstd = uniform(M, dtype=torch.float32), uniform(M, dtype=torch.float32)
    index = torch.randint(0, N, (M,), device="cuda")
    norm_backward = torch.ops.aten.native_layer_norm_backward
    columns = [M, 1]
    return {
        "add": ([x, y], lambda x, y: x + y),
        "bias_gelu": ([x, b], lambda x, b: F.gelu(x + b, approximate="tanh")),
        "softmax": ([x], lambda x: F.softmax(x, 1)),
        "layer_norm": ([x, w, b], lambda x, w, b: F.layer_norm(x, (N,), w, b)),
        "layer_norm_backward": (
            [x, y, mean, invstd, w],
            lambda d, x, mean, invstd, w: norm_backward(d, x, [N], mean.view(columns), invstd.view(columns), w, w, [True] * 3),
        ),
        "rms_norm": ([x, w], lambda x, w: F.rms_norm(x, (N,), w, 1e-5)),
        "cross_entropy": ([x, index], lambda x, index: F.cross_entropy(x, index, reduction="none")),
        "outer_sum": ([x], lambda x: x.sum(0)),
        "transpose": ([x], lambda x: x.t().contiguous()),
        "dropout_norm": ([x, y, w, b], lambda x, y, w, b: F.layer_norm(y + F.dropout(x, 0.1), (N,), w, b)),
        "embedding": ([index, x], F.embedding),
        "cumsum": ([x], lambda x: x.cumsum(1)),
    }


def twin_call(name, operands, results, warps):
    """A call of all launches of a twin, which writes `results`."""
    if name == "layer_norm_backward":
        parts = [torch.empty(twins.NORM_PARTS, N, device="cuda") for _ in range(2)]
        operands_of = [[*operands, results[0], *parts], [parts[0], results[1]], [parts[1], results[2]]]
    elif name == "outer_sum":
        parts = torch.empty(twins.PARTS, N, device="cuda")
        operands_of = [[*operands, parts], [parts, *results]]
    else:
        operands_of = [[*operands, *results]]
    launches = []
    for (function, _, constants, blocks, _), these in zip(twins.TWINS[name], operands_of, strict=True):
        grid = (blocks,)
        if name == "transpose":
            grid = (N // constants["SIDE"], M // constants["SIDE"])
        elif function is twins.column_parts:
            grid = (N // constants["BLOCK_N"], twins.PARTS)
        launches.append((function, grid, these, constants))

    def call():
        for function, grid, these, constants in launches:
            function[grid](*these, **constants, num_warps=warps)

    return call


def is_near(name, results, exact, dtype):
    """Whether a twin has the results that PyTorch computes in Double."""
    for got, want in zip(results, exact, strict=True):
        difference = (got.double() - want).norm() / want.norm()
        if not difference < (1e-4 if dtype == torch.float32 else 1e-2):
            print(f"{name} of {dtype}: the twin differs from PyTorch by {difference:.2g} of the norm", file=sys.stderr)
            return False
    return True


def measure(name, operands, by_torch, dtype):
    def results_of(tensors):
        made = by_torch(*tensors)
        return list(made) if isinstance(made, tuple) else [made]

    expected = results_of(operands)
    exact = results_of([t.double() if t.is_floating_point() else t for t in operands])
    seconds = []
    for warps in (2, 4, 8, 16):
        results = [torch.full_like(t, float("nan")) for t in expected]
        call = twin_call(name, operands, results, warps)
        try:
            call()
        except triton.runtime.errors.OutOfResources:
            continue
        if name == "dropout_norm" or is_near(name, results, exact, dtype):  # whose random numbers differ
            seconds.append(seconds_of_series(call))
    both = [seconds_of_series(lambda: f(*operands)) for f in (torch.compile(by_torch, dynamic=False), by_torch)]
    return 1e6 * min(seconds, default=float("nan")), 1e6 * min(both)


def main():
    figures = {"triton": {}, "torch": {}}
    for dtype, suffix in ((torch.float32, "float"), (torch.bfloat16, "bf16")):
        for name, (operands, by_torch) in data(dtype).items():
            row = f"{name}_{suffix}"
            figures["triton"][row], figures["torch"][row] = measure(name, operands, by_torch, dtype)
    with open(sys.argv[1], "w") as file:
        json.dump(figures, file, indent=1)


main()
