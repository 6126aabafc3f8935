#!/usr/bin/env python3
"""Each file of csrc includes what it names: it compiles whatever other files are compiled with it. A header shows no third-party library but
fmt, and pulls in at most 25 headers of ours.

Headers and sources become parts of clang modules, which read each file once and let it see the files that it includes and no others: all of
csrc takes less time than 40 sources on their own. A source that includes a third-party library is compiled on its own, if the library is there.
A header that only the .cpp files of its own folder include shows what it includes to nobody else, and may.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CSRC = ROOT / "csrc"
CLANG = "clang++-19"
MOST_HEADERS = 25
UMBRELLA = CSRC / "meshfuse/meshfuse.h"
THIRD_PARTY = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*[<\"](llvm|cuda|nvrtc|nccl|cublas|cudnn|ucp|ucs|uct|pmix|sodium|oneapi|dnnl|mpi|CLI|nlohmann)", re.M)
SYSTEM = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<([^>]+)>", re.M)
OURS = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)


def is_private(header):
    line = f'#include "{header.relative_to(CSRC).as_posix()}"'
    readers = [f for root in ("csrc", "tests", "examples", "benchmarks") for f in (ROOT / root).rglob("*")
               if f.suffix in (".h", ".cpp") and line in f.read_text()]
    return all(f.suffix == ".cpp" and f.parent == header.parent for f in readers)


def own_headers(header, seen):
    """Adds to seen the headers of ours that a header includes, and those that they include."""
    for name in OURS.findall(header.read_text()):
        included = CSRC / name
        if included.exists() and included not in seen:
            seen.add(included)
            own_headers(included, seen)
    return seen


def shows_too_much(header):
    found = []
    for shown in THIRD_PARTY.finditer(header.read_text()):
        if not is_private(header):
            found.append(f"{header.relative_to(ROOT)}: shows a third-party header: {shown[0].strip()}")
    count = len(own_headers(header, set()) - {header})
    if count > MOST_HEADERS and header != UMBRELLA:
        found.append(f"{header.relative_to(ROOT)}: pulls in {count} headers of ours, at most {MOST_HEADERS} are allowed")
    return found


def configured():
    """The folders of headers and the macros of the build that has the most libraries, as options of a compiler."""
    builds = [set(re.findall(r"-isystem /\S+|-I/\S+|-D[A-Z_]+(?= )", commands.read_text()))
              for commands in sorted(ROOT.glob("build/*/compile_commands.json"))]
    builds = [found for found in builds if any(option.endswith("/generated") for option in found)]
    if not builds:
        sys.exit("check_includes: no build is configured, so generated headers are missing; run tools/dev build")
    return [word for option in sorted(max(builds, key=len)) for word in option.split()]


class Modules:
    """Compiles groups of files, each file a part that the others do not see."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.files = {}  # of each part
        self.options = [CLANG, "-std=c++20", "-w", "-ferror-limit=0", "-fmodules", "-Xclang", "-fmodules-local-submodule-visibility", *configured()]

    def compile(self, name, parts, uses=()):
        """Module `name` of these parts, each a list of files; an error of a part says its file and line. Returns the lines of errors."""
        text = f"module {name} {{\n"
        for number, files in enumerate(parts):
            headers = " ".join(f'header "{file}"' for file in files)
            text += f"  module part{number} {{ {headers} export * }}\n"
            self.files[f"{name}.part{number}"] = files[0]
        modules = self.folder / f"{name}.modulemap"
        modules.write_text(text + "}\n")
        return self.errors([*self.options, *self.use(uses), "-c", "-x", "c++", str(modules), "-Xclang", "-emit-module", f"-fmodule-name={name}",
                            "-o", f"{self.folder}/{name}.pcm"])

    def compile_alone(self, source, uses, *more):
        return self.errors([*self.options, *more, *self.use(uses), "-fsyntax-only", str(source)])

    def use(self, names):
        return [option for name in names
                for option in (f"-fmodule-map-file={self.folder}/{name}.modulemap", f"-fmodule-file={self.folder}/{name}.pcm")]

    def errors(self, command):
        run = subprocess.run(command, capture_output=True, text=True)
        text = re.sub(r"must be imported from module '([^']+)' before it is required",
                      lambda part: f"is in {self.files.get(part[1], part[1])}, which is not included", run.stderr)
        found = [line.replace(f"{ROOT}/", "") for line in text.splitlines() if "error:" in line]
        return found if found or run.returncode == 0 else [text]

    def as_part(self, source):
        """A copy of a source whose internal names are its own, though clang would take them for those of other parts."""
        copy = self.folder / source.relative_to(CSRC).as_posix().replace("/", "_")
        text = re.sub(r"^namespace \{", f"inline namespace of_{copy.stem} {{", source.read_text(), flags=re.M)
        copy.write_text(f'#line 1 "{source}"\n{text}')
        return copy


def system_parts(texts, folders):
    """Headers of the system that ours and our sources include, each a part; those of fmt refer to each other, so they are one."""
    names = sorted({name for text in texts for name in SYSTEM.findall(text) if not THIRD_PARTY.match(f"#include <{name}>")})
    found = {name: next((folder / name for folder in folders if (folder / name).exists()), None) for name in names}
    fmt = [path for name, path in found.items() if name.startswith("fmt/")]
    return [fmt] + [[path] for name, path in found.items() if path and not name.startswith("fmt/")]


def system_folders():
    run = subprocess.run([CLANG, "-x", "c++", "-E", "-v", os.devnull], capture_output=True, text=True)
    listed = run.stderr.split("search starts here:")[-1].split("End of search list")[0].split()
    return [pathlib.Path(folder) for folder in listed if "/clang/" not in folder]  # clang knows the headers of its own as modules


def compile_problems(headers, sources):
    texts = {file: file.read_text() for file in headers + sources}
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        modules = Modules(folder)
        ours = [header for header in headers if not THIRD_PARTY.search(texts[header])]
        generated = [path / "meshfuse_config.h" for path in map(pathlib.Path, (o[2:] for o in modules.options if o.endswith("/generated")))]
        found = modules.compile("system", system_parts(texts.values(), system_folders()))
        found += modules.compile("headers", [[header] for header in ours + generated], ["system"])
        if found:
            return found
        alone = [file for file in headers + sources if THIRD_PARTY.search(texts[file])]
        stand_ins = [s for s in sources if s.stem == "absent" or s.stem.startswith("no_")]  # what others define, where a library is missing
        rest = [s for s in sources if s not in alone and s not in stand_ins]
        groups = [stand_ins, *(rest[i::os.cpu_count()] for i in range(os.cpu_count()))]
        jobs = [pool.submit(modules.compile, f"sources{i}", [[modules.as_part(s)] for s in group], ["system", "headers"])
                for i, group in enumerate(groups)]
        jobs += [pool.submit(modules.compile_alone, source, ["system", "headers"]) for source in alone]
        # clang may miss what a system header of a module defines, so a source with an error is compiled without modules
        suspects = sorted({found for job in jobs for line in job.result() for found in re.findall(r"csrc/\S+?\.cpp", line)})
        return sorted({line for suspect in suspects for line in modules.compile_alone(ROOT / suspect, [], "-fno-modules")})


def main():
    if shutil.which(CLANG) is None:
        sys.exit(f"check_includes: no {CLANG}; tools/dev build asan installs it")
    headers, sources = sorted(CSRC.rglob("*.h")), sorted(CSRC.rglob("*.cpp"))
    found = [line for header in headers for line in shows_too_much(header)] + compile_problems(headers, sources)
    for line in found:
        print(line)
    print(f"check_includes: {len(headers) + len(sources)} files, {len(found)} problem{'' if len(found) == 1 else 's'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
