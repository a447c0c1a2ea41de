"""One function for each checkpoint format: a random weight through a tool's packer, and back by its own dequantiser.

Used by make-golden.py, inside its virtual environment. Dequantisation gets the stored scales widened to float32, so
that the tool's arithmetic does not round to 16 bits what the file says exactly.
"""
import importlib.metadata
import importlib.util
import pathlib
import sys
import types
from dataclasses import dataclass

import torch


@dataclass
class Case:
    tensors: dict  # what the file holds of the layer
    configs: dict  # file name -> JSON
    weight: torch.Tensor  # (n, k), by the tool
    tool: str


def random_linear(n, k, bias=False):
    linear = torch.nn.Linear(k, n, bias=bias)
    linear.weight.data = torch.randn(n, k) * 0.05
    return linear


def config_json(quantization_config):
    return {"config.json": {"model_type": "golden", "torch_dtype": "float16",
                            "quantization_config": quantization_config}}


def stub_package(name):
    """A package whose __init__ wants a whole model stack: its modules can be imported without it."""
    if name in sys.modules:
        return
    package = types.ModuleType(name)
    package.__path__ = [importlib.util.find_spec(name).submodule_search_locations[0]]
    sys.modules[name] = package


def affine_parameters(weight, bits, group, symmetric, g_idx):
    """Scales and zero points (n, groups) of the groups that g_idx makes; round to nearest, no calibration."""
    n_groups = weight.shape[1] // group
    maxq = 2**bits - 1
    scales = torch.empty(weight.shape[0], n_groups)
    zeros = torch.full_like(scales, 2 ** (bits - 1))
    for i in range(n_groups):
        part = weight[:, g_idx == i]
        if symmetric:
            scales[:, i] = part.abs().amax(1) / 2 ** (bits - 1)
            continue
        low, high = part.amin(1).clamp(max=0), part.amax(1).clamp(min=0)
        scales[:, i] = (high - low) / maxq
        # AutoGPTQ's packer stores zero - 1 through an unsigned type: 0 would damage its neighbours.
        zeros[:, i] = (-low / scales[:, i]).round().clamp(1, maxq)
    return scales.half().float(), zeros


# ---- GPTQ ----


def auto_gptq(n, k, bits, group, symmetric):
    stub_package("auto_gptq")
    from auto_gptq.nn_modules.qlinear.qlinear_cuda_old import QuantLinear

    linear = random_linear(n, k, bias=True).half()
    scales, zeros = affine_parameters(linear.weight.data.float(), bits, group, symmetric, torch.arange(k) // group)
    layer = QuantLinear(bits, group, k, n, bias=True)
    layer.pack(linear, scales, zeros.clone(), None)
    tensors = {part: getattr(layer, part).clone() for part in ("qweight", "qzeros", "scales", "bias")}
    tensors["g_idx"] = (torch.arange(k) // group).to(torch.int32)
    layer.scales, layer.bias = layer.scales.float(), None
    weight = layer(torch.eye(k)).T
    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": symmetric, "desc_act": False,
              "damp_percent": 0.01, "static_groups": False, "true_sequential": True}
    version = importlib.metadata.version("auto-gptq")
    tool = f"auto-gptq {version}, qlinear_cuda_old: pack(), forward() of the identity"
    return Case(tensors, config_json(config), weight, tool)


def gptqmodel(n, k, bits, group, symmetric, act_order):
    from gptqmodel import QuantizeConfig
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear

    size = k if group == -1 else group
    g_idx = torch.arange(k) // size
    if act_order:
        g_idx = g_idx[torch.randperm(k)]
    g_idx = g_idx.to(torch.int32)
    linear = random_linear(n, k)
    scales, zeros = affine_parameters(linear.weight.data, bits, size, symmetric, g_idx)
    layer = TorchLinear(bits=bits, group_size=group, sym=symmetric, desc_act=act_order, in_features=k, out_features=n,
                        bias=False, register_buffers=True)
    layer.pack_original(linear, scales, zeros, g_idx)
    tensors = {part: getattr(layer, part).clone() for part in ("qweight", "qzeros", "scales", "g_idx")}
    layer.scales = layer.scales.float()
    layer.post_init()
    layer.eval()
    weight = layer.dequantize_weight().T.float()
    config = QuantizeConfig(bits=bits, group_size=group, sym=symmetric, desc_act=act_order, format="gptq_v2").to_dict()
    config["meta"].pop("offload_to_disk_path")  # of the machine that ran this
    version = importlib.metadata.version("gptqmodel")
    tool = f"gptqmodel {version}, TorchLinear: pack_original(), dequantize_weight()"
    return Case(tensors, config_json(config), weight, tool)


# ---- AWQ ----


def auto_awq(n, k, group):
    stub_package("awq")
    from awq.modules.linear.gemm import WQLinear_GEMM
    from awq.utils.packing_utils import dequantize_gemm

    linear = random_linear(n, k, bias=True)
    scales, zeros = affine_parameters(linear.weight.data, 4, group, False, torch.arange(k) // group)
    codes = (linear.weight.data / scales.repeat_interleave(group, 1)).round() + zeros.repeat_interleave(group, 1)
    linear.weight.data = (codes.clamp(0, 15) - zeros.repeat_interleave(group, 1)) * scales.repeat_interleave(group, 1)
    layer = WQLinear_GEMM.from_linear(linear, 4, group, scales=scales.T.contiguous(), zeros=zeros.T.contiguous())
    tensors = {part: getattr(layer, part).clone() for part in ("qweight", "qzeros", "scales", "bias")}
    weight = dequantize_gemm(layer.qweight, layer.qzeros, layer.scales.float(), 4, group).T
    config = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm",
              "modules_to_not_convert": None}
    version = importlib.metadata.version("autoawq")
    tool = f"autoawq {version}, WQLinear_GEMM.from_linear(), dequantize_gemm()"
    return Case(tensors, config_json(config), weight, tool)


# ---- compressed-tensors ----


def extremes(weight, args):
    """Least and greatest element of each part of W that gets a scale."""
    n, k = weight.shape
    if args.strategy == "tensor":
        return weight.amin().reshape(1), weight.amax().reshape(1)
    if args.strategy == "block":
        block_n, block_k = args.block_structure
        padded = torch.zeros(-(-n // block_n) * block_n, -(-k // block_k) * block_k)
        padded[:n, :k] = weight
        blocks = padded.reshape(padded.shape[0] // block_n, block_n, padded.shape[1] // block_k, block_k)
        return blocks.amin((1, 3)), blocks.amax((1, 3))
    groups = weight.reshape(n, -1, args.group_size or k)
    return groups.amin(2), groups.amax(2)


def dequantized_nvfp4(tensors, args):
    """What NVFP4PackedCompressor.decompress() does, which itself knows bfloat16 only."""
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.quantization.lifecycle.forward import dequantize

    n, k = tensors["weight_packed"].shape[0], tensors["weight_packed"].shape[1] * 2
    codes = unpack_fp4_from_uint8(tensors["weight_packed"], n, k, dtype=torch.float32)
    return dequantize(codes, tensors["weight_scale"].float(), args=args, dtype=torch.float32,
                      global_scale=tensors["weight_global_scale"])


def compressed_tensors(n, k, format_name, input_activations=None, **weights):
    from compressed_tensors.compressors.base import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    args = QuantizationArgs(**weights)
    scheme = QuantizationScheme(targets=["Linear"], weights=args, input_activations=input_activations)
    weight = random_linear(n, k).weight.data
    low, high = extremes(weight, args)
    state, global_scale = {"weight": weight}, None
    if args.strategy == "tensor_group":
        global_scale = generate_gparam(weight.amin(), weight.amax())
        state["weight_global_scale"] = global_scale
    scale, zero = calculate_qparams(low, high, args, global_scale=global_scale)
    is_small = args.scale_dtype is not None
    state["weight_scale"] = scale if is_small else scale.to(torch.bfloat16)
    state["weight_zero_point"] = zero
    compressor = BaseCompressor.get_value_from_registry(format_name)
    tensors = compressor.compress(state, scheme)
    wide = dict(tensors)
    if not is_small:
        wide["weight_scale"] = wide["weight_scale"].float()
    if args.strategy == "tensor_group":
        weight, how = dequantized_nvfp4(tensors, args), "unpack_fp4_from_uint8(), dequantize()"
    else:
        weight, how = compressor.decompress(wide, scheme)["weight"].float(), "decompress()"
    config = QuantizationConfig(config_groups={"group_0": scheme}, format=format_name, ignore=["lm_head"])
    version = importlib.metadata.version("compressed-tensors")
    tool = f"compressed-tensors {version}, {compressor.__name__}: compress(), {how}"
    return Case(tensors, config_json(config.model_dump(mode="json", exclude_none=True)), weight, tool)


def compressed_tensors_act_order(n, k, group):
    """Release 0.9: g_idx in the file."""
    from compressed_tensors import __version__
    from compressed_tensors.compressors.quantized_compressors.pack_quantized import PackedQuantizationCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
    from compressed_tensors.quantization.utils import calculate_qparams

    args = QuantizationArgs(num_bits=4, type="int", symmetric=True, strategy="group", group_size=group,
                            actorder="group")
    weight = random_linear(n, k).weight.data
    g_idx = (torch.arange(k) // group)[torch.randperm(k)].to(torch.int32)
    order = torch.argsort(g_idx, stable=True)
    low, high = extremes(weight[:, order], args)
    scale, zero = calculate_qparams(low, high, args)
    scale = scale.half()
    compressor = PackedQuantizationCompressor()
    tensors = compressor.compress_weight(weight, scale, args, zero, g_idx)
    tensors |= {"weight_scale": scale, "weight_g_idx": g_idx}
    weight = compressor.decompress_weight(tensors | {"weight_scale": scale.float()}, args)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    config = QuantizationConfig(config_groups={"group_0": scheme}, format="pack-quantized", ignore=["lm_head"])
    tool = f"compressed-tensors {__version__}, PackedQuantizationCompressor: compress_weight(), decompress_weight()"
    return Case(tensors, config_json(config.model_dump(mode="json", exclude_none=True)), weight.float(), tool)


# ---- FP8 of transformers, ModelOpt ----


def transformers_block_fp8(n, k, block_n, block_k):
    from transformers import FineGrainedFP8Config
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize, Fp8Quantize

    config = FineGrainedFP8Config(weight_block_size=(block_n, block_k))
    quantizer = types.SimpleNamespace(quantization_config=config)
    tensors = Fp8Quantize(quantizer).convert({"layer.weight": random_linear(n, k).weight.data})
    tensors = {name.removeprefix("layer."): tensor for name, tensor in tensors.items()}
    weight = Fp8Dequantize(quantizer)._dequantize_one(tensors["weight"], tensors["weight_scale_inv"], torch.float32)
    version = importlib.metadata.version("transformers")
    tool = f"transformers {version}, Fp8Quantize, Fp8Dequantize"
    return Case(tensors, config_json(config.to_dict()), weight, tool)


def modelopt_case(tensors, weight, algorithm, what, **settings):
    quantization = {"quant_algo": algorithm, "kv_cache_quant_algo": None, "exclude_modules": ["lm_head"], **settings}
    version = importlib.metadata.version("nvidia-modelopt")
    configs = {"config.json": {"model_type": "golden", "torch_dtype": "bfloat16"},
               "hf_quant_config.json": {"producer": {"name": "modelopt", "version": version},
                                        "quantization": quantization}}
    return Case(tensors, configs, weight, f"nvidia-modelopt {version}, {what}: quantize(), dequantize()")


def modelopt_fp8(n, k):
    from modelopt.torch.quantization.qtensor import FP8QTensor

    packed, scale = FP8QTensor.quantize(random_linear(n, k).weight.data)
    weight = packed.dequantize(torch.float32, scale=scale)
    tensors = {"weight": packed._quantized_data, "weight_scale": scale.reshape(()),
               "input_scale": torch.tensor(0.015625)}
    return modelopt_case(tensors, weight, "FP8", "FP8QTensor")


def modelopt_nvfp4(n, k):
    from modelopt.torch.quantization.qtensor import NVFP4QTensor

    packed, scale, scale_2 = NVFP4QTensor.quantize(random_linear(n, k).weight.data, 16)
    weight = packed.dequantize(torch.float32, scale=scale, double_scale=scale_2, block_sizes={-1: 16})
    tensors = {"weight": packed._quantized_data, "weight_scale": scale, "weight_scale_2": scale_2.reshape(()),
               "input_scale": torch.tensor(0.00390625)}
    return modelopt_case(tensors, weight, "NVFP4", "NVFP4QTensor", group_size=16)


def modelopt_mxfp8(n, k):
    from modelopt.torch.quantization.qtensor import MXFP8QTensor

    packed, scale = MXFP8QTensor.quantize(random_linear(n, k).weight.data)
    weight = packed.dequantize(torch.float32, scale=scale)
    tensors = {"weight": packed._quantized_data, "weight_scale": scale.reshape(n, k // 32)}
    return modelopt_case(tensors, weight, "MXFP8", "MXFP8QTensor", group_size=32)


# ---- the list ----


def makers(is_old):
    """(name, function of no arguments) of every case that this environment makes."""
    if is_old:
        return [("ct-int4-act-order", lambda: compressed_tensors_act_order(64, 128, 32))]
    token8 = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
    float8 = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "token", "dynamic": True}
    group8 = {**float8, "strategy": "group", "group_size": 128}
    int4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
    int8 = {"num_bits": 8, "type": "int", "strategy": "channel"}
    fp8 = {"num_bits": 8, "type": "float", "symmetric": True}
    nvfp4 = {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group", "group_size": 16,
             "scale_dtype": torch.float8_e4m3fn, "zp_dtype": torch.float8_e4m3fn}
    mx = {"type": "float", "symmetric": True, "strategy": "group", "group_size": 32, "scale_dtype": torch.uint8,
          "zp_dtype": torch.uint8}
    ct = compressed_tensors
    return [
        ("gptq-v1-int4-sym", lambda: auto_gptq(64, 128, 4, 32, True)),
        ("gptq-v1-int4-asym", lambda: auto_gptq(64, 128, 4, 64, False)),
        ("gptq-v1-int8-asym", lambda: auto_gptq(64, 128, 8, 64, False)),
        ("gptq-v2-int4-act-order", lambda: gptqmodel(64, 128, 4, 32, False, True)),
        ("gptq-v2-int8-channel", lambda: gptqmodel(64, 128, 8, -1, True, False)),
        ("awq-int4", lambda: auto_awq(64, 128, 32)),
        ("ct-int4-sym", lambda: ct(66, 128, "pack-quantized", **int4, symmetric=True)),
        ("ct-int4-asym", lambda: ct(66, 128, "pack-quantized", **int4, symmetric=False)),
        ("ct-int8-packed-asym", lambda: ct(66, 130, "pack-quantized", **int8, symmetric=False)),
        ("ct-int8-w8a8", lambda: ct(64, 128, "int-quantized", token8, **int8, symmetric=True)),
        ("ct-int8-asym", lambda: ct(64, 128, "int-quantized", **int8, symmetric=False)),
        ("ct-fp8-tensor", lambda: ct(64, 128, "float-quantized", float8, **fp8, strategy="tensor")),
        ("ct-fp8-channel", lambda: ct(64, 128, "float-quantized", float8, **fp8, strategy="channel")),
        ("ct-fp8-block", lambda: ct(72, 136, "float-quantized", group8, **fp8, strategy="block",
                                    block_structure=[128, 128])),
        ("ct-nvfp4", lambda: ct(64, 128, "nvfp4-pack-quantized", **nvfp4)),
        ("ct-mxfp4", lambda: ct(64, 128, "mxfp4-pack-quantized", **mx, num_bits=4)),
        ("ct-mxfp8", lambda: ct(64, 128, "mxfp8-quantized", **mx, num_bits=8)),
        ("fp8-block", lambda: transformers_block_fp8(64, 256, 32, 128)),
        ("modelopt-fp8", lambda: modelopt_fp8(64, 128)),
        ("modelopt-nvfp4", lambda: modelopt_nvfp4(64, 128)),
        ("modelopt-mxfp8", lambda: modelopt_mxfp8(64, 128)),
    ]
