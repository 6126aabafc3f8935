#!/usr/bin/env python3
"""What gpu_static.py takes from the output of meshfuse compile; needs neither Triton nor a GPU."""
import subprocess
import sys
import types
import unittest
from unittest import mock

sys.modules["twins"] = types.ModuleType("twins")
import gpu_static

ROUTINE = "CUDA routine scan T2[8192, 4096]\n"
KERNEL = "kernel 00_pointwise_T3: add\n  64 blocks of 128 threads, 0 bytes of shared memory\n  out/00_pointwise_T3.tile (9 bytes)\n"


def kernels_of(output):
    done = subprocess.CompletedProcess([], 0, stdout=output, stderr="")
    with mock.patch.object(gpu_static.subprocess, "run", return_value=done):
        return gpu_static.our_kernels({"meshfuse": "meshfuse"}, "program.fir", None)


class Steps(unittest.TestCase):
    def test_names_a_routine_in_place_of_counts(self):
        self.assertEqual(kernels_of(ROUTINE), "the CUDA routine scan T2[8192, 4096]")

    def test_names_kernels_that_stay_uncounted_beside_a_routine(self):
        both = "the CUDA routine scan T2[8192, 4096], the kernel 00_pointwise_T3"
        self.assertEqual(kernels_of(ROUTINE + KERNEL + "1 kernel for sm_90a\n"), both)


if __name__ == "__main__":
    unittest.main()
