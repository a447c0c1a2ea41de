#!/usr/bin/env python3
"""What README.md has to be typed in, as it stands there: every command of gemmctl, in order, run against a daemon, and the
C program, compiled, run, its answer checked.

The program prints y[0] of a row of ones, which is the sum of the first row of the dequantised weight and
its bias: this script reads them from the checkpoint itself.
"""
import json
import os
import re
import shlex
import struct
import subprocess
import sys

import running


def blocks(language):
    """The texts between fences of that language, "" for none."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", (running.REPOSITORY / "README.md").read_text(), re.M | re.S)
    return [text for name, text in found if name == language]


def program():
    found = blocks("c")
    if len(found) != 1:
        sys.exit(f"README.md has {len(found)} C programs; this test knows what to do with one")
    return found[0]


def run_commands(folder, environment):
    """In a folder from where the tree's tests are seen as in a clone, and into which they may write."""
    (folder / "tests").symlink_to(running.REPOSITORY / "tests")
    lines = re.findall(r"^gemmctl .*", "".join(blocks("")), re.M)
    for line in lines:
        command = [running.BUILD / "client" / "tool" / "gemmctl", *shlex.split(line)[1:]]
        result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100)
        if result.returncode != 0 or not result.stdout:
            sys.exit(f"'{line}' of README.md ends with {result.returncode}: {result.stderr}")
        print(f"{line}: {len(result.stdout.splitlines())} lines")
    if not lines:
        sys.exit("README.md has no command of gemmctl; this test no longer understands it")


def tensor(name, code):
    """All elements of one tensor of the checkpoint, by the struct module's code, and its shape."""
    data = (running.CHECKPOINT / "model.safetensors").read_bytes()
    (header_bytes,) = struct.unpack_from("<Q", data)
    entry = json.loads(data[8 : 8 + header_bytes])[name]
    begin, end = entry["data_offsets"]
    return [item[0] for item in struct.iter_unpack(f"<{code}", data[8 + header_bytes :][begin:end])], entry["shape"]


def expected_first_element(layer):
    """bias[0] + sum over k of the dequantised weight's row 0 (symmetric: the zero point is 8)."""
    words, (n_words, n) = tensor(f"{layer}.qweight", "I")
    scales, (n_groups, _) = tensor(f"{layer}.scales", "e")
    bias, _ = tensor(f"{layer}.bias", "e")
    group = n_words * 8 // n_groups
    codes = [words[k // 8 * n] >> 4 * (k % 8) & 15 for k in range(n_words * 8)]
    return bias[0] + sum((code - 8) * scales[k // group * n] for k, code in enumerate(codes))


def compile_program(folder):
    source, library = folder / "first.c", running.BUILD / "client"
    source.write_text(program())
    command = ["cc", "-Wall", "-Wextra", "-Werror", source, "-o", folder / "first"]
    command += ["-I", running.REPOSITORY / "client" / "include", "-L", library, f"-Wl,-rpath,{library}", "-lgemmd"]
    subprocess.run(command, check=True)
    return folder / "first"


def main():
    with running.daemon(model=None) as folder:
        environment = {**os.environ, "GEMMD_SOCKET_DIR": str(folder)}
        run_commands(folder, environment)
        first = [compile_program(folder)]
        output = subprocess.run(first, check=True, capture_output=True, text=True, env=environment, timeout=30).stdout
    print(output, end="")
    got = float(re.fullmatch(r"y\[0\] = (\S+)\n", output).group(1))
    expected = expected_first_element(re.search(r'"minilm/([\w.]+)"', program()).group(1))
    print(f"expected {expected:g} from the checkpoint")
    return 0 if abs(got - expected) <= 1e-5 * max(1.0, abs(expected)) else 1


if __name__ == "__main__":
    sys.exit(main())
