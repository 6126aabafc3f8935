#!/usr/bin/env python3
"""Fails on the phrases that make prose hard to read, in Markdown and in the comments and strings of sources in C++, Python, shell and CMake.
Fails on names that have been replaced by the field's terms, anywhere in these files."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SLASHES = (".h", ".cpp", ".cc")  # sources with // comments
HASHES = (".py", ".sh", ".cmake", "CMakeLists.txt")  # sources with # comments; also scripts without an extension

# phrase: (pattern, advice)
BANNED = {
    "what is ... is": (r"\bwhat is [^.,;:]{1,40} is\b", "name the thing: 'a replicated tensor is ...'"),
    "of which": (r"\bof which\b", "start a new sentence, or write 'whose'"),
    "so much": (r"\bso much\b", "say how much"),
    "dear": (r"\bdear(er|est)?\b", "write 'costs more', 'expensive' or the cost"),
    "behind": (r"\bbehind\b", "write 'after', 'following' or 'at the end of'"),
}
# Names, in prose and in code: (pattern, advice). Words that also have other meanings, such as round or carry, are not listed.
REPLACED = {
    "accounts": (r"\baccounts?\b|Accounts?(?![a-z])", "call descriptors"),
    "meeting": (r"\bmeetings?\b|Meetings?(?![a-z])", "rendezvous"),
    "reunion": (r"\breunions?\b|Reunions?(?![a-z])", "rejoin"),
    "seat": (r"\bseat(?:s|ed)?\b|Seat(?:s|ed)?(?![a-z])", "slot"),
    "stash": (r"\bstash|Stash", "spill"),
    "along_dim": (r"along_dim|[aA]longDim(?![a-z])", "scan or sort"),
    "guard_indices": (r"guard_indices|[gG]uardIndices", "insert_bounds_checks"),
    "copy_shape": (r"copy_shape|[cC]opyShape", "shape_ops"),
    "stand_in_arguments": (r"stand_in_arguments|[sS]tandInArguments", "abstract_inputs"),
    "gather_moments": (r"gather_moments|[gG]atherMoments", "combine_variance"),
    "window fetch": (r"\bwindow[ _]fetch|[wW]indowFetch", "halo exchange"),
    "nasty": (r"\bnasty|Nasty", "stress"),
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


def kind_of(name):
    """The start of comments in a file of this name, "" in Markdown, None in a file that has no prose to check."""
    if name.endswith(".md"):
        return ""
    if name.endswith(SLASHES):
        return "//"
    if name.endswith(HASHES):
        return "#"
    is_script = "." not in pathlib.PurePath(name).name and (ROOT / name).read_bytes()[:2] == b"#!"
    return "#" if is_script else None


def prose_of_source(line, comment):
    """The comment of a line of a source, and its string literals."""
    strings, at = [], 0
    while at < len(line):
        if line.startswith(comment, at) and (comment == "//" or at == 0 or line[at - 1].isspace()):
            return line[at:].lstrip(comment), strings
        match = STRING.match(line, at) or CHARACTER.match(line, at)
        if match and match[0][0] == '"':
            strings.append(match[1])
        at = match.end() if match else at + 1
    return "", strings


def paragraphs(lines, comment):
    """Runs of prose as lists of (line number, text); a phrase may cross a line break inside one."""
    in_fence, run, literal = False, [], []
    for number, line in enumerate(lines, 1):
        if comment == "#" and line.count('"""') == 1:
            in_fence = not in_fence
            text, strings = line.replace('"""', " "), []
        elif comment == "#" and in_fence:
            text, strings = line, []  # of a docstring
        elif comment:
            text, strings = prose_of_source(line, comment)
        if comment:
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
        comment = kind_of(name)
        if comment is None or name == "tools/check_prose.py":
            continue
        lines = (ROOT / name).read_text(errors="replace").splitlines()
        for number, line in enumerate(lines, 1):
            for word, (pattern, advice) in REPLACED.items():
                for match in re.finditer(pattern, line):
                    yield f'{name}:{number}: "{match[0]}" ({word}): the field says {advice}'
        for run in paragraphs(lines, comment):
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
