#!/usr/bin/env python3
"""The demo passes on the checkpoint that the daemon has loaded, and fails on one with a single bit changed."""
import subprocess
import sys

import running

LAYER = b"encoder.layer.3.output.dense.scales"


def run_demo(sockets, checkpoint):
    program = running.BUILD / "deploy" / "demo" / "gemmd-demo"
    command = [program, "--socket-dir", sockets, "--clients", "3", "--seconds", "1", "minilm", checkpoint]
    result = subprocess.run(command, capture_output=True, text=True, timeout=90)
    print(result.stdout + result.stderr)
    return result.returncode, result.stdout.splitlines()[-1]


def write_changed_checkpoint(folder):
    """The checkpoint with the lowest exponent bit of one layer's first scale flipped."""
    data = bytearray((running.CHECKPOINT / "model.safetensors").read_bytes())
    header_bytes = int.from_bytes(data[:8], "little")
    begin = data.index(b"[", data.index(b'"data_offsets"', data.index(LAYER)))
    offset = 8 + header_bytes + int(data[begin + 1 : data.index(b",", begin)])
    data[offset + 1] ^= 1 << 2
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(data)


def main():
    with running.daemon() as folder:
        good = run_demo(folder, running.CHECKPOINT)
        write_changed_checkpoint(folder / "changed")
        bad = run_demo(folder, folder / "changed")
    return 0 if good == (0, "PASS") and bad == (1, "FAIL") else 1


if __name__ == "__main__":
    sys.exit(main())
