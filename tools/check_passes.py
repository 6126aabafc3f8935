#!/usr/bin/env python3
"""Each row of a stage's pass table has a test of the same name: row "remove-empty" of csrc/preseg_passes has
tests/preseg_passes/remove_empty.fir, or remove_empty_test.cpp in a stage whose program is not a Fusion."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE_FILES = re.compile(r"(pipeline|pass_table|passes)[^/]*\.cpp$")
ROW = re.compile(r'^\s*(?:PassRow\s*)?\{\s*(?:\.name\s*=\s*)?"([a-z0-9]+(?:-[a-z0-9]+)*)"\s*,')


def main():
    rows, missing = 0, []
    for table in sorted(p for p in (ROOT / "csrc").rglob("*.cpp") if TABLE_FILES.search(p.name)):
        folder = table.parent.relative_to(ROOT / "csrc").as_posix()
        for line in table.read_text().splitlines():
            match = ROW.match(line)
            if not match:
                continue
            rows += 1
            base = ROOT / "tests" / folder / match[1].replace("-", "_")
            endings = [".fir"] if folder == "preseg_passes" else [".fir", "_test.cpp"]
            if not any(pathlib.Path(f"{base}{ending}").exists() for ending in endings):
                missing.append(f'{table.relative_to(ROOT)}: row "{match[1]}" has no {base.relative_to(ROOT)}{endings[0]}')
    if rows == 0 and (ROOT / "csrc/preseg_passes").exists():
        missing.append("no pass table found: expected rows {\"pass-name\", ... in a *pipeline*.cpp or *passes*.cpp of a stage")
    for line in missing:
        print(line)
    print(f"check_passes: {rows} rows, {len(missing)} problem{'' if len(missing) == 1 else 's'}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
