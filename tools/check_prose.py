#!/usr/bin/env python3
"""Fails on the phrases that make prose hard to read, in Markdown, in // comments and in string literals of C++ sources."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ("csrc/", "runtime/", "tests/", "examples/", "benchmarks/")

# phrase: (pattern, advice)
BANNED = {
    "what is ... is": (r"\bwhat is [^.,;:]{1,40} is\b", "name the thing: 'a replicated tensor is ...'"),
    "of which": (r"\bof which\b", "start a new sentence, or write 'whose'"),
    "so much": (r"\bso much\b", "say how much"),
    "dear": (r"\bdear(er|est)?\b", "write 'costs more', 'expensive' or the cost"),
    "behind": (r"\bbehind\b", "write 'after', 'following' or 'at the end of'"),
}
# "behind" is right where one thing hides another: an interface, a lock, a pointer.
ALLOWED = re.compile(
    r"\bbehind (the|one|a|an|its) (?:[\w-]+ ){0,2}(?:seam|header|interface|pointer|API|lock|flag)s?\b|\blags? behind\b|\bleft? behind\b"
)
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
CHARACTER = re.compile(r"'(?:[^'\\]|\\.)'")
CODE = re.compile(r"`[^`\n]*`")
FENCE = re.compile(r"^\s*```")


def tracked_files():
    """Files that git knows or would add, by name."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in sorted(set(listed.stdout.splitlines())) if (ROOT / name).is_file()]


def prose_of_source(line):
    """The comment of a line of C++, and its string literals."""
    strings, at = [], 0
    while at < len(line):
        if line.startswith("//", at):
            return line[at:].lstrip("/"), strings
        match = STRING.match(line, at) or CHARACTER.match(line, at)
        if match and match[0][0] == '"':
            strings.append(match[1])
        at = match.end() if match else at + 1
    return "", strings


def paragraphs(name):
    """Runs of prose as lists of (line number, text); a phrase may cross a line break inside one."""
    is_source, in_fence, run, literal = not name.endswith(".md"), False, [], []
    for number, line in enumerate((ROOT / name).read_text(errors="replace").splitlines(), 1):
        if is_source:
            text, strings = prose_of_source(line)
            if literal and not line.lstrip().startswith('"'):
                yield literal
                literal = []
            for string in strings:
                literal = [*literal, (number, string)]
                if string is not strings[-1] or not line.rstrip().endswith('"'):
                    yield literal
                    literal = []
        else:
            in_fence ^= bool(FENCE.match(line))
            text = "" if in_fence or FENCE.match(line) else line
        if not text.strip():
            yield run
            run = []
        else:
            run.append((number, text))
    yield run
    yield literal


def violations():
    for name in tracked_files():
        if not (name.endswith(".md") or (name.startswith(SOURCES) and name.endswith((".h", ".cpp")))):
            continue
        for run in paragraphs(name):
            text, starts = "", []
            for number, line in run:
                starts.append((len(text), number))
                text += line.strip() + " "
            # code between backquotes is not prose; as many spaces keep the positions
            text = ALLOWED.sub(lambda match: " " * len(match[0]), CODE.sub(lambda match: " " * len(match[0]), text))
            for phrase, (pattern, advice) in BANNED.items():
                for match in re.finditer(pattern, text, re.IGNORECASE):
                    number = next(number for start, number in reversed(starts) if start <= match.start())
                    yield f'{name}:{number}: "{match[0]}" ({phrase}): {advice}'


def main():
    found = list(violations())
    for line in found:
        print(line)
    print(f"check_prose: {len(found)} violation{'' if len(found) == 1 else 's'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
