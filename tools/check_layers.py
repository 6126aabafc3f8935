#!/usr/bin/env python3
"""Fails on an include that goes up or sideways in csrc/LAYERS, and on a folder of sources that is not listed there."""

import pathlib
import re
import sys

CSRC = pathlib.Path(__file__).resolve().parent.parent / "csrc"
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')


def read_layers():
    ranks, exceptions, kept = {}, set(), {}
    for line in (CSRC / "LAYERS").read_text().splitlines():
        words = line.split("#")[0].split()
        if not words:
            continue
        if words[0] == "only" and words[2:4] == ["may", "include"]:
            kept.setdefault(words[4], set()).add(words[1])
        elif words[1:3] == ["may", "include"]:
            exceptions.add((words[0], words[3]))
        else:
            ranks[words[1]] = int(words[0])
    return ranks, exceptions, kept


def may_include(user, used, ranks, exceptions):
    return (
        user == used
        or ranks[used] < ranks[user]
        or (user.startswith(used + "/") and ranks[used] == ranks[user])
        or (user, used) in exceptions
    )


def lies_in(folder, other):
    return (folder + "/").startswith(other + "/")


def violations():
    ranks, exceptions, kept = read_layers()
    for path in sorted(p for p in CSRC.rglob("*") if p.suffix in (".h", ".cpp")):
        user = path.parent.relative_to(CSRC).as_posix()
        if user not in ranks:
            yield f"csrc/{user}: not in csrc/LAYERS (has {path.name}); add a line with its rank"
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match or not (CSRC / match[1]).exists():
                if match and match[1] != "meshfuse_config.h":
                    yield f"csrc/{user}/{path.name}:{number}: no csrc/{match[1]}; includes are written from csrc"
                continue
            used = pathlib.PurePosixPath(match[1]).parent.as_posix()
            for header, owners in kept.items():
                own = header.rpartition("/")[0]
                if match[1].startswith(header) and not any(lies_in(user, folder) for folder in {own, *owners}):
                    yield f"csrc/{user}/{path.name}:{number}: includes {match[1]}, which is for {' and '.join(sorted(owners))}"
            if used not in ranks:
                yield f"csrc/{user}/{path.name}:{number}: includes {match[1]}, whose folder is not in csrc/LAYERS"
            elif not may_include(user, used, ranks, exceptions):
                where = "up" if ranks[used] > ranks[user] else "sideways"
                yield (
                    f"csrc/{user}/{path.name}:{number}: includes {match[1]}: {where}, "
                    f"from rank {ranks[user]} to rank {ranks[used]}"
                )


def main():
    found = list(violations())
    for line in found:
        print(line)
    print(f"check_layers: {len(found)} violation{'' if len(found) == 1 else 's'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
