"""Arrays of elements of a declared type, with a bound of the error of each element.

Floating types are held in float64, integers and Bool in int64. An error of infinity: nothing is known of the element.
"""
from dataclasses import dataclass

import numpy as np

MANTISSA = {"Double": 53, "Float": 24, "Half": 11, "BFloat16": 8}
LEAST_EXPONENT = {"Double": -1022, "Float": -126, "Half": -14, "BFloat16": -126}
MOST = {"Double": np.finfo(np.float64).max, "Float": float(np.finfo(np.float32).max), "Half": 65504.0,
        "BFloat16": float.fromhex("0x1.fep127")}
WIDTH = {"Int": 64, "Int32": 32, "Short": 16, "Char": 8, "UInt16": 16, "Byte": 8}
UNSIGNED = ("UInt16", "Byte")


@dataclass
class Bounded:
    dtype: str
    value: np.ndarray
    error: np.ndarray

    @property
    def floating(self):
        return self.dtype in MANTISSA

    @property
    def shape(self):
        return self.value.shape

    def moved(self, move):
        """The same elements elsewhere: `move` takes and gives an array."""
        return Bounded(self.dtype, move(self.value), move(self.error))


def exact(dtype, value):
    value = np.asarray(value, np.float64 if dtype in MANTISSA else np.int64)
    return Bounded(dtype, value, np.zeros(value.shape))


def ulp(dtype):
    return 2.0 ** (1 - MANTISSA[dtype])


def accumulate_type(dtype):
    return "Float" if dtype in ("Half", "BFloat16") else dtype


def round_to(dtype, x):
    """float64 rounded once, to nearest even."""
    if dtype == "Double":
        return x
    if dtype == "Float":
        return x.astype(np.float32).astype(np.float64)
    finite = np.isfinite(x)
    _, exponent = np.frexp(np.where(finite, x, 0))  # |x| < 2^exponent
    quantum = np.ldexp(1.0, np.maximum(exponent, LEAST_EXPONENT[dtype] + 1) - MANTISSA[dtype])
    rounded = np.where(finite, np.rint(np.where(finite, x, 0) / quantum) * quantum, x)
    return np.where(np.abs(rounded) > MOST[dtype], np.copysign(np.inf, rounded), rounded)


def wrap(dtype, x):
    """int64 modulo 2^width."""
    if dtype in UNSIGNED:
        return x & (2 ** WIDTH[dtype] - 1)
    unused = 64 - WIDTH[dtype]
    return (x << unused) >> unused


def distance(a, b):
    """0 for equal elements and two NaN, infinite for a NaN and a number."""
    d = np.abs(a - b)
    d = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, d)
    return np.where(np.isnan(d), np.inf, d)


def rounded(dtype, raw, error):
    """The rounding to a floating type of a value that is `raw` up to `error`."""
    raw = np.asarray(raw, np.float64)
    error = np.where(np.isnan(error), np.inf, np.broadcast_to(error, raw.shape))
    value = round_to(dtype, raw)
    if not error.any():
        return Bounded(dtype, value, np.zeros(value.shape))
    after = np.maximum(distance(round_to(dtype, raw + error), value), distance(round_to(dtype, raw - error), value))
    after = np.where(np.isinf(error), np.inf, np.where(error == 0, 0, after))
    return Bounded(dtype, value, after)


def truth(x):
    """Where an element can be true, and where it can be false; nonzero is true."""
    unknown = (x.error > 0) & ~(np.abs(x.value) > x.error)
    return unknown | (x.value != 0), unknown | (x.value == 0)


def bools(can_be_true, can_be_false):
    return Bounded("Bool", can_be_true.astype(np.int64), (can_be_true & can_be_false).astype(np.float64))


def cast(dtype, x):
    if dtype == "Bool":
        return bools(*truth(x))
    if dtype in MANTISSA:
        if x.floating:
            return rounded(dtype, x.value, x.error)
        if dtype == "Float":  # by way of float64 would round twice
            value = x.value.astype(np.float32).astype(np.float64)
            return Bounded(dtype, value, rounded(dtype, value, x.error).error)
        return rounded(dtype, x.value.astype(np.float64), x.error)
    if not x.floating:
        return Bounded(dtype, wrap(dtype, x.value), x.error)
    if dtype in UNSIGNED:  # truncated to 64 bits; the low ones are kept
        whole = cast("Int", x)
        return Bounded(dtype, wrap(dtype, whole.value), np.where(whole.error > 0, np.inf, 0))
    limit = 2.0 ** (WIDTH[dtype] - 1)
    fits = (x.value > -limit - 1) & (x.value < limit)
    value = np.where(fits, x.value, 0)
    error = np.maximum(distance(np.trunc(value + x.error), np.trunc(value)),
                       distance(np.trunc(value - x.error), np.trunc(value)))
    # a number that does not fit becomes one that nobody states
    return Bounded(dtype, value.astype(np.int64), np.where(fits, error, np.inf))


BITS = {"Double": np.float64, "Float": np.float32, "Half": np.float16, "Int": np.int64, "Int32": np.int32,
        "Short": np.int16, "Char": np.int8, "UInt16": np.uint16, "Byte": np.uint8, "Bool": np.bool_}


def from_stored(dtype, stored):
    """The elements of a .npy file; those of BFloat16 are the upper halves of Float."""
    if dtype == "BFloat16":
        stored = (stored.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return exact(dtype, stored)


def to_stored(x):
    if x.dtype == "BFloat16":
        return (x.value.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return x.value.astype(BITS[x.dtype])


def bit_cast(dtype, x):
    bits = np.ascontiguousarray(to_stored(x))
    stored = bits.view(np.uint16 if dtype == "BFloat16" else BITS[dtype]).reshape(x.shape)
    return Bounded(dtype, from_stored(dtype, stored).value, np.where(x.error > 0, np.inf, 0))
