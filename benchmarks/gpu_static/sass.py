"""Counts of a kernel's machine code, from the text that nvdisasm prints.

The count of a thread that takes no rare path: each instruction once, those of a loop as often as the loop runs, those that a predicate
switches off included, because their warp spends the time. Rare paths are not counted: functions beside the kernel, such as the slow
path of a division, and blocks that a branch skips and that call one, or exchange a word of memory, as a thread does that refuses an index.
Code that some threads skip otherwise counts for all, also after an EXIT under a condition.
How often loops run cannot be read off the code: it is given, in the order of the loops' first instructions.
"""
import dataclasses
import math
import re

LABEL = re.compile(r"^(\.L_x?_?\w+|\$\S+):")
INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]+)\*/\s+(?:(@!?U?P\d+|@!?U?PT)\s+)?([A-Z][A-Z0-9_.]*)\s*(.*?)\s*;")
TARGET = re.compile(r"`\(([^)]+)\)")
WIDTHS = {".128": 16, ".64": 8, ".U8": 1, ".S8": 1, ".U16": 2, ".S16": 2}


@dataclasses.dataclass
class Instruction:
    address: int
    guard: str  # "@!P0", or empty
    opcode: str  # with its modifiers: "LDG.E.128"
    operands: str

    def jumps(self):
        return self.opcode.split(".")[0] == "BRA"

    def bytes(self):
        return next((size for suffix, size in WIDTHS.items() if suffix in self.opcode), 4)


@dataclasses.dataclass
class Counts:
    instructions: float = 0
    barriers: float = 0
    spills: float = 0  # accesses to memory that stands in for registers
    loads: dict = dataclasses.field(default_factory=dict)  # of global memory: {bytes: count}
    stores: dict = dataclasses.field(default_factory=dict)
    slow_calls: int = 0  # calls of functions on rare paths, in the text
    loops: list = dataclasses.field(default_factory=list)  # (first address, last address, trips)


def parsed(listing):
    """The instructions of the kernel and the addresses of its labels, without the functions beside it and the padding at the end."""
    code, labels, waiting = [], {}, []
    for line in listing.splitlines():
        if label := LABEL.match(line):
            if label[1].startswith("$") and code:
                break
            waiting.append(label[1])
        elif match := INSTRUCTION.match(line):
            address = int(match[1], 16)
            labels.update(dict.fromkeys(waiting, address))
            waiting = []
            code.append(Instruction(address, match[2] or "", match[3], match[4]))
    while code and (code[-1].opcode == "NOP" or (code[-1].jumps() and target(code[-1], labels) == code[-1].address)):
        code.pop()
    return code, labels


def target(instruction, labels):
    name = TARGET.search(instruction.operands)
    return labels.get(name[1]) if name else None


def rare_blocks(code, labels):
    """[first, end) of the smallest blocks that a conditional branch forward skips and that call a function or exchange a word of memory."""
    skipped = []
    for branch in code:
        end = target(branch, labels) if branch.jumps() else None
        if end is not None and end > branch.address and (branch.guard or "P" in branch.operands.split("`")[0]):
            skipped.append((branch.address + 1, end))
    blocks = []
    for first, end in sorted(skipped, key=lambda block: block[1] - block[0]):
        marks = (c.address for c in code if first <= c.address < end and c.opcode.startswith(("CALL", "ATOMG.E.EXCH")))
        if any(not any(f <= mark < e for f, e in blocks) for mark in marks):
            blocks.append((first, end))
    return blocks


def count(listing, trips=(), parts=()):
    """Counts of the first kernel in the listing. A kernel without loops has them unrolled; ValueError if it has some, but not as many as
    `trips` says. `parts`, for each time that blocks count their arrivals: of so many, the last one executes what the others skip or leave.
    """
    code, labels = parsed(listing)
    rare = rare_blocks(code, labels)

    def is_rare(address):
        return any(first <= address < end for first, end in rare)

    # of several branches back to one label the last closes the loop
    ends = {}
    for c in code:
        first = target(c, labels) if c.jumps() and not is_rare(c.address) else None
        if first is not None and first <= c.address:
            ends[first] = c.address
    if ends and len(ends) != len(trips):
        found = ", ".join(f"{first:x}-{last:x}" for first, last in sorted(ends.items()))
        raise ValueError(f"{len(trips)} loops expected, the code has {found}")
    result = Counts(loops=[(first, last, n) for (first, last), n in zip(sorted(ends.items()), trips)])
    waiting, parts, shares = [], list(parts), []  # shares: (first address, end, part of the blocks)
    for c in code:
        kind = c.opcode.split(".")[0]
        if is_rare(c.address):
            result.slow_calls += kind == "CALL"
            continue
        if kind == "ATOMG" and parts:
            waiting.append(parts.pop(0))
        times = 1
        for first, end, share in shares:
            times *= share if first <= c.address < end else 1
        for first, last, n in result.loops:
            times *= n if first <= c.address <= last else 1
        result.instructions += times
        result.barriers += times * (kind == "BAR")
        result.spills += times * (kind in ("LDL", "STL"))
        sides = {"LDG": result.loads, "STG": result.stores, "LDGSTS": result.loads}
        if kind in sides:
            sides[kind][c.bytes()] = sides[kind].get(c.bytes(), 0) + times
        if waiting and c.guard and (kind == "EXIT" or (c.jumps() and target(c, labels) > c.address)):
            shares.append((c.address + 1, target(c, labels) if c.jumps() else math.inf, 1 / waiting.pop()))
    return result


def best(twins, needed):
    """The key of the twin without spills and with the needed occupancy that has the fewest instructions; if there is none, of that with the
    highest occupancy, where possible without spills.
    """
    whole = {key: twin for key, twin in twins.items() if not twin.spills} or twins
    highest = max(twin.occupancy for twin in whole.values())
    return min((key for key in whole if whole[key].occupancy >= min(needed, highest)), key=lambda key: whole[key].instructions)


def occupancy(threads, registers, shared):
    """The part of the warps of a multiprocessor of sm_90 that blocks of a kernel can fill."""
    warps = threads // 32
    resident = 4 * (16384 // (-(-registers * 32 // 256) * 256))  # warps whose registers fit; each quarter has its own
    blocks = min(32, 64 // warps, resident // warps, 228 * 1024 // (-(-(shared + 1024) // 128) * 128))
    return blocks * warps / 64
