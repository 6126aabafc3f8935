"""Ops that add up, multiply or order elements: reductions, scans, matrix products, sorting, accumulation."""
import numpy as np

from bounded import MANTISSA, MOST, Bounded, accumulate_type, rounded, ulp, wrap


def grid_sums(x, size):
    """Where all sums of some of the elements are exact in Float, whatever the order. size: the sum of their magnitudes."""
    steps = x.value * 2.0**10
    return np.all(steps == np.rint(steps)) & (size * 2.0**10 < 2.0**24) & np.all(x.error == 0)


def sums(dtype, raw, size, error, terms, partials):
    """A sum of `terms` elements, in any order, as `partials` sums that are rounded and added.

    size: the sum of |v| + e; error: of e.
    """
    total = error + (terms + 1) * ulp(accumulate_type(dtype)) * size
    if partials > 1:
        total = total + 2 * (partials + 1) * ulp(dtype) * size
    total = np.where(np.isfinite(raw) | np.isinf(error), total, 0)
    most = MOST[dtype if partials > 1 else accumulate_type(dtype)]
    return np.where(size > most / 2, np.inf, total)  # sums on the way may be infinite, also in both directions


def magnitude(x):
    """|v| + e, without elements that are no numbers: they decide the result themselves."""
    return np.where(np.isfinite(x.value), np.abs(x.value), 0) + x.error


def reduce_sum(x, axes, partials):
    raw = x.value.sum(axis=axes)
    if not x.floating:
        return Bounded(x.dtype, wrap(x.dtype, raw) if x.dtype != "Bool" else (raw != 0).astype(np.int64),
                       x.error.sum(axis=axes))
    size = magnitude(x).sum(axis=axes)
    terms = int(np.prod([x.shape[a] for a in axes]))
    error = sums(x.dtype, raw, size, x.error.sum(axis=axes), terms, partials)
    if x.dtype in ("Float", "Double") and grid_sums(x, size.max(initial=0)):
        error = np.zeros(raw.shape)
    return rounded(x.dtype, raw, error)


def reduce_product(x, axes):
    raw = x.value.prod(axis=axes)
    if not x.floating:
        return Bounded(x.dtype, wrap(x.dtype, raw), np.where(x.error.sum(axis=axes) > 0, np.inf, 0))
    high = magnitude(x)
    known = np.where(np.isfinite(x.value), np.abs(x.value), 0)
    size = high.prod(axis=axes)
    terms = int(np.prod([x.shape[a] for a in axes]))
    error = size - known.prod(axis=axes) + (terms + 1) * ulp(x.dtype) * size
    # a product on the way may leave the range of the type
    most = np.maximum(high, 1).prod(axis=axes)
    least = np.where(high > 0, np.minimum(np.maximum(known - x.error, 0), 1), 1).prod(axis=axes)
    leaves = (most > MOST[x.dtype]) | ((least < 2.0**-126) & ~np.isfinite(raw))
    error = np.where(least < 2.0**-126, error + (terms + 1) * 2.0**-126 * most, error)
    return rounded(x.dtype, raw, np.where(leaves, np.inf, np.where(np.isfinite(raw), error, x.error.sum(axis=axes))))


def reduce_extreme(x, axes, op):
    f = np.max if op == "max" else np.min
    if x.value.size == 0:
        raise ValueError("an extreme of no elements")
    value = f(x.value, axis=axes)
    if not x.error.any():
        return Bounded(x.dtype, value, np.zeros(value.shape))
    error = np.zeros(value.shape)
    for end in (-1, 1):
        moved = f(x.value + end * np.where(np.isinf(x.error), 0, x.error), axis=axes)
        error = np.maximum(error, np.abs(np.where(np.isnan(value) | (moved == value), value, moved) - value))
    error = np.where(np.isnan(error), 0, error)
    unknown = np.isinf(x.error).any(axis=axes)
    return Bounded(x.dtype, value, np.where(unknown, np.inf, error))


def reduce_bits(x, axes, op):
    f = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[op]
    value = f.reduce(x.value, axis=axes)
    error = np.where(x.error.sum(axis=axes) > 0, np.inf, 0)
    if x.dtype == "Bool":
        ends = [np.where(x.error > 0, end, x.value) for end in (0, 1)]
        error = (np.where(error > 0, 1, 0) if op == "xor" else
                 np.abs(f.reduce(ends[0], axis=axes) - f.reduce(ends[1], axis=axes)))
    return Bounded(x.dtype, value, np.asarray(error, np.float64))


def reduced(op, x, axes, partials):
    axes = tuple(axes)
    if op == "sum":
        return reduce_sum(x, axes, partials)
    if op == "prod":
        return reduce_product(x, axes)
    return reduce_extreme(x, axes, op) if op in ("max", "min") else reduce_bits(x, axes, op)


def scanned(op, x, dim):
    """Each prefix is a reduction."""
    prefixes = [reduced(op, x.moved(lambda a, k=k: np.take(a, range(k + 1), dim)), [dim], 1)
                for k in range(x.shape[dim])]
    if not prefixes:
        return x
    return Bounded(x.dtype, np.stack([p.value for p in prefixes], dim), np.stack([p.error for p in prefixes], dim))


def contracted(dtype, a, b, multiply, bias, partials):
    """multiply: of two arrays. bias: None, or one that stretches to the result."""
    raw = multiply(a.value, b.value)
    if a.dtype not in MANTISSA:
        error = np.where(multiply(a.error + 0.0, np.ones(b.shape)) + multiply(np.ones(a.shape), b.error) > 0, np.inf, 0)
        if bias is not None:
            raw = raw + bias.value
            error = error + bias.error
        return Bounded(dtype, wrap(dtype, raw), np.asarray(error))
    known = [np.where(np.isfinite(x.value), np.abs(x.value), 0) for x in (a, b)]
    unknown = [np.isinf(x.error) for x in (a, b)]
    errors = [np.where(u, 0, x.error) for u, x in zip(unknown, (a, b))]
    error = multiply(known[0], errors[1]) + multiply(errors[0], known[1]) + multiply(errors[0], errors[1])
    size = multiply(known[0], known[1]) + error
    if accumulate_type(a.dtype) == "Float":  # products below the normal numbers lose digits
        error = error + np.where((size > 0) & (size < 2.0**-100), (a.shape[-1] + 1) * 2.0**-149, 0)
    infinite = [np.isinf(x.value) * 1.0 for x in (a, b)]
    moved = multiply((errors[0] > 0) * 1.0, infinite[1]) + multiply(infinite[0], (errors[1] > 0) * 1.0)
    error = np.where(moved > 0, np.inf, error)  # 0 * inf is no number
    if any(u.any() for u in unknown):
        ones = [np.ones(a.shape), np.ones(b.shape)]
        reached = multiply(unknown[0] * 1.0, ones[1]) + multiply(ones[0], unknown[1] * 1.0)
        error = np.where(reached > 0, np.inf, error)
    if bias is not None:
        raw = raw + bias.value
        size = size + magnitude(bias)
        error = error + bias.error
    error = sums(dtype, raw, size, error, a.shape[-1] + 1, partials)
    if dtype == "Half" and partials > 1:  # each part is rounded to a multiple of 2^-24
        error = error + np.minimum(partials * 2.0**-25, size)
    return rounded(dtype, raw, error)


def line_order(x, dim, descending):
    """NaN is the largest, and equal to itself; equal elements keep their order."""
    if not x.floating:
        return np.argsort(~x.value if descending else x.value, axis=dim, kind="stable")
    is_nan = np.isnan(x.value)
    value = np.where(is_nan, 0, x.value) + 0.0
    keys = (-value, ~is_nan) if descending else (value, is_nan)
    return np.lexsort(keys, axis=dim)


def could_precede(value, error):
    """In an order that ascends along the last axis, whether an element before may belong after this one."""
    high = value + error
    moving = np.where(error > 0, high, -np.inf)
    before, moving_before = (np.concatenate([np.full(a.shape[:-1] + (1,), -np.inf),
                                             np.maximum.accumulate(a, axis=-1)[..., :-1]], -1) for a in (high, moving))
    return ((error > 0) & (before >= value - error)) | ((moving_before > -np.inf) & (moving_before >= value))


def argsorted(x, dim, descending, count):
    order = line_order(x, dim, descending)
    sign = -1.0 if descending else 1.0
    value, error = (np.moveaxis(np.take_along_axis(a, order, dim), dim, -1)
                    for a in (sign * np.where(np.isnan(x.value), np.inf, x.value), x.error))
    unknown = could_precede(value, error) | could_precede(-value[..., ::-1], error[..., ::-1])[..., ::-1]
    unknown |= np.isinf(error).any(axis=-1, keepdims=True)
    error = np.moveaxis(np.where(unknown, np.inf, 0.0), -1, dim)
    return Bounded("Int", order, error).moved(lambda a: np.take(a, range(count), dim))


def accumulated(x, index, rows, partials):
    """index_put_accumulate: rows are added at the index, each element of the result is rounded once."""
    raw, error, size = x.value.copy(), x.error.copy(), magnitude(x)
    places = index.value.reshape(-1)
    rows = rows.moved(lambda a: a.reshape((len(places),) + x.shape[1:]))
    np.add.at(raw, places, rows.value)
    np.add.at(error, places, rows.error)
    np.add.at(size, places, magnitude(rows))
    if index.error.any():
        error[...] = np.inf
    if not x.floating:
        return Bounded(x.dtype, wrap(x.dtype, raw), error)
    terms = np.ones(x.shape[:1], np.int64)
    np.add.at(terms, places, 1)
    terms = terms.reshape((-1,) + (1,) * (len(x.shape) - 1))
    total = np.where(terms == 1, error, sums(x.dtype, raw, size, error, terms, partials))
    return rounded(x.dtype, raw, total)
