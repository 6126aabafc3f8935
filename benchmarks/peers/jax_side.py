"""JAX as a peer; see run.py."""

import jax
import jax.numpy as jnp
import numpy
import side

jax.config.update("jax_enable_x64", True)


def attention(q, k, v, causal=False):
    if causal:
        mask = jnp.tril(jnp.ones((q.shape[-2], k.shape[-2]), bool))
    scores = q @ jnp.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5)
    return jax.nn.softmax(jnp.where(mask, scores, -jnp.inf) if causal else scores, -1) @ v


def layer_norm(x, weight, bias):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * weight + bias


def layer_norm_backward(d, x, mean, invstd, weight):
    normed, scaled = (x - mean) * invstd, d * weight
    inner = scaled - scaled.mean(-1, keepdims=True) - normed * (scaled * normed).mean(-1, keepdims=True)
    return inner * invstd, (d * normed).sum(0), d.sum(0)


def cross_entropy(x, target):
    return -jnp.take_along_axis(jax.nn.log_softmax(x, 1), target[:, None], 1).mean()


OPERATIONS = {
    "add": jnp.add, "sub": jnp.subtract, "mul": jnp.multiply, "exp": jnp.exp, "tanh": jnp.tanh, "sin": jnp.sin, "cos": jnp.cos,
    "relu": jax.nn.relu, "gelu": lambda x: jax.nn.gelu(x, approximate=True), "softmax": jax.nn.softmax, "sum": jnp.sum,
    "variance": lambda x, dim: jnp.var(x, dim, ddof=1), "argmax": jnp.argmax, "cumsum": jnp.cumsum, "sort": jnp.sort,
    "topk": lambda x, k: jax.lax.top_k(x, k), "permute": jnp.transpose, "reshape": jnp.reshape, "matmul": jnp.matmul,
    "linear": lambda x, w, b: x @ w.T + b, "attention": attention, "causal_attention": lambda q, k, v: attention(q, k, v, True),
    "layer_norm": layer_norm, "layer_norm_backward": layer_norm_backward, "cross_entropy": cross_entropy,
    "rms_norm": lambda x, g: x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g,
    "embedding": lambda index, weight: jnp.take(weight, index, 0),
}  # fmt: skip


def prepare(program, arrays):
    inputs = [jnp.asarray(array) for array in arrays.values()]
    compiled = jax.jit(side.function_of(program, arrays, OPERATIONS))
    results = [numpy.asarray(r) for r in side.results_of(compiled(*inputs))]
    return {"jax": (lambda: jax.block_until_ready(compiled(*inputs)), results)}


side.serve(prepare)
