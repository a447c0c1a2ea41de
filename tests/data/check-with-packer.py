#!/usr/bin/env python3
"""Check the committed checkpoint, bit for bit, against two packers from PyPI that are not ours.

    python3 tests/data/check-with-packer.py [--venv FOLDER]

AutoGPTQ's own QuantLinear.pack() packs the dequantised weights again, and its words must be the file's
words; compressed-tensors' unpack_from_int32() must read the file's words as the same codes that this
script reads with shifts, and its pack_to_int32() must write them back. The script makes a virtual environment for
that, about 5 GB with PyTorch's libraries, so no test runs it: its output is kept in
minilm-gptq-4bit/PACKER_CHECK.md. Exit status 1 when any tensor differs.
"""
import argparse
import hashlib
import importlib.metadata
import importlib.util
import pathlib
import platform
import subprocess
import sys
import tempfile
import venv

CHECKPOINT = pathlib.Path(__file__).resolve().parent / "minilm-gptq-4bit" / "model.safetensors"
REQUIRED = ["torch==2.15.0", "transformers==5.24.0", "safetensors", "numpy", "compressed-tensors==0.20.1"]
WITHOUT_DEPENDENCIES = ["auto-gptq==0.7.1"]  # those it names are for running models, not for packing
BITS, GROUP, ZERO = 4, 128, 8


def enter_venv(folder):
    """Run this script again inside a virtual environment that has the packers."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    pip = [python, "-m", "pip", "install", "--quiet"]
    subprocess.run(pip + REQUIRED, check=True)
    subprocess.run(pip + ["--no-deps"] + WITHOUT_DEPENDENCIES, check=True)
    return subprocess.run([python, __file__, "--inside"]).returncode


def load_auto_gptq_linear():
    """AutoGPTQ's layer class from its own file: the package's __init__ wants a whole model stack."""
    root = pathlib.Path(importlib.util.find_spec("auto_gptq").origin).parent
    path = root / "nn_modules" / "qlinear" / "qlinear_cuda_old.py"
    spec = importlib.util.spec_from_file_location("qlinear_cuda_old", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.QuantLinear


def codes_by_shifts(words, rows):
    """Words (rows / 8, n) to codes (rows, n), lowest bits first."""
    import torch

    shifts = torch.arange(0, 32, BITS, dtype=torch.int32).view(1, -1, 1)
    return ((words.unsqueeze(1) >> shifts) & 0xF).reshape(rows, -1)


def pack_with_auto_gptq(quant_linear, codes, scales, bias):
    """What AutoGPTQ writes for a layer with these codes (k, n), scales (groups, n) and bias (n)."""
    import torch

    k, n = codes.shape
    linear = torch.nn.Linear(k, n, bias=True)
    weight = (codes.float() - ZERO) * scales.float().repeat_interleave(GROUP, dim=0)
    linear.weight.data = weight.t().contiguous().half()
    linear.bias.data = bias
    layer = quant_linear(BITS, GROUP, k, n, bias=True)
    layer.pack(linear, scales.float().t(), torch.full((n, k // GROUP), float(ZERO)), None)
    return {name: getattr(layer, name) for name in ("qweight", "qzeros", "scales", "g_idx", "bias") if hasattr(layer, name)}


def differences(name, tensors, quant_linear):
    """Names of the comparisons that failed for one layer, and the tensors of it that were compared."""
    import torch
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32

    words = tensors[f"{name}.qweight"]
    k, n = words.shape[0] * 8, words.shape[1]
    codes = codes_by_shifts(words, k)
    packed = pack_with_auto_gptq(quant_linear, codes, tensors[f"{name}.scales"], tensors[f"{name}.bias"])
    bad = [part for part, made in packed.items() if not torch.equal(made, tensors[f"{name}.{part}"])]
    unpacked = unpack_from_int32(words, BITS, torch.Size((k, n)), packed_dim=0)
    if not torch.equal(unpacked.to(torch.int32), codes - ZERO):
        bad.append("unpack_from_int32")
    if not torch.equal(pack_to_int32(unpacked.contiguous(), BITS, packed_dim=0), words):
        bad.append("pack_to_int32")
    return bad, sorted(packed)


def check():
    import torch
    from safetensors.torch import load_file

    for package in ("torch", "auto-gptq", "compressed-tensors", "safetensors"):
        print(f"{package} {importlib.metadata.version(package)}")
    print(f"python {platform.python_version()}")
    print(f"sha256 of {CHECKPOINT.name}: {hashlib.sha256(CHECKPOINT.read_bytes()).hexdigest()}")
    tensors = load_file(CHECKPOINT)
    quant_linear = load_auto_gptq_linear()
    layers = sorted(name[: -len(".qweight")] for name in tensors if name.endswith(".qweight"))
    n_bad = 0
    for name in layers:
        bad, parts = differences(name, tensors, quant_linear)
        n_bad += bool(bad)
        print(f"{name}: {'DIFFERENT in ' + ', '.join(bad) if bad else 'identical: ' + ', '.join(parts)}")
    print(f"{len(layers)} layers, {len(layers) - n_bad} identical, {n_bad} different")
    return 1 if n_bad or not layers else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venv", type=pathlib.Path, help="keep the environment here for the next time")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        return check()
    if args.venv:
        return enter_venv(args.venv)
    with tempfile.TemporaryDirectory() as folder:
        return enter_venv(pathlib.Path(folder))


if __name__ == "__main__":
    sys.exit(main())
