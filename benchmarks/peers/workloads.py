"""The workloads that meshfuse and its peers run: one row each, read by all sides.

A program is text in the syntax of Python: assignments, calls of the operations that each side has a table of, and the results as the last
expression. An input is "name: extents [type]"; types are float (the default), double, bf16, and `below N`: int64 indices in [0, N).
The goal is the least ratio of the best peer's time to that of meshfuse.
"""

import collections

Workload = collections.namedtuple("Workload", "name inputs program goal")


def rows_of(goal, text):
    """Workloads with one goal; a line of the text is NAME | INPUT, .. | PROGRAM."""
    for line in filter(None, map(str.strip, text.splitlines())):
        name, inputs, program = (part.strip() for part in line.split("|"))
        yield Workload(name, [part.strip() for part in inputs.split(",")], program, goal)


def block(x, layer, batch, tokens, hidden, heads, attention):
    """Inputs and program of a transformer block with norms before attention and MLP, which ends in the tensor `x`."""
    def weight(name, extents):
        return f"{name}{layer}: {extents}"

    split = f"[{batch}, {tokens}, {heads}, {hidden // heads}]"
    inputs = [weight(f"g{i}_", hidden) for i in (1, 2)] + [weight(f"b{i}_", hidden) for i in (1, 2)]
    inputs += [weight(f"w{p}_", f"{hidden} {hidden}") for p in "qkvo"] + [weight(f"c{p}_", hidden) for p in "qkvo"]
    inputs += [weight("wu_", f"{4 * hidden} {hidden}"), weight("cu_", 4 * hidden), weight("wd_", f"{hidden} {4 * hidden}"), weight("cd_", hidden)]
    n = layer
    program = f"h = layer_norm({x}, g1_{n}, b1_{n}); "
    for p in "qkv":
        program += f"{p} = permute(reshape(linear(h, w{p}_{n}, c{p}_{n}), {split}), [0, 2, 1, 3]); "
    program += f"a = reshape(permute({attention}(q, k, v), [0, 2, 1, 3]), [{batch}, {tokens}, {hidden}]); "
    program += f"x = {x} + linear(a, wo_{n}, co_{n}); h = layer_norm(x, g2_{n}, b2_{n}); "
    program += f"x = x + linear(gelu(linear(h, wu_{n}, cu_{n})), wd_{n}, cd_{n}); "
    return inputs, program


def transformer(name, layers, batch, tokens, hidden, heads, attention, goal, kind=""):
    inputs, program = [f"x: {batch} {tokens} {hidden}"], ""
    for layer in range(layers):
        more, text = block("x", layer, batch, tokens, hidden, heads, attention)
        inputs, program = inputs + more, program + text
    return Workload(name, [f"{i} {kind}".strip() for i in inputs], program + "x", goal)


WORKLOADS = [
    *rows_of(1.0, """
        add | x: 8192 4096, y: 8192 4096 | x + y
        add odd | x: 8191 4097, y: 8191 4097 | x + y
        add small | x: 64 64, y: 64 64 | x + y
        bias gelu | x: 8192 4096, b: 4096 | gelu(x + b)
        bias gelu bf16 | x: 8192 4096 bf16, b: 4096 bf16 | gelu(x + b)
        bias gelu small | x: 128 768, b: 768 | gelu(x + b)
        chain of 12 | x: 8192 4096, y: 8192 4096 | relu(tanh(exp((x * y + x) * y - x) * y + x) * y - x) * y
        sin | x: 8192 4096 | sin(x)
        cos | x: 4096 4096 | cos(x)
        exp bf16 | x: 8192 4096 bf16 | exp(x)
        softmax | x: 8192 4096 | softmax(x, 1)
        softmax bf16 | x: 8192 4096 bf16 | softmax(x, 1)
        softmax long | x: 256 131072 | softmax(x, 1)
        softmax few long | x: 4 4194304 | softmax(x, 1)
        softmax odd | x: 8191 1001 | softmax(x, 1)
        softmax small | x: 128 128 | softmax(x, 1)
        softmax columns | x: 4096 4096 | softmax(x, 0)
        layer norm | x: 8192 4096, g: 4096, b: 4096 | layer_norm(x, g, b)
        layer norm bf16 | x: 8192 4096 bf16, g: 4096 bf16, b: 4096 bf16 | layer_norm(x, g, b)
        layer norm small | x: 512 768, g: 768, b: 768 | layer_norm(x, g, b)
        RMS norm | x: 8192 4096, g: 4096 | rms_norm(x, g)
        layer norm backward | d: 8192 4096, x: 8192 4096, m: 8192 1, r: 8192 1, g: 4096 | layer_norm_backward(d, x, m, r, g)
        layer norm backward small | d: 512 768, x: 512 768, m: 512 1, r: 512 1, g: 768 | layer_norm_backward(d, x, m, r, g)
        sum | x: 8192 4096 | sum(x, 1)
        sum columns | x: 8192 4096 | sum(x, 0)
        sum columns odd | x: 8191 1001 | sum(x, 0)
        sum few long | x: 4 8388608 | sum(x, 1)
        variance | x: 8192 4096 | variance(x, 1)
        argmax | x: 8192 4096 | argmax(x, 1)
        cross entropy | x: 4096 8192, t: 4096 below 8192 | cross_entropy(x, t)
        embedding | t: 16384 below 32000, w: 32000 768 | embedding(t, w)
        transpose | x: 8192 4096 | permute(x, [1, 0])
        transpose odd | x: 8191 4095 | permute(x, [1, 0])
        transpose small | x: 512 512 | permute(x, [1, 0])
        transpose bf16 | x: 8192 4096 bf16 | permute(x, [1, 0])
        permute 201 | x: 64 512 1024 | permute(x, [2, 0, 1])
        permute 0213 | x: 8 1024 16 64 | permute(x, [0, 2, 1, 3])
        channels last | x: 32 64 56 56 | permute(x, [0, 2, 3, 1])
        """),
    *rows_of(1.5, """
        cumsum | x: 8192 4096 | cumsum(x, 1)
        cumsum columns | x: 8192 4096 | cumsum(x, 0)
        cumsum odd | x: 8191 1001 | cumsum(x, 1)
        top-k | x: 4096 4096 | topk(x, 64)
        top-k small | x: 128 1000 | topk(x, 5)
        sort | x: 1024 4096 | sort(x, 1)
        """),
    *rows_of(0.9, """
        matmul | x: 1024 1024, w: 1024 1024 | matmul(x, w)
        matmul odd | x: 1000 1023, w: 1023 1001 | matmul(x, w)
        matmul small | x: 64 64, w: 64 64 | matmul(x, w)
        matmul 256 | x: 256 256, w: 256 256 | matmul(x, w)
        matmul batch | x: 64 128 64, w: 64 64 128 | matmul(x, w)
        matmul transposed | x: 1024 1024, w: 1024 1024 | matmul(permute(x, [1, 0]), w)
        matmul wide | x: 256 512, w: 512 8192 | matmul(x, w)
        linear gelu | x: 4096 1024, w: 1024 1024, b: 1024 | gelu(linear(x, w, b))
        linear 512 | x: 2048 512, w: 512 512, b: 512 | linear(x, w, b)
        linear 8 rows | x: 8 4096, w: 4096 4096, b: 4096 | linear(x, w, b)
        linear 1 row | x: 1 4096, w: 4096 4096, b: 4096 | linear(x, w, b)
        linear 33 rows | x: 33 1000, w: 3001 1000, b: 3001 | linear(x, w, b)
        attention | q: 4 16 1024 64, k: 4 16 1024 64, v: 4 16 1024 64 | attention(q, k, v)
        attention small | q: 8 12 128 32, k: 8 12 128 32, v: 8 12 128 32 | attention(q, k, v)
        causal attention | q: 4 16 1024 64, k: 4 16 1024 64, v: 4 16 1024 64 | causal_attention(q, k, v)
        """),
    *rows_of(0.75, """
        matmul bf16 | x: 1024 1024 bf16, w: 1024 1024 bf16 | matmul(x, w)
        matmul odd bf16 | x: 1000 1023 bf16, w: 1023 1001 bf16 | matmul(x, w)
        matmul small bf16 | x: 64 64 bf16, w: 64 64 bf16 | matmul(x, w)
        linear gelu bf16 | x: 4096 1024 bf16, w: 1024 1024 bf16, b: 1024 bf16 | gelu(linear(x, w, b))
        linear 8 rows bf16 | x: 8 4096 bf16, w: 4096 4096 bf16, b: 4096 bf16 | linear(x, w, b)
        attention bf16 | q: 4 16 1024 64 bf16, k: 4 16 1024 64 bf16, v: 4 16 1024 64 bf16 | attention(q, k, v)
        causal attention bf16 | q: 4 16 1024 64 bf16, k: 4 16 1024 64 bf16, v: 4 16 1024 64 bf16 | causal_attention(q, k, v)
        """),
    *rows_of(0.6, """
        matmul double | x: 512 512 double, w: 512 512 double | matmul(x, w)
        matmul odd double | x: 301 400 double, w: 400 333 double | matmul(x, w)
        """),
    transformer("transformer block", 1, 4, 512, 768, 12, "causal_attention", 0.9),
    transformer("transformer block bf16", 1, 4, 512, 768, 12, "causal_attention", 0.75, "bf16"),
    transformer("encoder 8 x 128", 6, 8, 128, 384, 12, "attention", 0.95),
    transformer("encoder 1 x 16", 6, 1, 16, 384, 12, "attention", 0.95),
]
