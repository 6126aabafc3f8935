#!/usr/bin/env python3
"""The rows of gpu_bench, measured with PyTorch (compiled) and JAX on the same GPU: gpu_peers.py FILE.json

A library that is missing, or has no GPU, is left out. Each figure of a case is the bandwidth of the case over that of PyTorch's copy.
"""
import functools
import json
import statistics
import sys
import time

ROWS, COLUMNS = 16384, 8192
CALLS, ROUNDS = 20, 4
# the tensors of the size of the input that a case moves
MOVED = {"add": 2, "bias and gelu": 2, "softmax": 2, "layer norm": 2, "sum of rows": 1, "sum of columns": 1, "transpose": 2, "transpose and bias": 2}


def seconds_of_series(call, end):
    seconds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        end()
        seconds.append((time.perf_counter() - begin) / CALLS)
    return statistics.median(seconds[1:])  # the first compiles


def with_torch():
    import torch

    functional = torch.nn.functional
    cases = {
        "add": lambda x, b: x + x,
        "bias and gelu": lambda x, b: functional.gelu(x + b, approximate="tanh"),
        "softmax": lambda x, b: torch.softmax(x, 1),
        "layer norm": lambda x, b: functional.layer_norm(x, (COLUMNS,), b, b, 1e-5),
        "sum of rows": lambda x, b: x.sum(1),
        "sum of columns": lambda x, b: x.sum(0),
        "transpose": lambda x, b: x.t().contiguous(),
        "transpose and bias": lambda x, b: (x + b).t().contiguous(),
    }
    torch.manual_seed(1)
    end = torch.cuda.synchronize
    x = torch.rand(ROWS, COLUMNS, device="cuda") * 4 - 2
    y = torch.empty_like(x)
    copy = 2 * x.nbytes / seconds_of_series(lambda: y.copy_(x), end)
    yield "device copy", copy * 1e-9
    small = torch.rand(1, 64, device="cuda")
    add = torch.compile(lambda x: x + x)

    def awaited():
        add(small)
        end()

    yield "small kernel, awaited", 1e6 * seconds_of_series(awaited, lambda: None)
    yield "small kernel, in a stream", 1e6 * seconds_of_series(lambda: add(small), end)
    for name, dtype in [("Float", torch.float32), ("BFloat16", torch.bfloat16)]:
        a, b = x.to(dtype), x[0].to(dtype)
        for case, function in cases.items():
            compiled = torch.compile(function, dynamic=False)
            seconds = min(seconds_of_series(lambda f=f: f(a, b), end) for f in (compiled, function))
            yield f"{case} of {name}, of the copy", MOVED[case] * a.nbytes / seconds / copy

        def mlp(x, w1, b1, w2, b2):
            return functional.linear(functional.gelu(functional.linear(x, w1, b1), approximate="tanh"), w2, b2)

        shapes = [(8192, 4096), (16384, 4096), (16384,), (4096, 16384), (4096,)]
        arguments = [(torch.rand(shape, device="cuda") * 0.2 - 0.1).to(dtype) for shape in shapes]
        seconds = min(seconds_of_series(lambda f=f: f(*arguments), end) for f in (torch.compile(mlp, dynamic=False), mlp))
        yield f"mlp of {name}", 1e3 * seconds


def with_jax(copy):
    import os

    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax
    import jax.numpy as jnp

    jax.devices("gpu")

    def layer_norm(x, b):
        f = x.astype(jnp.float32)
        mean = f.mean(1, keepdims=True)
        variance = f.var(1, keepdims=True)
        return ((f - mean) * jax.lax.rsqrt(variance + 1e-5) * b + b).astype(x.dtype)

    cases = {
        "add": lambda x, b: x + x,
        "bias and gelu": lambda x, b: jax.nn.gelu(x + b, approximate=True),
        "softmax": lambda x, b: jax.nn.softmax(x, 1),
        "layer norm": layer_norm,
        "sum of rows": lambda x, b: x.sum(1),
        "sum of columns": lambda x, b: x.sum(0),
        "transpose": lambda x, b: x.T,
        "transpose and bias": lambda x, b: (x + b).T,
    }
    x = jax.random.uniform(jax.random.key(1), (ROWS, COLUMNS), jnp.float32, -2, 2)
    for name, dtype in [("Float", jnp.float32), ("BFloat16", jnp.bfloat16)]:
        a, b = x.astype(dtype), x[0].astype(dtype)
        for case, function in cases.items():
            last = []
            compiled = functools.partial(lambda f, last: last.append(f(a, b)), jax.jit(function), last)

            def end(last=last):
                last[-1].block_until_ready()
                last.clear()

            # results are freed at the end of a series
            yield f"{case} of {name}, of the copy", MOVED[case] * a.nbytes / seconds_of_series(compiled, end) / copy


def main():
    figures = {}
    for peer in ("torch", "jax"):
        try:
            rows = with_torch() if peer == "torch" else with_jax(figures["torch"]["device copy"] * 1e9)
            figures[peer] = {}
            for name, figure in rows:
                figures[peer][name] = figure
        except Exception as error:  # a peer that is missing or broken is reported, not fatal
            print(f"{peer}: {type(error).__name__}: {error}", file=sys.stderr)
    with open(sys.argv[1], "w") as file:
        json.dump(figures, file, indent=1)


main()
