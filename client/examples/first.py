#!/usr/bin/env python3
"""A first product from Python: one row by one weight, with nothing but ctypes.

  first.py [WEIGHT [LIBRARY]]     the weight "minilm/pooler.dense", libgemmd.so.0.1 where the system finds libraries

The structs are those of gemmd.h, in its order; each begins with its own size, and gets the values of its _INIT macro.
"""
import ctypes
import sys
from ctypes import POINTER, byref, c_char, c_char_p, c_float, c_int, c_size_t, c_uint32, c_uint64, c_void_p

F32 = 1  # enum gemmd_dtype


class Weight(ctypes.Structure):
    """gemmd_weight_t"""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("id", c_uint64),
        ("n", c_uint32),
        ("k", c_uint32),
        ("device_index", c_uint32),
        ("act_dtype", c_int),
        ("has_bias", c_uint32),
        ("packed_bytes", c_uint64),
        ("generation", c_uint64),
        ("format", c_char * 64),
        ("name", c_char * 256),
        ("act", c_int),
    ]


class Gemm(ctypes.Structure):
    """struct gemmd_gemm"""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("weight", POINTER(Weight)),
        ("x", c_void_p),
        ("x_offset_bytes", c_uint64),
        ("x_stride", c_uint64),
        ("y", c_void_p),
        ("y_offset_bytes", c_uint64),
        ("y_stride", c_uint64),
        ("m", c_uint32),
        ("x_dtype", c_int),
        ("y_dtype", c_int),
        ("timeout_usec", c_uint64),
        ("x_scale", c_void_p),
        ("x_scale_offset_bytes", c_uint64),
        ("x_scale_stride", c_uint64),
        ("accumulation", c_int),
    ]


def load(path):
    """The library, with the arguments of the calls below."""
    gemmd = ctypes.CDLL(path)
    client, buffer = c_void_p, c_void_p
    gemmd.gemmd_last_error.restype = c_char_p
    gemmd.gemmd_open.argtypes = [c_void_p, POINTER(client)]
    gemmd.gemmd_find_weight.argtypes = [client, c_char_p, POINTER(Weight)]
    gemmd.gemmd_buffer_alloc_host.argtypes = [client, c_uint32, c_uint64, POINTER(buffer)]
    gemmd.gemmd_buffer_data.argtypes, gemmd.gemmd_buffer_data.restype = [buffer], c_void_p
    gemmd.gemmd_gemm.argtypes = [client, POINTER(Gemm)]
    gemmd.gemmd_close.argtypes, gemmd.gemmd_close.restype = [client], None
    return gemmd


def main(name="minilm/pooler.dense", path="libgemmd.so.0.1"):
    gemmd = load(path)

    def check(status):
        if status != 0:
            sys.exit(gemmd.gemmd_last_error().decode())

    client, x, y = c_void_p(), c_void_p(), c_void_p()
    weight = Weight(struct_bytes=ctypes.sizeof(Weight))
    check(gemmd.gemmd_open(None, byref(client)))
    check(gemmd.gemmd_find_weight(client, name.encode(), byref(weight)))
    check(gemmd.gemmd_buffer_alloc_host(client, weight.device_index, weight.k * 4, byref(x)))
    check(gemmd.gemmd_buffer_alloc_host(client, weight.device_index, weight.n * 4, byref(y)))
    row = (c_float * weight.k).from_address(gemmd.gemmd_buffer_data(x))
    row[:] = [1.0] * weight.k
    gemm = Gemm(struct_bytes=ctypes.sizeof(Gemm), weight=ctypes.pointer(weight), x=x, y=y, m=1, x_dtype=F32, y_dtype=F32)
    check(gemmd.gemmd_gemm(client, byref(gemm)))
    product = list((c_float * weight.n).from_address(gemmd.gemmd_buffer_data(y)))
    gemmd.gemmd_close(client)
    print(f"{name}: {weight.format.decode()}, y has {len(product)} elements, y[0] = {product[0]:g}")


if __name__ == "__main__":
    main(*sys.argv[1:])
