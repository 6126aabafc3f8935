#!/usr/bin/env python3
"""A new part touches few files. docs/adding.md has a recipe for each kind of part, with examples in the form
"Example: `Word`, at most N files of csrc". The files of csrc that contain the word are at most N, and the recipe names each of
them. Where "(today M)" follows, the limit is M and the names are not checked: the structure that the recipe needs is not there yet."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "adding.md"
EXAMPLE = re.compile(r"Example: `(\w+)`, at most (\d+) files of csrc(?: \(today (\d+)\))?")
EXAMPLES = {"Erfinv", "ArgSort", "IndexPutAccumulate", "BFloat16", "AllToAll"}


def files_with(word):
    pattern = re.compile(rf"\b{word}\b")
    sources = (p for p in (ROOT / "csrc").rglob("*") if p.suffix in (".h", ".cpp"))
    return sorted(p.relative_to(ROOT).as_posix() for p in sources if pattern.search(p.read_text()))


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
