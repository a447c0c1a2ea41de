#!/usr/bin/env python3
"""Writes the seed corpora of the ipc and kernels fuzz targets to tests/fuzz/corpus/. Run it from the root of the
tree after a change of proto/gemmd.proto, ipc/side.h or the heads of those targets and commit what it wrote. Needs nothing but
Python: protobuf's wire format is ten lines."""
import pathlib
import struct

ROOT = pathlib.Path(__file__).parent / "corpus"


def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    """A field by the type of its value: int, str, bytes (a sub-message) or float."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def message(*values):
    """Fields 1, 2, ... in order; None leaves one out."""
    return b"".join(field(i, v) for i, v in enumerate(values, 1) if v is not None)


def write(target, name, data):
    folder = ROOT / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def requests():
    submit = message(9, 3, 4, 64, 4096, 5, 128, 4096, 1000000, 16, 4096, 4096, 3, 1, 0)
    explain = message("m/l0.q") + field(2, varint(1) + varint(16) + varint(64))
    bench = (message("host", "int4-g128", 4096, 4096) + field(5, varint(1) + varint(64)) +
             field(6, 3) + field(7, 8000) + field(8, "avx2_int4") + field(8, "avx512_int4") + field(9, 1))
    verbs = {
        "ping": (10, b""), "status": (11, b""), "model_list": (12, b""),
        "weight_list": (13, message("m")), "weight_find": (14, message("m/l0.q")),
        "load": (15, message("m", "/models/m", "host", 0, 1)), "unload": (16, message("m")),
        "reload": (17, message("m")), "job_status": (18, message(7)),
        "job_cancel": (19, message(7)), "submit": (20, submit), "cancel": (21, message(9)),
        "explain": (22, explain), "verify": (23, message("m/l0.q")), "drain": (24, b""),
        "bench": (25, bench),
    }
    for name, (number, body) in verbs.items():
        write("codec-request", name, field(1, 1234567) + field(number, body))
    write("codec-request", "two-verbs", field(10, b"") + field(20, submit) + field(20, submit))
    write("codec-request", "unknown-field", field(99, "?") + field(10, b""))


def replies():
    weight = message(3, "m/l0.q", 1, 4096, 4096, 0, "int4 sym g128 f16 scales", "host-w4/1",
                     8650752, 1, 2)
    model = message("m", "/models/m", "host", "serving", 1, 36, 6000000, 0.25, 0, 2)
    job = message(7, "load", "failed", 10, 20, "l0.q", 0x302, "damaged", "orphan scale")
    row = message(16, "avx2_int4", 10.5, 1, 1, 1)
    bench = message(9, "bench", "done", 4, 4, "", 0, "4 times", None,
                    message("EPYC", "int4 sym g128 f16", "host-w4/1", 8650752, 31, 9.0, 33554432, row) +
                    field(8, row))
    choice = message(16, "avx512_w4", "16x64", 10.5, 11.25, 9.0,
                     message("avx2_w4", "the machine has better"))
    bodies = {
        "pong": (10, message("0.1.0")), "status": (11, message('{"version":"0.1.0"}')),
        "models": (12, field(1, model) + field(1, model)),
        "weights": (13, field(1, weight) + field(1, weight)),
        "job": (14, job + field(9, "another")), "bench": (14, bench), "submitted": (15, message(9, 16, 4, 3, 1200, 900)),
        "explanation": (16, message(weight, choice) + field(2, choice)),
    }
    for name, (number, body) in bodies.items():
        write("codec-reply", name, field(1, 1234567) + field(number, body))
    write("codec-reply", "refused", message(5, 0x102, "no weight is named 'm/l0.q'"))


def side_messages():
    sizes = {1: 32 + 64, 2: 24, 3: 32, 4: 32, 5: 24, 6: 112, 101: 120, 102: 24, 103: 56, 199: 16 + 8 + 320}
    fds = {102: 2, 103: 1, 4: 1}
    for kind, n_bytes in sizes.items():
        data = struct.pack("<IHHQ", 0x444D4D47, kind, n_bytes, 1).ljust(n_bytes, b"\0")
        write("side-message", f"type-{kind}", bytes([fds.get(kind, 0)]) + data)
    write("side-message", "too-many-fds", b"\3" + data)


def frames():
    def pack(*parts):
        return b"".join(struct.pack(">H", len(p)) + p for p in parts)
    # The target ends every message with one more, empty frame, or with a single byte left over.
    cases = {
        "direct": pack(b"token") + pack(b"") + b"x", "proxy": pack(b"p", b"token", b"") + b"x",
        "empty-payload": pack(b"token"), "no-delimiter": pack(b"a", b"b") + b"x",
        "two-payloads": pack(b"t", b"", b"one"), "no-sender": pack(b"") + b"x",
        "long-route": pack(b"r" * 256, b"") + b"x", "many": pack(*[b"x"] * 20),
        "long-payload": pack(b"t", b"", b"p" * 65535),
    }
    for name, data in cases.items():
        write("frame", name, data)


def readers():
    """Eight bytes of kind, n - 1, k - 1, extents of a scale - 1, type of scales, flags, global scale; then tensors."""
    rest = bytes(range(1, 120))
    cases = {
        "gptq": (0, 15, 31, 0, 15, 0, 16 | 2, 0), "gptq-v1": (0, 15, 31, 0, 15, 0, 16 | 8, 0),
        "gptq-order": (0, 7, 7, 0, 3, 2, 16 | 4 | 2, 0), "awq": (1, 15, 31, 0, 15, 0, 16 | 2, 0),
        "packed": (2, 8, 40, 0, 31, 1, 16 | 2, 0), "packed-8bit": (2, 8, 40, 0, 40, 1, 1, 0),
        "int8": (3, 8, 40, 0, 40, 2, 16 | 2, 0), "fp8-block": (4, 40, 60, 31, 31, 2, 0, 0),
        "mxfp8": (4, 7, 63, 0, 31, 4, 0, 0), "mxfp4": (5, 7, 63, 0, 31, 4, 0, 0),
        "nvfp4": (5, 7, 63, 0, 15, 3, 32, 2),
    }
    for name, head in cases.items():
        # 0x3c for each byte: scales of 1.0 and near it in every type
        write("reader", name, bytes(head) + b"\x3c" * 40 + rest)
    order = b"".join(struct.pack("<i", i % 2) for i in range(8))
    write("reader", "gptq-order", bytes(cases["gptq-order"]) + order + b"\x3c" * 64 + rest)


def parts():
    """As readers, with act and bias among the flags; then first_k, k and the cut along n."""
    cases = {
        "plain": (0, 99, 99, 0, 0, 1, 0, 0, 10, 80, 33), "int4": (1, 99, 191, 0, 63, 2, 0, 0, 64, 128, 33),
        "inside": (1, 99, 127, 0, 127, 0, 0, 0, 40, 60, 99), "order": (1, 9, 63, 0, 31, 4, 0, 0, 0, 64, 3),
        "block": (3, 199, 191, 127, 127, 8, 2, 0, 128, 64, 128), "tensor": (3, 63, 63, 63, 63, 16, 2, 0, 0, 32, 8),
        "int8": (2, 63, 63, 0, 63, 24, 2, 0, 8, 8, 70), "nvfp4": (4, 63, 63, 0, 15, 0, 3, 1, 16, 48, 31),
    }
    for name, head in cases.items():
        write("part", name, bytes(head) + b"\0")


def zmtp_streams():
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
    ready = b"\x04\x19\x05READY\x0bSocket-Type" + struct.pack(">I", 3) + b"REQ"
    def frame(flags, body):
        if flags & 2:
            return bytes([flags]) + struct.pack(">Q", len(body)) + body
        return bytes([flags, len(body)]) + body
    cases = {
        "request": frame(1, b"") + frame(0, b"\x08\x07\x52\x00"), "long": frame(3, b"x" * 300),
        "endless": frame(1, b"") * 1025, "big": frame(1, b"b" * 255) * 600,
        "huge": b"\x03" + b"\xff" * 8, "heartbeat": frame(1, b"") + frame(4, b"\x04PING\0\0"),
    }
    for name, data in cases.items():
        write("zmtp-meter", name, greeting + ready + data)
    write("zmtp-meter", "version-2", b"\xff" + bytes(8) + b"\x7f\x01\x05")


requests()
replies()
side_messages()
frames()
readers()
parts()
zmtp_streams()
