"""The decisions of a plan, one after another: engine, formats, lengths, shares; each with its why. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from doctor.core.edition import Edition
from doctor.core.serving import Ask, Candidate, Gpu, Setting
from optimize.backends import choose
from optimize.formats import Allowed, dtype_for, kv_dtype_allowed, quantization_allowed
from optimize.limits import batch_defaults, length, memory_share, step_tokens
from optimize.memory import DTYPE_BYTES, KV_BYTES
from optimize.model import ModelFacts, Quantization
from optimize.overrides import refused_overrides
from optimize.roofline import Rates, crossing_batch, prefill_floor, rates_for
from optimize.room import Bench

__all__ = ["ONLINE", "Question"]

#: To convert the weights of an unquantized checkpoint while they are loaded: embeddings and head stay.
ONLINE = {
    "fp8": Quantization(method="fp8", said="fp8", scheme="fp8", weight_bits=8, has_quantized_activations=True)
}
#: Where no row tells what an engine takes by itself.
_STEP, _SEQUENCES = 2048, 256


class Question:
    """One question on its way to a plan: decisions, in the order in which they are made."""

    def __init__(self, edition: Edition, facts: ModelFacts, gpu: Gpu, ask: Ask) -> None:
        self.edition, self.facts, self.gpu, self.ask = edition, facts, gpu, ask
        self.settings: list[Setting] = []
        self.notes: list[str] = list(facts.problems)
        self.refused: list[str] = list(refused_overrides(facts, ask.overrides))
        self.engines: tuple[Candidate, ...] = ()
        self.stored_bytes: int | None = None
        self.kv_dtype = "bfloat16"
        self.longest = 0
        self.share = Setting(name="", value="0.9", because="")
        self.step = 0
        self.default_because = "the engine's own for this device"
        self.sources: list[str] = [*gpu.source]

    @property
    def engine(self) -> Candidate:
        """The chosen one."""
        return self.engines[0]

    def rates(self, end: Literal["low", "high"]) -> Rates | None:
        """What good GPUs of the kind reach in the format that the model is computed in. What no setting can
        pass is judged by the upper end, what must hold on each of them by the lower one.
        """
        gpu = self.gpu
        return rates_for(self.edition, self.facts, gpu.pci_id, gpu.architecture, gpu.memory_type, end=end)

    # --- decisions ---

    def choose_engine(self) -> None:
        """Which engine, in which release."""
        rates = self.rates("low")
        self.engines = choose(
            self.edition,
            self.facts,
            self.ask.load,
            capability=self.gpu.compute_capability,
            balance=crossing_batch(self.facts, rates) if rates else None,
            asked=self.ask.engine,
            asked_version=self.ask.version,
        )
        if self.engine.standing != "chosen":
            name = f"{self.engine.component} {self.engine.version}".strip()
            self.refused.append(f"{name} cannot serve it here: {'; '.join(self.engine.because)}")
        self.sources += self.engine.source

    def choose_formats(self, stored_bytes: int | None) -> None:
        """What weights, computation and cache are in."""
        self.stored_bytes = stored_bytes
        if self.ask.quantization:
            self._convert(self.ask.quantization)
        elif self.facts.quantization is not None:
            self._loads(self.facts.quantization)
        if self.engine.component == "vllm" and self.engine.version:
            self._compute()
        self._cache()

    def _convert(self, wanted: str) -> None:
        """Weights converted while they are loaded, because somebody asked."""
        if self.facts.quantization is not None:
            said = self.facts.quantization.said
            self.refused.append(f"the checkpoint is {said} already: it is not converted to {wanted} again")
            return
        if wanted not in ONLINE or self.engine.component != "vllm":
            known = ", ".join(ONLINE)
            self.refused.append(
                f"`{wanted}` cannot be made of a checkpoint while it is loaded: vllm makes {known}"
            )
            return
        allowed = self._allowed(ONLINE[wanted])
        self._judge(allowed, f"weights in {wanted}")
        self.settings.append(
            Setting(name="quantization", value=wanted, because=_asked(allowed), is_given=True)
        )
        self.facts = msgspec.structs.replace(self.facts, quantization=ONLINE[wanted])
        self.stored_bytes = None
        self.notes.append(
            f"{wanted} changes answers: compare them with the unconverted model's before it serves"
        )

    def _loads(self, quantization: Quantization) -> None:
        """A checkpoint that is quantized already."""
        allowed = self._allowed(quantization)
        self._judge(allowed, f"the checkpoint's {quantization.said} weights")
        self.settings.append(
            Setting(
                name="quantization",
                value=f"{quantization.said} (of the checkpoint)",
                because=f"{allowed.because}; the engine reads it from the config",
            )
        )

    def _allowed(self, quantization: Quantization) -> Allowed:
        return quantization_allowed(
            self.edition,
            quantization,
            component=self.engine.component,
            version=self.engine.version,
            architecture=self.gpu.architecture,
            capability=self.gpu.compute_capability,
        )

    def _judge(self, allowed: Allowed, what: str) -> None:
        self.sources += allowed.source
        if allowed.verdict == "refused":
            self.refused.append(f"{what}: {allowed.because}")
        elif allowed.verdict == "unknown":
            self.notes.append(f"{what}: {allowed.because}")

    def _compute(self) -> None:
        """The type that vLLM computes in."""
        dtype, allowed = dtype_for(self.edition, self.facts, self.engine.version, self.gpu.compute_capability)
        self.sources += allowed.source
        if allowed.verdict == "refused":
            self.refused.append(f"no type to compute in: {allowed.because}")
            return
        if not dtype:
            self.notes.append(f"dtype: {allowed.because}")
            return
        is_other = dtype != self.facts.dtype
        self.settings.append(Setting(name="dtype", value=dtype, because=allowed.because, is_given=is_other))
        if DTYPE_BYTES.get(dtype) != DTYPE_BYTES.get(self.facts.dtype):
            self.stored_bytes = None
        self.facts = msgspec.structs.replace(self.facts, dtype=dtype)

    def _cache(self) -> None:
        """The type of the KV cache: the model's own unless another one was asked for."""
        own = self.facts.dtype if self.facts.dtype in KV_BYTES else "bfloat16"
        self.kv_dtype = own
        wanted = self.ask.kv_dtype
        if self.facts.task == "encoder":
            return
        if not wanted or wanted == "auto":
            because = f"{own}, as it is computed in: a smaller type gives more room for less precision"
            scales = self.facts.quantization.kv_cache_dtype if self.facts.quantization else ""
            if scales:
                because = (
                    f"counted in {own}; the checkpoint has scales for a cache in {scales}, which halves it"
                )
                because += " where the release takes it by itself"
            self.settings.append(Setting(name="kv-cache-dtype", value="auto", because=because))
            return
        if self.engine.component != "vllm":
            self.refused.append(f"{self.engine.component} has no flag for a KV cache in {wanted}")
            return
        allowed = kv_dtype_allowed(self.edition, wanted, self.engine.version, self.gpu.compute_capability)
        self._judge(allowed, "KV cache")
        if allowed.verdict == "refused":
            return
        if wanted not in KV_BYTES:
            self.refused.append(f"the size of a KV cache in {wanted} is not known: {', '.join(KV_BYTES)}")
            return
        self.kv_dtype = wanted
        setting = Setting(name="kv-cache-dtype", value=wanted, because=_asked(allowed), is_given=True)
        self.settings.append(setting)

    def choose_length(self) -> None:
        """The longest sequence, the share of the device, and the size of a step."""
        longest, why, problem = length(self.facts, self.ask)
        if problem:
            self.refused.append(problem)
        if longest is None or problem:
            return
        self.longest = longest
        self.settings.append(Setting(name="max-model-len", value=str(longest), because=why, is_given=True))
        if self.engine.component == "vllm":
            self.share = memory_share(self.edition, self.engine.version, self.gpu, self.ask)
        elif self.ask.memory_fraction is not None:
            value = f"{self.ask.memory_fraction:g}"
            self.share = Setting(name="memory share", value=value, because="it was asked for")
        if not 0 < float(self.share.value) <= 1:
            self.refused.append(
                f"a share of {self.share.value} of the device leaves nothing: {self.share.because}"
            )

    def bench(self) -> Bench:
        """What every attempt at a split has in common. Before it nothing was refused."""
        least, defaults = self.rates("low"), None
        if self.engine.component == "vllm":
            defaults = batch_defaults(self.edition, "vllm", self.engine.version, self.gpu)
        if defaults is None:
            self.default_because = "no row tells what the engine takes by itself: one that serves"
        tokens = defaults.max_num_batched_tokens if defaults else _STEP
        sequences = defaults.max_num_seqs if defaults else _SEQUENCES
        each = prefill_floor(self.facts, least, prompt_tokens=tokens) if least else None
        load = self.ask.load
        self.step, self.step_because = step_tokens(
            tokens,
            longest=self.longest,
            is_chunked=self.facts.task == "generate",
            seconds_per_token=each.time_s / tokens if each else None,
            tpot_ms=load.slo.tpot_ms if load else None,
            default_because=self.default_because,
        )
        return Bench(
            facts=self.facts,
            stored_bytes=self.stored_bytes,
            gpus=self.gpu.count,
            gpu_bytes=self.gpu.memory_bytes,
            share=float(self.share.value),
            kv_dtype=self.kv_dtype,
            rates=self.rates("high"),
            load=load,
            longest_tokens=self.longest,
            step_tokens=self.step,
            can_be_eager=self.engine.component == "vllm",
            sequences_max=sequences,
        )


def _asked(allowed: Allowed) -> str:
    return f"it was asked for; {allowed.because}"
