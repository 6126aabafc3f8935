"""Random numbers as csrc/ops/factory.h states them: Philox4x32 with 10 rounds (Salmon et al., 2011)."""
import numpy as np

LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


def words(position, counter, seed):
    """Four arrays of 32-bit words for an array of positions."""
    def halves(number):
        return np.uint64(number & 0xFFFFFFFF), np.uint64((number >> 32) & 0xFFFFFFFF)

    position = position.astype(np.uint64)
    c0, c1 = position & LOW, position >> HALF
    c2, c3 = (np.full_like(position, half) for half in halves(counter))
    k0, k1 = halves(seed)
    for _ in range(10):
        p0 = np.uint64(0xD2511F53) * c0
        p1 = np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (p1 >> HALF) ^ c1 ^ k0, p1 & LOW, (p0 >> HALF) ^ c3 ^ k1, p0 & LOW
        k0 = np.uint64((int(k0) + 0x9E3779B9) & 0xFFFFFFFF)
        k1 = np.uint64((int(k1) + 0xBB67AE85) & 0xFFFFFFFF)
    return c0, c1, c2, c3


def uniform(low, high, wide):
    """In [0, 1), from one word, or from two."""
    if not wide:
        return (low >> np.uint64(8)).astype(np.float64) * 2.0**-24
    return ((low | high << HALF) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def random(kind, position, counter, seed, wide):
    """The numbers, and the magnitudes from which their errors follow."""
    w = words(position, counter, seed)
    u = uniform(w[0], w[1], wide)
    if kind == "uniform":
        return u, np.zeros(u.shape)
    v = uniform(w[2], w[3], wide) if wide else uniform(w[1], None, False)
    radius = np.sqrt(-2 * np.log1p(-u))
    return radius * np.cos(2 * np.pi * v), radius
