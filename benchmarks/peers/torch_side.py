"""PyTorch as a peer, eager and compiled; see run.py."""

import ml_dtypes
import numpy
import side
import torch
from torch.nn import functional

torch.set_num_threads(2)
torch.set_grad_enabled(False)

OPERATIONS = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "exp": torch.exp, "tanh": torch.tanh, "sin": torch.sin, "cos": torch.cos,
    "relu": torch.relu, "gelu": lambda x: functional.gelu(x, approximate="tanh"), "softmax": torch.softmax, "sum": torch.sum,
    "variance": torch.var, "argmax": torch.argmax, "cumsum": torch.cumsum, "sort": lambda x, dim: torch.sort(x, dim)[0],
    "topk": torch.topk, "permute": lambda x, order: x.permute(order), "reshape": torch.reshape, "matmul": torch.matmul,
    "linear": functional.linear, "attention": functional.scaled_dot_product_attention,
    "causal_attention": lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
    "layer_norm": lambda x, g, b: functional.layer_norm(x, g.shape, g, b, 1e-5),
    "layer_norm_backward": lambda d, x, m, r, g: torch.ops.aten.native_layer_norm_backward(d, x, g.shape, m, r, g, g, [True] * 3),
    "cross_entropy": functional.cross_entropy, "rms_norm": lambda x, g: functional.rms_norm(x, g.shape, g, 1e-5),
    "embedding": functional.embedding,
}  # fmt: skip


def tensor(array):
    return torch.from_numpy(array.view(numpy.uint16)).view(torch.bfloat16) if array.dtype == ml_dtypes.bfloat16 else torch.from_numpy(array)


def array(tensor):
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def prepare(program, arrays):
    torch._dynamo.reset()
    inputs = [tensor(a) for a in arrays.values()]
    function = side.function_of(program, arrays, OPERATIONS)

    def eager(*values):
        # a permute alone is a view; its copy is the work that the other sides do
        return [r.contiguous() for r in side.results_of(function(*values))]

    variants = {"torch": eager, "compiled": torch.compile(eager, dynamic=False)}
    return {name: (lambda f=f: f(*inputs), [array(r) for r in f(*inputs)]) for name, f in variants.items()}


side.serve(prepare)
