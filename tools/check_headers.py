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


def is_compiled_by_its_source(header):
    """The source of its name includes it first, and .ci/test_without_dependencies, which compiles each source alone, has done so since."""
    source = header.with_suffix(".cpp")
    includes = re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)', source.read_text(), re.M) if source.exists() else []
    if includes[:1] != [header.relative_to(ROOT / "csrc").as_posix()]:
        return False
    objects = list(ROOT.glob(f"build/bare/csrc/CMakeFiles/*/{source.relative_to(ROOT / 'csrc')}.o"))
    return any(o.stat().st_mtime > max(header.stat().st_mtime, source.stat().st_mtime) for o in objects)


def own_headers(header, seen):
    """Adds to seen the headers of ours that a header includes, and those that they include."""
    for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', header.read_text(), re.M):
        included = ROOT / "csrc" / name
        if included.exists() and included not in seen:
            seen.add(included)
            own_headers(included, seen)
    return seen


def problems(header):
    name = header.relative_to(ROOT).as_posix()
    found = []
    for number, line in enumerate(header.read_text().splitlines(), 1):
        if THIRD_PARTY.match(line) and not is_private(header):
            found.append(f"{name}:{number}: shows a third-party header: {line.strip()}")
    count = len(own_headers(header, set()) - {header})
    if count > MOST_HEADERS and name != UMBRELLA:
        found.append(f"{name}: pulls in {count} headers of ours, at most {MOST_HEADERS} are allowed")
    if is_compiled_by_its_source(header):
        return found
    generated = next(ROOT.glob("build/*/generated"), ROOT)
    command = ["g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-O0", f"-I{ROOT}/csrc", f"-I{generated}"]
    command += [f"-isystem{folder}" for folder in third_party_folders()]
    run = subprocess.run([*command, "-x", "c++", "-", "-fsyntax-only"], input=f'#include "{header}"\n', capture_output=True, text=True)
    if run.returncode:
        found.append(f"{name}: does not compile alone\n{run.stderr}")
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
