#!/usr/bin/env python3
"""client/examples/first.py, as a reader runs it: the same product as gemmctl's, and one line where there is no such weight."""
import os
import struct
import subprocess
import sys

import running

LIBRARY = running.BUILD / "client" / "libgemmd.so"
K = 384  # in features of minilm/pooler.dense


def first(folder, *arguments):
    command = [sys.executable, running.REPOSITORY / "client" / "examples" / "first.py", *arguments, LIBRARY]
    environment = {**os.environ, "GEMMD_SOCKET_DIR": str(folder)}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


def write_ones(path):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': (1, {K}), }}"
    header = header.ljust(118 - 1) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{K}f", *[1.0] * K))


def first_float(path):
    data = path.read_bytes()
    (n,) = struct.unpack_from("<H", data, 8)
    return struct.unpack_from("<f", data, 10 + n)[0]


def main():
    with running.daemon() as folder:
        result = first(folder, "minilm/pooler.dense")
        assert result.returncode == 0, result
        write_ones(folder / "x.npy")
        gemmctl = [running.BUILD / "client" / "tool" / "gemmctl", "--socket-dir", folder]
        product = ["gemm", "minilm/pooler.dense", "--in", folder / "x.npy", "--out", folder / "y.npy"]
        subprocess.run([*gemmctl, *product], check=True, capture_output=True)
        value = float(result.stdout.rsplit("=", 1)[1])
        expected = first_float(folder / "y.npy")
        assert abs(value - expected) <= 1e-4 * abs(expected), (result.stdout, expected)
        refused = first(folder, "minilm/nothing")
        assert refused.returncode == 1 and "minilm/nothing" in refused.stderr, refused
        assert len(refused.stderr.splitlines()) == 1, refused


if __name__ == "__main__":
    main()
