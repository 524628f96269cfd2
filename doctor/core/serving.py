"""A plan to serve a model as a value: what was asked, decided and why, what fits, the command. No rules.

`optimize.planner` makes it; reports are made of it.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from doctor.core.model_report import MemoryPlan

__all__ = [
    "PLAN_SCHEMA",
    "Argument",
    "Ask",
    "Beside",
    "Candidate",
    "Certainty",
    "CommandLine",
    "Gpu",
    "Lengths",
    "Load",
    "NotPrinted",
    "ServingPlan",
    "Setting",
    "Slo",
    "Speed",
    "Split",
    "Standing",
    "Verdict",
]

PLAN_SCHEMA: Final = "mopt.serving-plan/1"

Verdict = Literal["fits", "does not fit", "refused", "unknown"]

Standing = Literal["chosen", "possible", "not possible", "unknown"]

Certainty = Literal["read", "between", "derived"]
"""`read`: the flags of this very release were read. `between`: those of its neighbours, which agree.
`derived`: of pages and sources of its time."""


class _Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every value here."""


# --- what is asked --------------------------------------------------------------------------------


class Lengths(_Value, frozen=True, kw_only=True):
    """How many tokens, as a range and its mean."""

    low: int
    mean: float
    high: int

    @property
    def is_steady(self) -> bool:
        """Whether they are near enough to one length: none is off the mean by more than a tenth."""
        return self.high <= 1.1 * self.mean and self.low >= 0.9 * self.mean


class Slo(_Value, frozen=True, kw_only=True):
    """What a request may take, in milliseconds; None where nothing was promised."""

    ttft_ms: float | None = None
    """To the first token."""
    tpot_ms: float | None = None
    """For each token after it."""


class Load(_Value, frozen=True, kw_only=True):
    """What comes. Of `concurrency` and `rate_per_s` one is enough; None where it was not said."""

    prompt: Lengths
    output: Lengths
    concurrency: int | None = None
    """Requests in flight, at most."""
    rate_per_s: float | None = None
    """Requests that arrive, on average."""
    think_s: float = 0.0
    """Of a closed load: how long each user waits between an answer and the next request."""
    slo: Slo = Slo()

    @property
    def longest_tokens(self) -> int:
        """Prompt and answer of the longest request."""
        return self.prompt.high + self.output.high

    @property
    def mean_tokens(self) -> float:
        """What a request holds at its end, on average."""
        return self.prompt.mean + self.output.mean

    def time_s(self, first_s: float, each_s: float) -> float:
        """What a request takes on average: to its first token, then for each of the others."""
        return first_s + max(self.output.mean - 1, 0) * each_s


class Gpu(_Value, frozen=True, kw_only=True):
    """GPUs of one kind, for a plan."""

    name: str
    count: int
    architecture: str
    compute_capability: str
    pci_id: str = ""
    memory_type: str = ""
    """`HBM3`; empty where no row has it."""
    memory_bytes: int
    """Of one device, as its driver reports it."""
    memory_because: str
    source: tuple[str, ...] = ()


class Beside(_Value, frozen=True, kw_only=True):
    """Another engine on the same GPU, and the least it takes."""

    name: str
    bytes: int


class Ask(_Value, frozen=True, kw_only=True):
    """What a plan is asked for. Empty text and None: not said."""

    path: str
    """The model as the command line will name it."""
    load: Load | None = None
    engine: str = ""
    """`vllm`."""
    version: str = ""
    """`0.33.0`; empty for the newest that fits."""
    quantization: str = ""
    """To convert weights while they are loaded: `fp8`."""
    kv_dtype: str = ""
    memory_fraction: float | None = None
    """Of the device, for this engine."""
    overrides: tuple[tuple[str, str], ...] = ()
    """Values of `config.json` that somebody wants changed."""
    context_tokens: int | None = None
    """The greatest length to serve; None for that of the load, or of the model."""
    beside: tuple[Beside, ...] = ()
    """Other engines on the same GPU."""


# --- what is decided ------------------------------------------------------------------------------


class Candidate(_Value, frozen=True, kw_only=True):
    """An engine in a release, whether it can serve this, and why."""

    component: str
    version: str = ""
    """Empty where no release can."""
    standing: Standing
    because: tuple[str, ...] = ()
    source: tuple[str, ...] = ()


class Split(_Value, frozen=True, kw_only=True):
    """How one copy of a model lies on GPUs."""

    tensor: int
    pipeline: int = 1
    is_expert_parallel: bool = False

    @property
    def gpus(self) -> int:
        """GPUs of one copy."""
        return self.tensor * self.pipeline


class Setting(_Value, frozen=True, kw_only=True):
    """One decision: what, and why."""

    name: str
    """As vLLM's flag is called, whichever the engine."""
    value: str
    because: str
    is_given: bool = False
    """Whether the command says it; else the engine's own default is left alone."""


class Speed(_Value, frozen=True, kw_only=True):
    """Least times on this hardware, in milliseconds: nothing can be faster, a real engine is slower."""

    concurrency: int
    """Requests of one copy at once."""
    ttft_ms: float
    """One prompt of mean length, alone."""
    tpot_ms: float
    """One step for so many at once, at mean context; 0 where nothing is generated."""
    tok_per_s: float
    """Of one copy, at the most: of answers, or of inputs where nothing is generated."""
    because: tuple[str, ...]
    source: tuple[str, ...] = ()


class Argument(_Value, frozen=True, kw_only=True):
    """A flag to be given, and why. `value` is empty for a switch."""

    flag: str
    value: str = ""
    because: str = ""
    is_needed: bool = True
    """Whether the command line is of no use without it: then a release that lacks it is refused."""


class CommandLine(_Value, frozen=True, kw_only=True):
    """A command line for one release of an engine."""

    component: str
    version: str
    command: str
    argv: tuple[str, ...]
    arguments: tuple[Argument, ...]
    """Those that are in it, in order."""
    left_out: tuple[str, ...] = ()
    """What the release has no flag for, and what that means."""
    certainty: Certainty
    says: str
    """What the flags rest on, in a sentence."""
    source: tuple[str, ...] = ()


class NotPrinted(_Value, frozen=True, kw_only=True):
    """Why there is no command line, and the nearest release for which there would be one."""

    component: str
    version: str
    command: str
    why: str
    nearest: str = ""
    hint: str = ""


class ServingPlan(_Value, frozen=True, kw_only=True):
    """The answer of `model PATH --plan` (mopt.serving-plan/1)."""

    schema: Literal["mopt.serving-plan/1"] = PLAN_SCHEMA
    matrix_edition: str
    verdict: Verdict
    exit_code: int
    path: str
    architecture: str
    parameters: int | None
    gpu: Gpu
    load: Load | None
    engines: tuple[Candidate, ...]
    split: Split | None = None
    replicas: int = 1
    """Copies of it, each an engine of its own behind a balancer."""
    settings: tuple[Setting, ...] = ()
    memory: MemoryPlan | None = None
    """Of the fullest GPU, under the load that was asked for, or with one request of the greatest length."""
    sequences: int | None = None
    """Requests of mean length that one copy holds at once."""
    speed: Speed | None = None
    commands: tuple[CommandLine, ...] = ()
    """In the order in which they are run."""
    not_printed: NotPrinted | None = None
    refused: tuple[str, ...] = ()
    """What cannot be, and why."""
    short: tuple[str, ...] = ()
    """What does not fit, and by how much."""
    would: tuple[str, ...] = ()
    """What would make it fit; each alone is enough."""
    notes: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
