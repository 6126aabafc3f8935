"""Triton kernels that compute what the programs beside this file compute, compiled for sm_90 without a GPU.

A twin is a list of launches; each names the blocks of its grid and how often its loops run. Sizes are constants, as in our kernels.
"""
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

ROWS, COLUMNS = 8192, 4096
BLOCK = 1024  # elements of a block of pointwise kernels
PARTS = 64  # of the rows, where columns are summed
NORM_PARTS = 512  # the same, of a norm's backward


@triton.jit
def add(x, y, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i).to(tl.float32)
    b = tl.load(y + i).to(tl.float32)
    tl.store(out + i, (a + b).to(out.dtype.element_ty))


@triton.jit
def bias_gelu(x, bias, out, N: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = (tl.program_id(0) * BLOCK) % N + tl.arange(0, BLOCK)
    a = tl.load(x + i).to(tl.float32) + tl.load(bias + n).to(tl.float32)
    inner = a * (1.5957691216057308 + 0.07135481627159607 * a * a)
    tl.store(out + i, (a * tl.sigmoid(inner)).to(out.dtype.element_ty))


@triton.jit
def softmax(x, out, N: tl.constexpr):
    n = tl.arange(0, N)
    i = tl.program_id(0).to(tl.int64) * N + n
    a = tl.load(x + i).to(tl.float32)
    e = tl.exp(a - tl.max(a, 0))
    tl.store(out + i, (e / tl.sum(e, 0)).to(out.dtype.element_ty))


@triton.jit
def layer_norm(x, weight, bias, out, N: tl.constexpr):
    n = tl.arange(0, N)
    i = tl.program_id(0).to(tl.int64) * N + n
    a = tl.load(x + i).to(tl.float32)
    centred = a - tl.sum(a, 0) / N
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / N + 1e-5)
    w = tl.load(weight + n).to(tl.float32)
    b = tl.load(bias + n).to(tl.float32)
    tl.store(out + i, (centred * scale * w + b).to(out.dtype.element_ty))


@triton.jit
def layer_norm_backward(dy, x, mean, invstd, weight, dx, dw_parts, db_parts, M: tl.constexpr, N: tl.constexpr, PARTS: tl.constexpr):
    part = tl.program_id(0)
    n = tl.arange(0, N)
    w = tl.load(weight + n).to(tl.float32)
    dw = tl.zeros([N], tl.float32)
    db = tl.zeros([N], tl.float32)
    for m in range(part, M, PARTS):
        i = m.to(tl.int64) * N + n
        d = tl.load(dy + i).to(tl.float32)
        s = tl.load(invstd + m)
        normal = (tl.load(x + i).to(tl.float32) - tl.load(mean + m)) * s
        dw += d * normal
        db += d
        wd = d * w
        inner = (wd - tl.sum(wd, 0) / N - normal * (tl.sum(wd * normal, 0) / N)) * s
        tl.store(dx + i, inner.to(dx.dtype.element_ty))
    tl.store(dw_parts + part * N + n, dw)
    tl.store(db_parts + part * N + n, db)


@triton.jit
def rms_norm(x, weight, out, N: tl.constexpr):
    n = tl.arange(0, N)
    i = tl.program_id(0).to(tl.int64) * N + n
    a = tl.load(x + i).to(tl.float32)
    scale = tl.rsqrt(tl.sum(a * a, 0) / N + 1e-5)
    tl.store(out + i, (a * scale * tl.load(weight + n).to(tl.float32)).to(out.dtype.element_ty))


@triton.jit
def cross_entropy(x, target, out, N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, N)
    a = tl.load(x + row * N + n).to(tl.float32)
    high = tl.max(a, 0)
    total = tl.log(tl.sum(tl.exp(a - high), 0))
    t = tl.load(target + row)
    counts = t != -100
    picked = tl.load(x + row * N + tl.where(counts, t, 0)).to(tl.float32)
    tl.store(out + row, tl.where(counts, total - (picked - high), 0.0).to(out.dtype.element_ty))


@triton.jit
def column_parts(x, parts, M: tl.constexpr, N: tl.constexpr, PARTS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    part = tl.program_id(1)
    m = part * (M // PARTS) + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for first in range(0, M // PARTS, BLOCK_M):
        total += tl.load(x + (m[:, None] + first) * N + n[None, :]).to(tl.float32)
    tl.store(parts + part * N + n, tl.sum(total, 0))


@triton.jit
def sum_of_parts(parts, out, N: tl.constexpr, PARTS: tl.constexpr, BLOCK_N: tl.constexpr):
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    a = tl.load(parts + tl.arange(0, PARTS)[:, None] * N + n[None, :])
    tl.store(out + n, tl.sum(a, 0).to(out.dtype.element_ty))


@triton.jit
def transpose(x, out, M: tl.constexpr, N: tl.constexpr, SIDE: tl.constexpr):
    m = tl.program_id(1) * SIDE + tl.arange(0, SIDE)
    n = tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    tile = tl.load(x + m[:, None] * N + n[None, :])
    tl.store(out + n[:, None] * M + m[None, :], tl.trans(tile))


@triton.jit
def dropout_norm(x, residual, weight, bias, out, N: tl.constexpr):
    n = tl.arange(0, N)
    row = tl.program_id(0)
    i = row.to(tl.int64) * N + n
    kept = tl.rand(0, row * N + n) < 0.9
    a = tl.load(x + i).to(tl.float32)
    a = tl.load(residual + i).to(tl.float32) + tl.where(kept, a * 1.1111111111111112, 0.0)
    centred = a - tl.sum(a, 0) / N
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / N + 1e-5)
    w = tl.load(weight + n).to(tl.float32)
    b = tl.load(bias + n).to(tl.float32)
    tl.store(out + i, (centred * scale * w + b).to(out.dtype.element_ty))


@triton.jit
def embedding(index, weight, out, N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, N)
    tl.store(out + row * N + n, tl.load(weight + tl.load(index + row) * N + n))


@triton.jit
def cumsum(x, out, N: tl.constexpr):
    n = tl.arange(0, N)
    i = tl.program_id(0).to(tl.int64) * N + n
    tl.store(out + i, tl.cumsum(tl.load(x + i).to(tl.float32), 0).to(out.dtype.element_ty))


# kernel, arguments ("*t" is the type of the data), constants, blocks, how often each loop of its machine code runs
_N = {"N": COLUMNS}
_SUM_OF_PARTS = (sum_of_parts, ["*fp32", "*t"], {**_N, "PARTS": PARTS, "BLOCK_N": 64}, COLUMNS // 64, [])
_NORM_BACKWARD = (
    layer_norm_backward,
    ["*t", "*t", "*fp32", "*fp32", "*t", "*t", "*fp32", "*fp32"],
    {"M": ROWS, **_N, "PARTS": NORM_PARTS},
    NORM_PARTS,
    [ROWS // NORM_PARTS],
)
_SUM_OF_NORM_PARTS = (sum_of_parts, ["*fp32", "*t"], {**_N, "PARTS": NORM_PARTS, "BLOCK_N": 16}, COLUMNS // 16, [])
_COLUMN_PARTS = {"M": ROWS, **_N, "PARTS": PARTS, "BLOCK_M": 32, "BLOCK_N": 128}
TWINS = {
    "add": [(add, ["*t", "*t", "*t"], {"BLOCK": BLOCK}, ROWS * COLUMNS // BLOCK, [])],
    "bias_gelu": [(bias_gelu, ["*t", "*t", "*t"], {**_N, "BLOCK": BLOCK}, ROWS * COLUMNS // BLOCK, [])],
    "softmax": [(softmax, ["*t", "*t"], _N, ROWS, [])],
    "layer_norm": [(layer_norm, ["*t", "*t", "*t", "*t"], _N, ROWS, [])],
    "layer_norm_backward": [_NORM_BACKWARD, _SUM_OF_NORM_PARTS, _SUM_OF_NORM_PARTS],
    "rms_norm": [(rms_norm, ["*t", "*t", "*t"], _N, ROWS, [])],
    "cross_entropy": [(cross_entropy, ["*t", "*i64", "*t"], _N, ROWS, [])],
    "outer_sum": [(column_parts, ["*t", "*fp32"], _COLUMN_PARTS, COLUMNS // 128 * PARTS, [ROWS // PARTS // 32]), _SUM_OF_PARTS],
    "transpose": [(transpose, ["*t", "*t"], {"M": ROWS, **_N, "SIDE": 64}, ROWS * COLUMNS // 64**2, [])],
    "dropout_norm": [(dropout_norm, ["*t", "*t", "*t", "*t", "*t"], _N, ROWS, [])],
    "embedding": [(embedding, ["*i64", "*t", "*t"], _N, ROWS, [])],
    "cumsum": [(cumsum, ["*t", "*t"], _N, ROWS, [])],
}

# how often the loops of our kernels run, by kernel: rows of a block; sums of four parts at a time, of each group and of all groups
OUR_TRIPS = {"layer_norm_backward": [[32, 4, 4]]}


def compiled(launch, dtype, warps):
    """The cubin of a launch for a type, fp32 or bf16; blocks, threads, bytes of shared memory, trips of loops."""
    function, arguments, constants, blocks, trips = launch
    types = [a.replace("t", dtype) if a == "*t" else a for a in arguments]
    names = function.arg_names
    signature = dict(zip(names, types)) | {name: "constexpr" for name in constants}
    constexprs = {(names.index(name),): value for name, value in constants.items()}
    attrs = {(i,): [["tt.divisibility", 16]] for i in range(len(types))}
    source = ASTSource(fn=function, signature=signature, constexprs=constexprs, attrs=attrs)
    kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
    return kernel.asm["cubin"], blocks, 32 * warps, kernel.metadata.shared, trips
