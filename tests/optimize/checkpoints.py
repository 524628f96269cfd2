"""Checkpoints as their makers lay them out, with sparse files instead of weights."""

import json
from math import prod
from pathlib import Path
from typing import Any

from optimize.config import read_config
from optimize.safetensors import DTYPE_BITS

NANO: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}


def tensors_of(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Every tensor by its name in the files; `*` becomes the number of the layer."""
    found: dict[str, tuple[int, ...]] = {}
    for one in read_config(config).weights:
        if one.is_tied:
            continue
        for number in range(one.count if "*" in one.name else 1):
            found[one.name.replace("*", str(number))] = one.shape
    return found


def write_file(
    path: Path, tensors: dict[str, tuple[int, ...]], *, dtype: str = "BF16", lost: int = 0
) -> None:
    """A safetensors file of holes; `lost` bytes are missing at its end."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in tensors.items():
        size = prod(shape) * DTYPE_BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end - lost)


def write_model(folder: Path, config: dict[str, Any] | None = None, *, shards: int = 1) -> Path:
    """A whole model: config, weights in so many files, and an index where there are several."""
    folder.mkdir(parents=True, exist_ok=True)
    config = config or NANO
    (folder / "config.json").write_text(json.dumps(config))
    tensors = tensors_of(config)
    if shards == 1:
        write_file(folder / "model.safetensors", tensors)
        return folder
    names = list(tensors)
    placed: dict[str, str] = {}
    for number in range(shards):
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in names[number::shards]}
        write_file(folder / file, part)
        placed |= dict.fromkeys(part, file)
    total = sum(prod(shape) * 2 for shape in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": placed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder
