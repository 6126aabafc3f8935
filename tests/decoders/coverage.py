#!/usr/bin/env python3
"""The share of the lines of reads.txt that the inputs of a decoder reach.

  coverage.py BUILD PROFILES DECODER      from PROFILES/DECODER.profraw, that fuzz_decoders of this build wrote

Prints one line: the share, and the functions that lack lines. Exit status: 1 below 90%, 2 if reads.txt names what is not there.
"""
import bisect
import collections
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
SOURCES = HERE.parent.parent / "csrc"
LLVM = "/usr/lib/llvm-19/bin/"
LEAST = 0.9


def printed(*command, given=None):
    return subprocess.run(command, check=True, capture_output=True, text=True, input=given).stdout


def simple_names(mangled):
    demangled = printed("c++filt", "-p", given="\n".join(mangled)).splitlines()
    return [name.split("[abi")[0].rsplit("::", 1)[-1] for name in demangled]


def functions_of(lcov):
    """Line -> [count, name of its function]; the lines of a lambda belong to the function around it."""
    begins = []
    counts = {}
    for line in lcov.splitlines():
        if line.startswith("FN:"):
            begin, name = line[3:].split(",", 1)
            name = name.rsplit(":", 1)[-1]
            if not name.startswith("_ZZ"):
                begins.append((int(begin), name))
        elif line.startswith("DA:"):
            number, count = line[3:].split(",")[:2]
            counts[int(number)] = max(int(count), counts.get(int(number), 0))
    begins.sort()
    names = simple_names([name for _, name in begins])
    starts = [begin for begin, _ in begins]
    of = lambda number: names[max(bisect.bisect_right(starts, number) - 1, 0)] if starts else "?"
    return {number: (count, of(number)) for number, count in counts.items()}


def main():
    build, profiles, decoder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    rows = [line.split() for line in (HERE / "reads.txt").read_text().splitlines() if not line.startswith("#")]
    rows = [row[1:] for row in rows if row[0] == decoder]
    if not rows:
        print("reads.txt has no row: reads no bytes of a file or a message")
        return 0
    profile = profiles / decoder
    printed(LLVM + "llvm-profdata", "merge", "-sparse", f"{profile}.profraw", "-o", f"{profile}.profdata")
    reached = total = 0
    lacking = collections.Counter()
    for file, *wanted in rows:
        lcov = printed(LLVM + "llvm-cov", "export", "-format=lcov", str(build / "bin/fuzz_decoders"), "-object",
                       str(build / "lib/libmeshfuse.so"), "-instr-profile", f"{profile}.profdata", str(SOURCES / file))
        lines = functions_of(lcov)
        known = {function for _, function in lines.values()}
        if not lines or set(wanted) - known:
            print(f"reads.txt: {file} has no {' '.join(set(wanted) - known) or 'lines'}; it has {' '.join(sorted(known))}")
            return 2
        for count, function in lines.values():
            if not wanted or function in wanted:
                total += 1
                reached += count > 0
                lacking[function] += count == 0
    worst = ", ".join(f"{function} {count}" for function, count in lacking.most_common(6) if count)
    print(f"{reached / total:.1%} of {total} lines; not reached: {worst or 'none'}")
    return 0 if reached >= LEAST * total else 1


if __name__ == "__main__":
    sys.exit(main())
