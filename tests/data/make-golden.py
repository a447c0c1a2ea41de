#!/usr/bin/env python3
"""Write tests/data/golden/: one tiny quantised layer in each checkpoint format, by the tools that made the format.

    python3 tests/data/make-golden.py [--venv FOLDER]

Each layer is packed by a tool's own packer and dequantised by that tool's own code; the products with that
weight are computed in float64. Tests read the results and need none of this: the virtual environment takes
about 8 GB and a GPU is not used. The formats, one function each, are in golden_formats.py.
"""
import argparse
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import venv

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE / "golden"
REQUIRED = ["torch==2.15.0", "transformers==5.24.0", "safetensors==0.8.0", "compressed-tensors==0.20.1",
            "nvidia-modelopt==0.47.0", "accelerate", "datasets", "defuser", "device-smi", "logbar", "ninja", "pillow",
            "pypcre", "threadpoolctl", "tokenicer", "torchao==0.18.0"]
WITHOUT_DEPENDENCIES = ["auto-gptq==0.7.1", "autoawq==0.2.9"]  # those they name are for running models
FROM_SOURCE = ["gptqmodel==7.7.0"]
# The last releases of compressed-tensors have no act-order with a g_idx; checkpoints that older ones wrote do.
OLD_COMPRESSED_TENSORS = "compressed-tensors==0.9.4"
M, SHOWN_ROWS = 2, [0, 9, 18, 27, 36, 45, 54, 63]  # rows of W kept beside the products: every residue modulo 8


def enter_venv(folder):
    """Run this script again inside a virtual environment that has the tools, and once more with the old one first."""
    python, old = folder / "bin" / "python", folder / "old-compressed-tensors"
    pip = [python, "-m", "pip", "install", "--quiet"]
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run(pip + REQUIRED, check=True)
        subprocess.run(pip + ["--no-deps"] + WITHOUT_DEPENDENCIES, check=True)
        no_kernels = {**os.environ, "BUILD_CUDA_EXT": "0"}
        subprocess.run(pip + ["--no-deps", "--no-build-isolation"] + FROM_SOURCE, check=True, env=no_kernels)
        subprocess.run(pip + ["--no-deps", "--target", old, OLD_COMPRESSED_TENSORS], check=True)
    subprocess.run([python, __file__, "--inside"], check=True)
    with_old = {**os.environ, "PYTHONPATH": str(old)}
    subprocess.run([python, __file__, "--inside", "--old"], check=True, env=with_old)


def products(weight, name):
    """Inputs of small eighths, so that only the tool's own rounding is in the products."""
    import torch

    generator = torch.Generator().manual_seed(sum(name.encode()))
    x = torch.randint(-16, 17, (M, weight.shape[1]), generator=generator).to(torch.float32) / 8
    return x, x.double() @ weight.double().T


def write_case(name, case):
    import torch
    from safetensors.torch import save_file

    folder = GOLDEN / name
    folder.mkdir(parents=True, exist_ok=True)
    x, y = products(case.weight, name)
    tensors = {f"layer.{part}": tensor.contiguous() for part, tensor in case.tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    expected = {"x": x, "y": y, "rows": torch.tensor(SHOWN_ROWS, dtype=torch.int32),
                "weight": case.weight[SHOWN_ROWS].float().contiguous()}
    save_file(expected, folder / "expected.safetensors", metadata={"tool": case.tool})
    for file, content in case.configs.items():
        (folder / file).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
    n_bytes = sum(path.stat().st_size for path in folder.iterdir())
    print(f"| `{name}` | {tuple(case.weight.shape)[0]} x {tuple(case.weight.shape)[1]} | {case.tool} | {n_bytes} |")


def make(is_old):
    import torch
    import golden_formats

    torch.set_num_threads(1)
    for name, maker in golden_formats.makers(is_old):
        torch.manual_seed(sum(name.encode()))
        write_case(name, maker())
    if not is_old:
        packages = ["torch", "transformers", "safetensors", "compressed-tensors", "nvidia-modelopt", "auto-gptq",
                    "autoawq", "gptqmodel"]
        versions = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages)
        print(f"{versions}, Python {platform.python_version()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venv", type=pathlib.Path, help="keep the environment here for the next time")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--old", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        make(args.old)
    elif args.venv:
        enter_venv(args.venv.resolve())
    else:
        with tempfile.TemporaryDirectory() as folder:
            enter_venv(pathlib.Path(folder))


if __name__ == "__main__":
    sys.exit(main())
