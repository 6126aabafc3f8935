#!/usr/bin/env python3
"""The counts of sass.py for a listing written by hand."""
import types
import unittest

import sass

# Two loads; a loop of 3 instructions; a division whose slow path is a function; a store by the last of the blocks that arrive.
LISTING = """
	.section	.text.k,"ax",@progbits
k:
.text.k:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   LDG.E.EF.128 R8, desc[UR6][R2.64] ;
        /*0020*/               @P0 LDG.E.U16 R4, desc[UR6][R2.64+0x2000] ;
.L_x_0:
        /*0030*/                   FADD R8, R8, R4 ;
        /*0040*/                   LDL R3, [R1] ;
        /*0050*/               @P1 BRA `(.L_x_0) ;
        /*0060*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0070*/              @!P0 BRA `(.L_x_1) ;
        /*0080*/                   MOV R6, 0xa0 ;
        /*0090*/                   CALL.REL.NOINC `($__internal_0_$slowpath) ;
.L_x_1:
        /*00a0*/                   BSYNC B0 ;
        /*00b0*/                   ATOMG.E.ADD.STRONG.GPU PT, R4, desc[UR8][R4.64], R7 ;
        /*00c0*/              @!P2 EXIT ;
        /*00d0*/                   STG.E.64 desc[UR8][R4.64], R7 ;
        /*00e0*/                   EXIT ;
        .weak           $__internal_0_$slowpath
$__internal_0_$slowpath:
        /*00f0*/                   MUFU.RCP R0, R6 ;
        /*0100*/                   RET.REL.NODEC R16 `(k) ;
.L_x_2:
        /*0110*/                   BRA `(.L_x_2);
        /*0120*/                   NOP;
"""


class Counter(unittest.TestCase):
    def test_counts_what_a_thread_executes(self):
        counts = sass.count(LISTING, trips=[10], parts=[4])
        # 3 before the loop, 3 in it, 6 after it without the call, and 2 that one block of 4 executes
        self.assertEqual(counts.instructions, 3 + 10 * 3 + 2 + 3 + 2 / 4)
        self.assertEqual(counts.loops, [(0x30, 0x50, 10)])
        self.assertEqual(counts.loads, {16: 1, 2: 1})
        self.assertEqual(counts.stores, {8: 1 / 4})
        self.assertEqual((counts.barriers, counts.spills, counts.slow_calls), (1, 10, 1))

    def test_refuses_loops_without_trips(self):
        with self.assertRaisesRegex(ValueError, "0 loops expected, the code has 30-50"):
            sass.count(LISTING)

    def test_takes_trips_of_loops_that_are_unrolled(self):
        straight = "\n".join(line for line in LISTING.splitlines() if "BRA `(.L_x_0)" not in line)
        self.assertEqual(sass.count(straight, trips=[10]).instructions, 3 + 2 + 2 + 3 + 2)

    def test_padding_is_no_code(self):
        padded = "/*0000*/ EXIT ;\n.L_x_0:\n/*0010*/ BRA `(.L_x_0);\n/*0020*/ NOP;\n"
        self.assertEqual(sass.count(padded).instructions, 1)

    def test_an_index_that_is_refused_is_rare(self):
        checked = "/*0000*/ @!P0 BRA `(.L_0) ;\n/*0010*/ ATOMG.E.EXCH.64 PT, R10, desc[UR4][R6.64], R10 ;\n"
        checked += "/*0020*/ @!P0 STG.E.64 desc[UR4][R6.64], R4 ;\n.L_0:\n/*0030*/ EXIT ;\n"
        counts = sass.count(checked)
        self.assertEqual((counts.instructions, counts.stores), (2, {}))

    def test_a_word_exchanged_on_a_rare_path_is_no_arrival(self):
        checked = "/*0000*/ @!P0 BRA `(.L_0) ;\n/*0010*/ ATOMG.E.EXCH.64 PT, R10, desc[UR4][R6.64], R10 ;\n"
        checked += ".L_0:\n/*0020*/ @P1 EXIT ;\n/*0030*/ STG.E.64 desc[UR4][R6.64], R4 ;\n/*0040*/ EXIT ;\n"
        counts = sass.count(checked, parts=[4])
        self.assertEqual((counts.instructions, counts.stores), (4, {8: 1}))

    def test_blocks_that_arrive_twice(self):
        twice = "/*0000*/ ATOMG.E.ADD PT, R2, desc[UR4][R2.64], R5 ;\n/*0010*/ BAR.SYNC 0x0 ;\n/*0020*/ @!P1 BRA `(.L_1) ;\n.L_0:\n"
        twice += "/*0030*/ LDG.E R1, desc[UR4][R2.64] ;\n/*0040*/ @P0 BRA `(.L_0) ;\n/*0050*/ STG.E R1, desc[UR4][R2.64] ;\n.L_1:\n"
        twice += "/*0060*/ ATOMG.E.ADD PT, R2, desc[UR4][R2.64], R5 ;\n/*0070*/ @!P0 EXIT ;\n/*0080*/ STG.E.64 desc[UR4][R2.64], R1 ;\n"
        counts = sass.count(twice + "/*0090*/ EXIT ;\n", trips=[3], parts=[4, 16])
        self.assertEqual(counts.instructions, 3 + (2 * 3 + 1) / 4 + 2 + 2 / 16)
        self.assertEqual((counts.loads, counts.stores), ({4: 3 / 4}, {4: 1 / 4, 8: 1 / 16}))

    def test_loops_inside_loops_multiply(self):
        nested = ".L_0:\n/*0000*/ FADD R1, R1, R1 ;\n.L_1:\n/*0010*/ FADD R2, R2, R2 ;\n/*0020*/ @P0 BRA `(.L_1) ;\n"
        nested += "/*0030*/ @P1 BRA `(.L_0) ;\n/*0040*/ EXIT ;\n"
        self.assertEqual(sass.count(nested, trips=[5, 7]).instructions, 5 * (2 + 2 * 7) + 1)


class Twin(unittest.TestCase):
    def best(self, needed, **rows):
        return sass.best({name: types.SimpleNamespace(instructions=i, occupancy=o, spills=s) for name, (i, o, s) in rows.items()}, needed)

    def test_has_the_fewest_instructions_of_those_with_our_occupancy(self):
        self.assertEqual(self.best(0.5, few=(10, 0.25, 0), spills=(11, 1, 1), good=(12, 0.5, 0), more=(13, 1, 0)), "good")

    def test_has_the_highest_occupancy_if_none_has_ours(self):
        self.assertEqual(self.best(1, few=(10, 0.25, 0), spills=(11, 1, 1), more=(13, 0.5, 0), good=(12, 0.5, 0)), "good")

    def test_may_spill_where_all_do(self):
        self.assertEqual(self.best(0.5, low=(9, 0.25, 2), good=(10, 0.5, 1), more=(11, 1, 1)), "good")
        self.assertEqual(self.best(1, low=(9, 0.25, 2), good=(10, 0.5, 1)), "good")


class Occupancy(unittest.TestCase):
    def test_is_limited_by_each_resource(self):
        self.assertEqual(sass.occupancy(threads=256, registers=32, shared=0), 1)
        self.assertEqual(sass.occupancy(threads=64, registers=16, shared=0), 1)
        self.assertEqual(sass.occupancy(threads=32, registers=16, shared=0), 0.5)  # blocks
        self.assertEqual(sass.occupancy(threads=256, registers=128, shared=0), 0.25)
        self.assertEqual(sass.occupancy(threads=1024, registers=33, shared=0), 0.5)
        self.assertEqual(sass.occupancy(threads=256, registers=32, shared=100 * 1024), 0.25)


if __name__ == "__main__":
    unittest.main()
