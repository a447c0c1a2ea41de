#!/usr/bin/env python3
"""PyTorch's tensors as x and y of products: the same bits as from host memory, whatever the allocator.

Run by tests/gpu/run, with GEMMD_PROGRAM, GEMMD_SOURCE_DIR and the library path set. Skipped (77) without torch.
"""
import ctypes
import os
import subprocess
import sys
import tempfile
import time

try:
    import torch
except ImportError:
    print("skipped: no torch")
    sys.exit(77)

GEMMD_F32, GEMMD_BF16 = 1, 3
WEIGHT = b"minilm/encoder.layer.0.intermediate.dense"


class Gemm(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_size_t), ("weight", ctypes.c_void_p),
        ("x", ctypes.c_void_p), ("x_offset_bytes", ctypes.c_uint64), ("x_stride", ctypes.c_uint64),
        ("y", ctypes.c_void_p), ("y_offset_bytes", ctypes.c_uint64), ("y_stride", ctypes.c_uint64),
        ("m", ctypes.c_uint32), ("x_dtype", ctypes.c_int), ("y_dtype", ctypes.c_int),
        ("timeout_usec", ctypes.c_uint64),
        ("x_scale", ctypes.c_void_p), ("x_scale_offset_bytes", ctypes.c_uint64), ("x_scale_stride", ctypes.c_uint64),
    ]


class Options(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_size_t), ("socket_dir", ctypes.c_char_p), ("name", ctypes.c_char_p),
        ("path", ctypes.c_int), ("spin_usec", ctypes.c_uint32), ("timeout_msec", ctypes.c_uint32),
    ]


class Weight(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_size_t), ("id", ctypes.c_uint64), ("n", ctypes.c_uint32), ("k", ctypes.c_uint32),
        ("device_index", ctypes.c_uint32), ("act_dtype", ctypes.c_int), ("has_bias", ctypes.c_uint32),
        ("packed_bytes", ctypes.c_uint64), ("generation", ctypes.c_uint64), ("format", ctypes.c_char * 64),
        ("name", ctypes.c_char * 256), ("act", ctypes.c_int),
    ]


gemmd = ctypes.CDLL("libgemmd.so")
gemmd.gemmd_last_error.restype = ctypes.c_char_p
gemmd.gemmd_buffer_data.restype = ctypes.c_void_p
for name in ("alloc_host", "import_cuda"):
    function = getattr(gemmd, "gemmd_buffer_" + name)
    pointer = [ctypes.c_void_p] if name == "import_cuda" else []
    function.argtypes = [ctypes.c_void_p, ctypes.c_uint32, *pointer, ctypes.c_uint64, ctypes.c_void_p]


def must(status):
    if status != 0:
        sys.exit("FAILED: " + gemmd.gemmd_last_error().decode())


def connect(folder):
    client = ctypes.c_void_p()
    options = Options(ctypes.sizeof(Options), folder.encode(), None, 0, 20, 5000)
    for _ in range(300):
        if gemmd.gemmd_open(ctypes.byref(options), ctypes.byref(client)) == 0:
            return client
        time.sleep(0.1)
    sys.exit("FAILED: no daemon: " + gemmd.gemmd_last_error().decode())


def buffer_of(client, tensor):
    """The tensor's memory, shared where it is."""
    buffer = ctypes.c_void_p()
    n_bytes = tensor.numel() * tensor.element_size()
    if tensor.is_cuda:
        must(gemmd.gemmd_buffer_import_cuda(client, 0, tensor.data_ptr(), n_bytes, ctypes.byref(buffer)))
    else:
        must(gemmd.gemmd_buffer_alloc_host(client, 0, n_bytes, ctypes.byref(buffer)))
        ctypes.memmove(gemmd.gemmd_buffer_data(buffer), tensor.data_ptr(), n_bytes)
    return buffer


def product(client, weight, x, y):
    x_buffer, y_buffer = buffer_of(client, x), buffer_of(client, y)
    torch.cuda.synchronize()
    gemm = Gemm(ctypes.sizeof(Gemm), ctypes.addressof(weight), x_buffer, 0, 0, y_buffer, 0, 0, x.shape[0],
                GEMMD_BF16, GEMMD_F32)
    must(gemmd.gemmd_gemm(client, ctypes.byref(gemm)))
    if not y.is_cuda:
        ctypes.memmove(y.data_ptr(), gemmd.gemmd_buffer_data(y_buffer), y.numel() * 4)
    gemmd.gemmd_buffer_free(x_buffer)
    gemmd.gemmd_buffer_free(y_buffer)
    return y.cpu()


def check(client):
    weight = Weight(ctypes.sizeof(Weight))
    must(gemmd.gemmd_find_weight(client, WEIGHT, ctypes.byref(weight)))
    fillers = []
    for m in (1, 5, 64, 200):
        fillers.append(torch.empty(1000 * m, device="cuda"))  # so that tensors lie anywhere in their blocks
        x = torch.randn(m, weight.k).bfloat16()
        expected = product(client, weight, x, torch.full((m, weight.n), float("nan")))
        got = product(client, weight, x.cuda(), torch.full((m, weight.n), float("nan"), device="cuda"))
        if not torch.equal(expected, got):
            sys.exit(f"FAILED: m {m}: other bits in tensors than in host memory")


with tempfile.TemporaryDirectory() as folder:
    model = os.environ["GEMMD_SOURCE_DIR"] + "/tests/data/minilm-gptq-4bit"
    daemon = subprocess.Popen([os.environ["GEMMD_PROGRAM"], "--socket-dir", folder, "--model", "minilm=" + model])
    try:
        client = connect(folder)
        check(client)
        gemmd.gemmd_close(client)
    finally:
        daemon.terminate()
        daemon.wait()
print("the same bits in tensors as in host memory")
