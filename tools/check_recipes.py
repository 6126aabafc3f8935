#!/usr/bin/env python3
"""A new part touches few files. docs/adding.md has a recipe for each kind of part, with examples in the form
"Example: `Word`, at most N files of csrc". The files of csrc whose code has the word as a name, in any spelling, are at most N, and
the recipe names each of them. Comments and C++'s own types do not count. Where "(today M)" follows, the limit is M and the names are not
checked: the structure that the recipe needs is not there yet."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "adding.md"
EXAMPLE = re.compile(r"Example: `(\w+)`, at most (\d+) files of csrc(?: \(today (\d+)\))?")
EXAMPLES = {"Erfinv", "ArgSort", "IndexPutAccumulate", "BFloat16", "AllToAll"}


def spellings(word):
    """Matches the names AllToAll, allToAll and all_to_all; of Char that spelling alone, because char is a type of C++."""
    if word == "Char":
        return re.compile(r"\bChar\b")
    parts = re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z][a-z]*[0-9]*", word)
    return re.compile(rf"\b{'_?'.join(parts)}\b", re.IGNORECASE)


def code_of(path):
    return re.sub(r"//[^\n]*", "", path.read_text())


def files_with(word):
    pattern = spellings(word)
    sources = (p for p in (ROOT / "csrc").rglob("*") if p.suffix in (".h", ".cpp"))
    return sorted(p.relative_to(ROOT).as_posix() for p in sources if pattern.search(code_of(p)))


def main():
    problems, seen = [], set()
    for recipe in PAGE.read_text().split("\n## ")[1:]:
        title = recipe.split("\n", 1)[0]
        for word, goal, today in EXAMPLE.findall(recipe):
            seen.add(word)
            files = files_with(word)
            limit = int(today or goal)
            print(f"{title}: {word} is in {len(files)} files of csrc, goal {goal}" + (f", today at most {today}" if today else ""))
            if len(files) > limit:
                problems.append(f"{word} is in {len(files)} files of csrc, expected at most {limit}; move what they know into a table: "
                                + ", ".join(files))
            if not today:
                problems += [f'{name} contains {word}; docs/adding.md, "{title}", does not name it' for name in files if f"`{name}`" not in recipe]
            elif int(today) <= int(goal):
                problems.append(f'docs/adding.md, "{title}": the goal for {word} is reached; delete "(today {today})"')
    problems += [f"docs/adding.md has no example {word}" for word in sorted(EXAMPLES - seen)]
    for line in problems:
        print(line)
    print(f"check_recipes: {len(seen)} examples, {len(problems)} problem{'' if len(problems) == 1 else 's'}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
