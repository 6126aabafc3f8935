#!/usr/bin/env python3
"""Each row of a stage's pass table has a test of the same name: row "remove-empty" of csrc/preseg_passes has
tests/preseg_passes/remove_empty.fir, or remove_empty_test.cpp in a stage whose program is not a Fusion. Each stage of STAGES
has a table. The order of all stages reads off one file, csrc/exec/compile.cpp, of at most MOST_LINES lines."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = re.compile(r"^\s*(?:static |inline |constexpr |const )*PassRow<(\w+)[^>]*> \w+\[\] = \{(.*?)^\s*\};", re.M | re.S)
STAGES = ["preseg_passes", "segment"]
ORDER = ROOT / "csrc/exec/compile.cpp"
MOST_LINES = 80
ROW = re.compile(r'^\s*\{"([a-z0-9]+(?:-[a-z0-9]+)*)",', re.M)


def main():
    rows, missing, found = 0, [], set()
    for source in sorted((ROOT / "csrc").rglob("*.cpp")):
        folder = source.parent.relative_to(ROOT / "csrc").as_posix()
        for program, table in TABLE.findall(source.read_text()):
            endings = [".fir"] if program == "Fusion" else [".fir", "_test.cpp"]
            for name in ROW.findall(table):
                rows += 1
                found.add(folder)
                base = ROOT / "tests" / folder / name.replace("-", "_")
                if not any(pathlib.Path(f"{base}{ending}").exists() for ending in endings):
                    missing.append(f'{source.relative_to(ROOT)}: row "{name}" has no {base.relative_to(ROOT)}{endings[0]}')
    for folder in STAGES:
        if folder not in found:
            missing.append(f'csrc/{folder} has no pass table: expected `const PassRow<...> kPasses[] = {{` with rows {{"pass-name", ...')
    lines = len(ORDER.read_text().splitlines())
    if lines > MOST_LINES:
        missing.append(f"{ORDER.relative_to(ROOT)} has {lines} lines, expected at most {MOST_LINES}; move a detail into its stage")
    for line in missing:
        print(line)
    print(f"check_passes: {rows} rows, {len(missing)} problem{'' if len(missing) == 1 else 's'}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
