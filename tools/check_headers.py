#!/usr/bin/env python3
"""Each header of csrc compiles alone, shows no third-party library but fmt, and pulls in at most 25 headers of ours.

A header that only the .cpp files of its own folder include shows what it includes to nobody else, and may.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST_HEADERS = 25
UMBRELLA = "csrc/meshfuse/meshfuse.h"
THIRD_PARTY = re.compile(r"^\s*#\s*include\s*[<\"](llvm|cuda|nvrtc|nccl|cublas|cudnn|ucp|ucs|uct|pmix|oneapi|dnnl|mpi|CLI|nlohmann)")


def is_private(header):
    line = f'#include "{header.relative_to(ROOT / "csrc").as_posix()}"'
    readers = [f for root in ("csrc", "tests", "examples", "benchmarks") for f in (ROOT / root).rglob("*")
               if f.suffix in (".h", ".cpp") and line in f.read_text()]
    return all(f.suffix == ".cpp" and f.parent == header.parent for f in readers)


def third_party_folders():
    """Where the first build found the headers of what may be anywhere: a CUDA toolkit, or unpacked wheels."""
    for cache in sorted(ROOT.glob("build/*/CMakeCache.txt")):
        found = re.findall(r"^(?:CUDA_HEADERS|NVRTC_HEADERS):PATH=(/.*)$", cache.read_text(), re.M)
        if found:
            return sorted(set(found))
    return []


def problems(header):
    name = header.relative_to(ROOT).as_posix()
    found = []
    for number, line in enumerate(header.read_text().splitlines(), 1):
        if THIRD_PARTY.match(line) and not is_private(header):
            found.append(f"{name}:{number}: shows a third-party header: {line.strip()}")
    generated = next(ROOT.glob("build/*/generated"), ROOT)
    command = ["g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-O0", f"-I{ROOT}/csrc", f"-I{generated}"]
    command += [f"-isystem{folder}" for folder in third_party_folders()]
    command += ["-x", "c++", "-", "-fsyntax-only", "-MMD", "-MF", "/dev/stdout"]
    run = subprocess.run(command, input=f'#include "{header}"\n', capture_output=True, text=True)
    if run.returncode:
        found.append(f"{name}: does not compile alone\n{run.stderr}")
        return found
    ours = {word for word in run.stdout.split() if word.startswith(f"{ROOT}/csrc/")} - {str(header)}
    if len(ours) > MOST_HEADERS and name != UMBRELLA:
        found.append(f"{name}: pulls in {len(ours)} headers of ours, at most {MOST_HEADERS} are allowed")
    return found


def main():
    headers = sorted((ROOT / "csrc").rglob("*.h"))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [line for lines in pool.map(problems, headers) for line in lines]
    for line in found:
        print(line)
    print(f"check_headers: {len(headers)} headers, {len(found)} problem{'' if len(found) == 1 else 's'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
