#!/usr/bin/env python3
"""Each row of a stage's pass table has a test of the same name: row "remove-empty" of csrc/preseg_passes has
tests/preseg_passes/remove_empty.fir, or remove_empty_test.cpp in a stage whose program is not a Fusion."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = re.compile(r"^\s*(?:static |inline |constexpr |const )*PassRow<[^>]*> \w+\[\] = \{(.*?)^\s*\};", re.M | re.S)
ROW = re.compile(r'^\s*\{"([a-z0-9]+(?:-[a-z0-9]+)*)",', re.M)


def main():
    rows, missing = 0, []
    for source in sorted((ROOT / "csrc").rglob("*.cpp")):
        folder = source.parent.relative_to(ROOT / "csrc").as_posix()
        endings = [".fir"] if folder == "preseg_passes" else [".fir", "_test.cpp"]
        for table in TABLE.findall(source.read_text()):
            for name in ROW.findall(table):
                rows += 1
                base = ROOT / "tests" / folder / name.replace("-", "_")
                if not any(pathlib.Path(f"{base}{ending}").exists() for ending in endings):
                    missing.append(f'{source.relative_to(ROOT)}: row "{name}" has no {base.relative_to(ROOT)}{endings[0]}')
    if rows == 0:
        missing.append('no pass table found: expected `const PassRow<...> kPasses[] = {` with rows {"pass-name", ...')
    for line in missing:
        print(line)
    print(f"check_passes: {rows} rows, {len(missing)} problem{'' if len(missing) == 1 else 's'}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
