"""Weights and optimizer states of torchao, one of each class that can be made on a CPU."""

import warnings
from collections.abc import Callable
from typing import Any

import torch

with warnings.catch_warnings():  # its source has invalid escapes, and its kernels are for other devices
    warnings.simplefilter("ignore")
    from torchao import quantization
    from torchao.float8.float8_scaling_utils import hp_tensor_to_float8_dynamic
    from torchao.float8.float8_training_tensor import LinearMMConfig
    from torchao.float8.fsdp_utils import WeightWithDynamicFloat8CastTensor
    from torchao.optim import AdamW4bit, AdamW8bit, AdamWFp8
    from torchao.prototype.mx_formats.mx_tensor import MXTensor
    from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor, per_tensor_amax_to_scale
    from torchao.prototype.quantized_training import (
        BitNetTrainingLinearWeight,
        Int8MixedPrecisionTrainingConfig,
        Int8MixedPrecisionTrainingLinearWeight,
        Int8QuantizedTrainingLinearWeight,
    )
    from torchao.quantization.quantize_.workflows.nf4.nf4_tensor import NF4Tensor, SubclassTensorArgs

OPTIMIZERS = [AdamW8bit, AdamW4bit, AdamWFp8]
#: What torchao does not list itself as safe to be made from a file.
UNLISTED = [
    *(BitNetTrainingLinearWeight, Int8MixedPrecisionTrainingConfig, SubclassTensorArgs),
    *(Int8MixedPrecisionTrainingLinearWeight, Int8QuantizedTrainingLinearWeight),
]


def values(seed: int = 0) -> torch.Tensor:
    return torch.randn(64, 128, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)


def quantized(config: Any) -> torch.Tensor:
    """The weight of a layer that torchao has quantized."""
    layer = torch.nn.Linear(128, 64, bias=False, dtype=torch.bfloat16)
    layer.weight.data.copy_(values())
    quantization.quantize_(layer, config)
    return layer.weight.detach()


def codes(rows: int, columns: int, dtype: torch.dtype = torch.int8) -> torch.Tensor:
    return torch.arange(rows * columns).reshape(rows, columns).to(dtype)


def scales(rows: int, columns: int) -> torch.Tensor:
    return values()[:rows, :columns].clone()


SHAPE = torch.Size([64, 128])
GROUP = [1, 32]

#: Of each class a tensor. Where its kernels need another device, it is made of its parts.
WEIGHTS: dict[str, Callable[[], torch.Tensor]] = {
    "float8": lambda: quantized(quantization.Float8WeightOnlyConfig()),
    "float8 by rows": lambda: quantization.Float8Tensor.from_hp(
        values(),
        granularity=quantization.PerRow(),
        mm_config=quantization.Float8MMConfig(use_fast_accum=True),
    ),
    "float8, columns first": lambda: quantization.Float8Tensor.from_hp(values()).t(),
    "int8": lambda: quantized(quantization.Int8WeightOnlyConfig()),
    "int8, activations too": lambda: quantized(quantization.Int8DynamicActivationInt8WeightConfig()),
    "intx": lambda: quantized(
        quantization.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=quantization.PerGroup(32))
    ),
    "int4": lambda: quantization.Int4Tensor(codes(64, 64), scales(4, 64), scales(4, 64), GROUP, SHAPE),
    "int4, scaled activations": lambda: quantization.Int4Tensor(
        codes(64, 64), scales(4, 64), scales(4, 64), GROUP, SHAPE, scales(1, 128), torch.float8_e4m3fn
    ),
    "int4, preshuffled": lambda: quantization.Int4PreshuffledTensor(
        codes(64, 64), scales(4, 64), GROUP, SHAPE, group_zero=scales(4, 64)
    ),
    "int4, plain int32": lambda: quantization.Int4PlainInt32Tensor(
        codes(64, 16, torch.int32), scales(4, 64), codes(4, 64), GROUP, SHAPE
    ),
    "int4, tiles": lambda: quantization.Int4TilePackedTo4dTensor(
        codes(64, 16, torch.int32).reshape(8, 1, 32, 4), scales(4, 128).reshape(4, 64, 2), GROUP, SHAPE
    ),
    "mx float8": lambda: MXTensor.to_mx(values(), torch.float8_e4m3fn, 32),
    "mx float4": lambda: MXTensor.to_mx(values(), torch.float4_e2m1fn_x2, 32),
    "nvfp4": lambda: NVFP4Tensor.to_nvfp4(
        values(), per_tensor_scale=per_tensor_amax_to_scale(values().abs().max())
    ),
    "nf4": lambda: NF4Tensor.from_tensor(values(), 64, 2),
    "float8 in training": lambda: hp_tensor_to_float8_dynamic(
        values(), torch.float8_e4m3fn, LinearMMConfig()
    ),
    "float8 cast by FSDP": lambda: WeightWithDynamicFloat8CastTensor(
        values(), LinearMMConfig(), torch.float8_e4m3fn
    ),
    "int8 in training": lambda: Int8QuantizedTrainingLinearWeight.from_float(values()),
    "int8, mixed precision": lambda: Int8MixedPrecisionTrainingLinearWeight(
        values(), Int8MixedPrecisionTrainingConfig()
    ),
    "bitnet": lambda: BitNetTrainingLinearWeight(values()),
}
