"""How a checkpoint's weights are stored: `quantization_config`, or ModelOpt's own file. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec.structs import replace

from optimize.model import Quantization

__all__ = ["read_quantization"]

_Scheme = Literal[
    "fp8", "fp8-block", "int8", "w8a16", "int4", "nvfp4", "mxfp4", "mxfp8", "nf4", "mixed", "unknown"
]
#: Scheme, weight bits, scale bits a value, values that share a scale, whether activations are quantized.
_Stored = tuple[_Scheme, float | None, float, int | None, bool | None]
_SKIPS_MAX = 20_000

#: ModelOpt's `quant_algo`: scheme, weight bits, scale bits a value, whether activations are quantized.
#: NVFP4 has an FP8 scale for 16 values, MXFP8 an 8-bit exponent for 32.
_MODELOPT: dict[str, tuple[_Scheme, float, float, int | None, bool]] = {
    "FP8": ("fp8", 8, 0, None, True),
    "FP8_PER_CHANNEL_PER_TOKEN": ("fp8", 8, 0, None, True),
    "FP8_PB_WO": ("fp8-block", 8, 0, 128, False),
    "NVFP4": ("nvfp4", 4, 0.5, 16, True),
    "NVFP4_AWQ": ("nvfp4", 4, 0.5, 16, True),
    "MXFP8": ("mxfp8", 8, 0.25, 32, True),
    "W4A16_AWQ": ("int4", 4, 0.125, 128, False),
    "W4A8_AWQ": ("int4", 4, 0.125, 128, True),
    "W8A16": ("w8a16", 8, 0, None, False),
    "W8A8_SQ_PER_CHANNEL": ("int8", 8, 0, None, True),
}


def read_quantization(
    config: Mapping[str, Any], beside: Mapping[str, Any] | None = None
) -> Quantization | None:
    """What the checkpoint says; None where it says nothing. `beside` is `hf_quant_config.json`."""
    said = _mapping(config.get("quantization_config")) or _mapping(config.get("compression_config"))
    inner = _mapping(config.get("text_config")) or {}
    said = said or _mapping(inner.get("quantization_config"))
    if said is None:
        # ModelOpt before 0.40 wrote a file of its own, and left config.json alone.
        said = _mapping(beside.get("quantization")) if beside is not None else None
        if said is None:
            return None
        said = {**said, "quant_method": "modelopt"}
    method = str(said.get("quant_method") or said.get("quant_library") or "")[:60]
    readers = {
        "fp8": _fp8,
        "fbgemm_fp8": _fp8,
        "compressed-tensors": _compressed,
        "gptq": _gptq,
        "gptq_marlin": _gptq,
        "awq": _awq,
        "awq_marlin": _awq,
        "bitsandbytes": _bitsandbytes,
        "modelopt": _modelopt,
        "modelopt_fp4": _modelopt,
        "mxfp4": _mxfp4,
    }
    reader = readers.get(method)
    if reader is None and not method and "quant_algo" in said:
        reader = _modelopt  # without its name, as ModelOpt 0.31 wrote it
    if reader is None:
        return Quantization(method="other", said=method or "not named", scheme="unknown", weight_bits=None)
    found = reader(said)
    # A document that is read back has floats where a type says so.
    bits = None if found.weight_bits is None else float(found.weight_bits)
    return replace(found, weight_bits=bits, overhead_bits=float(found.overhead_bits))


def _mapping(said: Any) -> dict[str, Any] | None:
    return said if isinstance(said, dict) and said else None


def _skips(said: Any) -> tuple[str, ...]:
    """Names of modules, of a list that is not ours."""
    if not isinstance(said, list):
        return ()
    return tuple(one[:300] for one in said[:_SKIPS_MAX] if isinstance(one, str))


def _whole(said: Any) -> int | None:
    return said if type(said) is int and 0 < said <= 1_000_000 else None


def _fp8(said: dict[str, Any]) -> Quantization:
    """Hugging Face's FP8: a scale for a tensor, or a float32 scale for a block such as 128 x 128."""
    block = said.get("weight_block_size")
    sizes = [one for one in block if _whole(one)] if isinstance(block, list) else []
    is_block = len(sizes) == 2
    return Quantization(
        method="fp8",
        said=str(said.get("quant_method")),
        scheme="fp8-block" if is_block else "fp8",
        weight_bits=8,
        overhead_bits=32 / (sizes[0] * sizes[1]) if is_block else 0,
        group_size=sizes[1] if is_block else None,
        has_quantized_activations=True,
        skips=_skips(said.get("modules_to_not_convert") or said.get("ignored_layers")),
    )


def _gptq(said: dict[str, Any]) -> Quantization:
    """Packed integers; a 16-bit scale and a zero point of the weight's width for each group."""
    bits, group = _whole(said.get("bits")), _whole(said.get("group_size"))
    return _packed("gptq", said, bits, group, ())


def _awq(said: dict[str, Any]) -> Quantization:
    bits, group = (
        _whole(said.get("bits") or said.get("w_bit")),
        _whole(said.get("group_size") or said.get("q_group_size")),
    )
    return _packed("awq", said, bits, group, _skips(said.get("modules_to_not_convert")))


def _packed(
    method: Literal["gptq", "awq"],
    said: dict[str, Any],
    bits: int | None,
    group: int | None,
    skips: tuple[str, ...],
) -> Quantization:
    schemes: dict[int | None, _Scheme] = {4: "int4", 8: "w8a16"}
    return Quantization(
        method=method,
        said=str(said.get("quant_method")),
        scheme=schemes.get(bits, "unknown"),
        weight_bits=bits,
        overhead_bits=(16 + bits) / group if bits and group else 0,
        group_size=group,
        has_quantized_activations=False,
        skips=skips,
    )


def _bitsandbytes(said: dict[str, Any]) -> Quantization:
    """NF4 or FP4 with a float32 scale for 64 values (8-bit, and shared once more, when nested); or INT8."""
    is_four = said.get("load_in_4bit") is True or said.get("_load_in_4bit") is True
    nested = said.get("bnb_4bit_use_double_quant") is True
    return Quantization(
        method="bitsandbytes",
        said="bitsandbytes",
        scheme="nf4" if is_four else "w8a16",
        weight_bits=4 if is_four else 8,
        overhead_bits=(8 / 64 + 32 / (64 * 256) if nested else 32 / 64) if is_four else 0,
        group_size=64 if is_four else None,
        has_quantized_activations=not is_four,
        skips=_skips(said.get("llm_int8_skip_modules")),
    )


def _mxfp4(said: dict[str, Any]) -> Quantization:
    """OCP MXFP4 as gpt-oss has it: the routed experts alone, an 8-bit exponent for 32 values."""
    return Quantization(
        method="mxfp4",
        said="mxfp4",
        scheme="mxfp4",
        weight_bits=4,
        overhead_bits=8 / 32,
        group_size=32,
        has_quantized_activations=False,
        converts="experts",
        skips=_skips(said.get("modules_to_not_convert")),
    )


def _modelopt(said: dict[str, Any]) -> Quantization:
    """NVIDIA ModelOpt, in its own file or, since 0.40, inside config.json."""
    algorithm = str(said.get("quant_algo") or "")[:60]
    kv = said.get("kv_cache_quant_algo")
    scheme_of_kv = said.get("kv_cache_scheme")
    if kv is None and isinstance(scheme_of_kv, dict):
        kv = "FP8" if scheme_of_kv.get("num_bits") == 8 else None
    elif kv is None and isinstance(scheme_of_kv, str):
        kv = scheme_of_kv
    scheme, bits, overhead, group, acts = _MODELOPT.get(algorithm, ("unknown", 0, 0, None, False))
    if algorithm == "MIXED_PRECISION":
        return Quantization(
            method="modelopt",
            said=algorithm,
            scheme="mixed",
            weight_bits=None,
            kv_cache_dtype=str(kv or "").lower()[:20],
            skips=_skips(said.get("exclude_modules") or said.get("ignore")),
        )
    return Quantization(
        method="modelopt",
        said=algorithm or "modelopt",
        scheme=scheme,
        weight_bits=bits or None,
        overhead_bits=overhead,
        group_size=_whole(said.get("group_size")) or group,
        has_quantized_activations=acts if bits else None,
        kv_cache_dtype=str(kv or "").lower()[:20],
        skips=_skips(said.get("exclude_modules") or said.get("ignore")),
    )


def _compressed(said: dict[str, Any]) -> Quantization:
    """compressed-tensors: one scheme for all linear layers, or several, which is *mixed*."""
    groups = [one for one in (_mapping(said.get("config_groups")) or {}).values() if isinstance(one, dict)]
    schemes = {_compressed_scheme(one) for one in groups}
    kv = _mapping(said.get("kv_cache_scheme"))
    several: _Stored = ("mixed" if schemes else "unknown", None, 0.0, None, None)
    one = next(iter(schemes)) if len(schemes) == 1 else several
    return Quantization(
        method="compressed-tensors",
        said=f"compressed-tensors {str(said.get('format') or '')[:40]}".strip(),
        scheme=one[0],
        weight_bits=one[1],
        overhead_bits=one[2],
        group_size=one[3],
        has_quantized_activations=one[4],
        kv_cache_dtype="fp8" if kv and kv.get("num_bits") == 8 and kv.get("type") == "float" else "",
        skips=_skips(said.get("ignore")),
    )


def _compressed_scheme(said: dict[str, Any]) -> _Stored:
    weights = _mapping(said.get("weights")) or {}
    bits, kind, group = (
        _whole(weights.get("num_bits")),
        str(weights.get("type"))[:20],
        _whole(weights.get("group_size")),
    )
    acts = _mapping(said.get("input_activations")) is not None
    scale = 0.0
    if group:
        # Packed FP4 has an FP8 scale for a group, integers a 16-bit one, and a zero point unless symmetric.
        scale = (8 if kind == "float" and bits == 4 else 16) / group
        scale += (bits or 0) / group if weights.get("symmetric") is False else 0
    schemes: dict[tuple[Any, int | None, bool], _Scheme] = {
        ("float", 8, True): "fp8",
        ("float", 8, False): "w8a16",
        ("float", 4, True): "nvfp4",
        ("float", 4, False): "nvfp4",
        ("int", 8, True): "int8",
        ("int", 8, False): "w8a16",
        ("int", 4, False): "int4",
        ("int", 4, True): "int4",
    }
    scheme = schemes.get((kind, bits, acts), "unknown")
    if scheme == "fp8" and weights.get("strategy") == "block":
        block = weights.get("block_structure")
        sizes = (
            block if isinstance(block, list) and len(block) == 2 and all(map(_whole, block)) else [128, 128]
        )
        return "fp8-block", 8, 32 / (sizes[0] * sizes[1]), sizes[1], acts
    return scheme, bits, scale, group, acts
