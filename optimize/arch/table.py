"""Which rule reads which `model_type`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from optimize.arch import encoder, hybrid, mamba, mixed
from optimize.arch.decoder import DECODERS, decoder
from optimize.arch.latent import latent_decoder
from optimize.arch.parts import Shape
from optimize.arch.reading import Reading
from optimize.model import Task

__all__ = ["FAMILIES", "Family"]


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """A rule: from a config to shapes."""

    name: str
    build: Callable[[Reading], Shape]
    defaults: dict[str, Any] = {}
    task: Task = "generate"


def _others() -> dict[str, Family]:
    latent = ("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa", "glm4_moe_lite")
    found = {name: Family(name="latent attention", build=latent_decoder) for name in latent}
    hybrids: dict[str, Callable[[Reading], Shape]] = {
        "nemotron_h": hybrid.nemotron_h,
        "qwen3_next": hybrid.qwen_next,
        "qwen3_5_text": hybrid.qwen_next,
        "qwen3_5_moe_text": hybrid.qwen_next,
        "jamba": mamba.jamba,
        "granitemoehybrid": hybrid.granite_hybrid,
        "bamba": hybrid.bamba,
        "falcon_h1": hybrid.falcon_h1,
        "mamba": mamba.mamba1,
        "mamba2": mamba.mamba2,
        "gemma4_text": mixed.gemma4,
        "mimo_v2_flash": mixed.mimo_v2,
    }
    # Of the classes in transformers: a head is not hidden / heads wide where the config leaves its width out.
    wide = {"nemotron_h": 128, "qwen3_next": 256, "qwen3_5_text": 256, "qwen3_5_moe_text": 256}
    for name, build in hybrids.items():
        found[name] = Family(
            name=name, build=build, defaults={"head_dim": wide[name]} if name in wide else {}
        )
    for name in ("bert", "roberta", "xlm-roberta"):
        found[name] = Family(name="bert", build=encoder.bert, task="encoder")
    return found | {"modernbert": Family(name="modernbert", build=encoder.modern_bert, task="encoder")}


#: `model_type` → its rule. A type that is not here is an unknown family, and said so.
FAMILIES: dict[str, Family] = {
    name: Family(name=name, build=partial(decoder, traits=traits), defaults=traits.defaults)
    for name, traits in DECODERS.items()
} | _others()
