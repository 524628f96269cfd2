"""What a load on an endpoint gave (`mopt.load/1`): stages with intervals, search, knee, timeline."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = [
    "LOAD_SCHEMA",
    "Attainment",
    "Calibration",
    "Estimate",
    "Judgement",
    "KneeEstimate",
    "KneeReport",
    "LoadPlan",
    "LoadReport",
    "Metric",
    "MetricSummary",
    "Point",
    "Probe",
    "Quantile",
    "SearchReport",
    "Series",
    "Slo",
    "SloTerm",
    "StageReport",
    "Summary",
    "Target",
    "Timeline",
    "Window",
    "Withheld",
]

LOAD_SCHEMA = "mopt.load/1"

#: `ttft`: scheduled to first token (open loop: what a user feels). `ttft_send`: from the first byte sent.
#: `tpot`: time per token after the first. `itl`: waits between pieces of content, pooled. `stall`: the
#: longest such wait of a request. `e2e`: scheduled to the end of the answer. `slip`: scheduled to sent,
#: the client's own.
Metric = Literal["ttft", "ttft_send", "tpot", "itl", "stall", "e2e", "slip"]

#: `undecided`: the sample proves neither; `invalid`: the accounting or the client is at fault.
Judgement = Literal["pass", "fail", "undecided", "invalid"]


class _Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every value here."""


class Estimate(_Value, frozen=True, kw_only=True, tag="estimate", tag_field="kind"):
    """A quantile in seconds, with the interval that holds the true one at `confidence`."""

    value_s: float
    low_s: float
    high_s: float
    confidence: float = 0.95


class Point(_Value, frozen=True, kw_only=True, tag="point", tag_field="kind"):
    """A quantile in seconds without an interval: the values carry it, but too few of them are independent."""

    value_s: float
    reason: str
    """Why there is no interval."""
    have: int
    """Independent values."""
    needed: int


class Withheld(_Value, frozen=True, kw_only=True, tag="withheld", tag_field="kind"):
    """A quantile that the sample cannot carry: how many independent values it has, and would need."""

    reason: str
    have: int
    needed: int


class Quantile(_Value, frozen=True, kw_only=True):
    """One quantile of one metric: `p` is 0.99 for P99."""

    p: float
    result: Estimate | Point | Withheld


class MetricSummary(_Value, frozen=True, kw_only=True):
    """One metric over the requests that ended well inside the window."""

    metric: Metric
    n: int
    """Values that there are."""
    n_effective: float
    """Independent values they are worth: neighbours share batches and queues."""
    mean_s: float
    min_s: float
    max_s: float
    quantiles: tuple[Quantile, ...]
    note: str = ""
    """What makes it less than it seems: pieces that arrived together."""


class Attainment(_Value, frozen=True, kw_only=True):
    """The share of requests that met every limit, of all that were offered; failures count against it."""

    good: int
    offered: int
    n_effective: float
    """Independent requests that they are worth: late ones come in clusters."""
    share: float
    low: float
    high: float
    confidence: float = 0.95


class SloTerm(_Value, frozen=True, kw_only=True):
    """One limit for each request."""

    metric: Metric
    limit_s: float


class Slo(_Value, frozen=True, kw_only=True):
    """What is promised: the share `attainment` of all requests meets every term."""

    terms: tuple[SloTerm, ...]
    attainment: float = 0.99


class Window(_Value, frozen=True, kw_only=True):
    """The part of a stage that is measured: seconds since its start."""

    start_s: float
    end_s: float
    is_steady: bool
    """False: no steady state was reached, and latencies are not those of a load that lasts."""
    because: str
    """The evidence: where warm-up ended and why, or what still moved."""


class Summary(_Value, frozen=True, kw_only=True):
    """One stage in figures: from `optimize.stats.summarise`."""

    window: Window
    offered: int
    """Requests that were scheduled inside the window."""
    succeeded: int
    statuses: dict[str, int]
    """How many ended how, in the window."""
    offered_per_s: float
    completed_per_s: float
    """Answers that ended well inside the window, a second."""
    output_tok_per_s: float | None
    input_tok_per_s: float | None
    in_flight_mean: float
    metrics: tuple[MetricSummary, ...]
    attainment: Attainment | None = None
    good_per_s: float | None = None
    good_tok_per_s: float | None = None
    tokens_per_chunk: float | None = None
    littles_law_error: float | None = None
    """|N - X·E2E| / N over the window, with what flows over its edges counted; above 0.02 nothing holds."""
    judgement: Judgement = "undecided"
    reasons: tuple[str, ...] = ()
    """Why it is so: which rule decided, what is invalid, what warns."""


class StageReport(_Value, frozen=True, kw_only=True):
    """One load that was kept up for a while."""

    name: str
    rate_per_s: float | None = None
    """Offered, in open loop."""
    concurrency: int | None = None
    """Streams, in closed loop."""
    summary: Summary


class Probe(_Value, frozen=True, kw_only=True):
    """One rate that the search tried."""

    rate_per_s: float
    judgement: Judgement
    requests: int
    n: int
    """Those in steady windows, which count."""
    n_effective: float
    late: int
    purpose: Literal["bisect", "repeat", "proof"] = "bisect"
    reason: str = ""


class SearchReport(_Value, frozen=True, kw_only=True):
    """The highest rate that meets the SLO, between what passed and what failed."""

    outcome: Literal["found", "below", "above", "budget", "inconsistent", "invalid", "cut"]
    """`below`: even the lowest rate does not pass; `above`: even the highest does."""
    rate_per_s: float | None
    """The highest rate that is proven to meet the SLO."""
    fails_at_per_s: float | None
    """The lowest rate that is proven to miss it."""
    estimate_per_s: float | None
    """Where the share of late requests crosses what the SLO allows, fitted to all probes near it."""
    recommended_per_s: float | None
    """With headroom: 0.8 of the proven rate."""
    probes: tuple[Probe, ...]
    spent_requests: int
    spent_s: float
    spent_tokens: int
    reason: str = ""


class KneeEstimate(_Value, frozen=True, kw_only=True):
    """Where one method sees the bend; None with a reason where it sees none."""

    method: Literal["two_segment", "usl", "power"]
    load: float | None
    reason: str = ""


class KneeReport(_Value, frozen=True, kw_only=True):
    """Three estimates of the bend on the axis `axis`, and whether they agree."""

    axis: Literal["rate_per_s", "concurrency"]
    estimates: tuple[KneeEstimate, ...]
    load: float | None
    """Their median, where at least two agree."""
    spread: float | None
    """The widest ratio between those that agree, minus one."""
    reason: str = ""


class Calibration(_Value, frozen=True, kw_only=True):
    """The client's own error at this load, against a server whose schedule is known."""

    rate_per_s: float | None = None
    concurrency: int | None = None
    n: int
    ttft_error_p50_s: float
    ttft_error_p99_s: float
    itl_error_p50_s: float | None = None
    itl_error_p99_s: float | None = None
    slip_p99_s: float | None = None


class Series(_Value, frozen=True, kw_only=True):
    """One quantity over time; a value that was not read is null."""

    name: str
    unit: str
    source: Literal["client", "engine", "gpu"]
    t_s: tuple[float, ...]
    values: tuple[float | None, ...]


class Timeline(_Value, frozen=True, kw_only=True):
    """What went on, on the client's clock: seconds since the run began."""

    series: tuple[Series, ...] = ()
    marks: tuple[tuple[float, str], ...] = ()
    """Events: a stage began, the GPU throttled, an Xid."""


class Target(_Value, frozen=True, kw_only=True):
    """What was loaded. The URL carries no user name, password or query."""

    url: str
    endpoint: Literal["completions", "chat", "embeddings"]
    model: str = ""
    server: str = ""


class LoadPlan(_Value, frozen=True, kw_only=True):
    """What was asked of it."""

    loop: Literal["open", "closed"]
    arrivals: Literal["poisson", "constant", "gamma", "ramp", "trace", "closed"]
    seed: int
    schedule_digest: str = ""
    prompt_tokens: str = ""
    output_tokens: str = ""
    processes: int = 1
    is_streaming: bool = True


class LoadReport(_Value, frozen=True, kw_only=True):
    """The whole answer of `bench`."""

    schema: str = LOAD_SCHEMA
    tool: str = ""
    taken_at: str = ""
    target: Target
    plan: LoadPlan
    slo: Slo | None = None
    stages: tuple[StageReport, ...]
    search: SearchReport | None = None
    knee: KneeReport | None = None
    calibration: Calibration | None = None
    timeline: Timeline = Timeline()
    judgement: Judgement = "undecided"
    reasons: tuple[str, ...] = ()
    examples: dict[str, tuple[str, ...]] = {}
    """For each way of failing, up to three different answers in the server's own words; no key is in them."""
    is_cut: bool = False
    """Interrupted: what was measured until then."""
    exit_code: int = 0
