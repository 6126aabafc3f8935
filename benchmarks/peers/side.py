"""What the Python peers have in common: they read requests, lines of JSON, and answer each with a line. See run.py."""

import json
import statistics
import sys
import time

import ml_dtypes
import numpy

TYPES = {"float": numpy.float32, "double": numpy.float64, "bf16": ml_dtypes.bfloat16, "int": numpy.int64}


def function_of(program, inputs, operations):
    """The Python function of a program; its parameters are the inputs."""
    *statements, last = program.split("; ")
    lines = [f"def workload({', '.join(inputs)}):", *statements, f"return {last}"]
    names = dict(operations)
    exec("\n    ".join(lines), names)  # pylint: disable=exec-used
    return names["workload"]


def results_of(value):
    return list(value) if isinstance(value, (tuple, list)) else [value]


def seconds_of_call(call, budget):
    """The median of calls that take `budget` seconds together, after one that is not timed."""
    call()
    seconds, end = [], time.perf_counter() + budget
    while not seconds or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def serve(prepare):
    """prepare(program, arrays) returns {variant: (call, results as arrays)}; call() returns when the results are there."""
    answers, sys.stdout = sys.stdout, sys.stderr
    variants = {}
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "prepare":
            variants.clear()
            inputs = {i["name"]: numpy.fromfile(i["file"], TYPES[i["type"]]).reshape(i["extents"]) for i in request["inputs"]}
            variants.update(prepare(request["program"], inputs))
            answer = {}
            for variant, (_, results) in variants.items():
                answer[variant] = [f"{request['out']}.{variant}.{i}" for i in range(len(results))]
                for result, file in zip(results, answer[variant]):
                    result.astype(numpy.float64).tofile(file)
            variants.update({name: call for name, (call, _) in variants.items()})
        else:
            answer = seconds_of_call(variants[request["variant"]], request["seconds"])
        print(json.dumps(answer), file=answers, flush=True)
