"""The answer of `model` as text: what is wrong first, then what the model is, then whether it fits."""

from __future__ import annotations

from doctor.core.model_facts import AttentionGroup, ModelFacts
from doctor.core.model_report import Component, Fit, ModelReport
from doctor.report.page import Page, Paint, counted

__all__ = ["render_model"]

_GIB = 1024**3
_FAULTS_MAX = 20
_WIDTH = 80
_REASON_AT = 18
_HEADS: dict[str, tuple[str, Paint]] = {
    "whole": ("WHOLE: ", "pass"),
    "broken": ("BROKEN: ", "fail"),
    "unknown": ("NOT KNOWN: ", "unknown"),
}


def render_model(
    report: ModelReport, *, width: int = _WIDTH, colour: bool = False, ascii_only: bool = False
) -> str:
    """The report as text of at most `width` columns."""
    page = Page(width=width, colour=colour, ascii_only=ascii_only)
    head, paint = _HEADS[report.verdict]
    page.text(_first(report), head=head, paint=paint)
    for fault in report.faults[:_FAULTS_MAX]:
        where = f"{fault.file}: " if fault.file else ""
        word: tuple[str, Paint] = ("fault: ", "fail") if fault.is_broken else ("note: ", "warn")
        page.text(f"{where}{fault.message}", head=word[0], indent=2, paint=word[1])
    if len(report.faults) > _FAULTS_MAX:
        page.text(f"and {len(report.faults) - _FAULTS_MAX} more (`--json` has all)", indent=2)
    if report.facts is not None:
        _facts(page, report, report.facts)
    _files(page, report)
    for one in report.fits:
        _fit(page, one, report.facts)
    _foot(page, report)
    return str(page)


def _first(report: ModelReport) -> str:
    """What a reader wants to know of the files."""
    if report.verdict == "broken":
        return f"{report.path}: an engine will not load it, or not as it should"
    if report.facts is None:
        return f"{report.path}: no config.json that tells what the model is"
    if report.verdict == "unknown":
        return f"{report.path}: {report.facts.unknown[0] if report.facts.unknown else 'its shapes'}"
    return f"{report.path}: {report.facts.architecture or report.facts.model_type}"


# --- facts ----------------------------------------------------------------------------------------


def _facts(page: Page, report: ModelReport, facts: ModelFacts) -> None:
    page.gap()
    page.label(
        "model", f"{facts.model_type} ({facts.architecture or 'architectures not said'}), {facts.task}"
    )
    page.label("size", _size(facts))
    page.label("layers", _layers(facts))
    for group in facts.attention:
        page.label("attends", _attention(group))
    for state in facts.states:
        page.label("state", f"{counted(state.layers, 'layer')} of {state.kind}: per sequence, not per token")
    page.label("weights", _weights(report, facts))
    page.label("context", _context(facts))
    page.label("cache", _cache(report))
    page.label("left out", ", ".join(facts.parts_left_out))
    for text in facts.unknown:
        page.label("unknown", text)
    if facts.remote_code:
        named = ", ".join(facts.remote_code)
        page.label("code", f"the config names code of its own ({named}): engines run it only when told to")


def _size(facts: ModelFacts) -> str:
    if facts.parameters is None:
        return ""
    found = f"{facts.parameters:,} parameters"
    if facts.experts is not None and facts.active_parameters is not None:
        found += f", of which a token meets {facts.active_parameters:,}"
    return found


def _layers(facts: ModelFacts) -> str:
    found = f"{facts.layers} of width {facts.hidden_size}"
    if facts.experts is not None:
        experts = facts.experts
        shared = f" and {experts.shared} shared" if experts.shared else ""
        found += f"; {experts.count} experts in {experts.layers}, {experts.per_token} a token{shared}"
    return found


def _attention(group: AttentionGroup) -> str:
    layers = counted(group.layers, "layer")
    if group.kind == "mla":
        sparse = ", sparse by an indexer" if group.index_dim else ""
        return f"{layers}: latent (MLA), {group.latent_dim} + {group.rope_dim} values a token{sparse}"
    width = f"{group.heads} heads of {group.head_dim} over {group.kv_heads} KV heads"
    if group.v_head_dim != group.head_dim:
        width += f" (values of {group.v_head_dim})"
    window = f", the last {group.window_tokens} tokens" if group.window_tokens else ""
    return f"{layers}: {group.kind}, {width}{window}"


def _weights(report: ModelReport, facts: ModelFacts) -> str:
    parts = []
    if report.stored_bytes is not None:
        parts.append(f"{report.stored_bytes / _GIB:.2f} GiB in the files")
    if report.stored_dtypes:
        parts.append(
            ", ".join(f"{values:,} x {dtype}" for dtype, values in list(report.stored_dtypes.items())[:4])
        )
    elif facts.dtype:
        parts.append(facts.dtype)
    quantization = facts.quantization
    if quantization is not None:
        scheme = "" if quantization.scheme in ("unknown", quantization.said) else f" ({quantization.scheme})"
        parts.append(f"quantized: {quantization.said}{scheme}")
    if facts.is_tied and facts.task == "generate":
        parts.append("the head is the input embedding")
    return "; ".join(parts)


def _context(facts: ModelFacts) -> str:
    if facts.context_tokens is None:
        return ""
    rope = facts.rope
    turned = ""
    if rope is not None and rope.theta is not None:
        turned = f", rope_theta {rope.theta:,.0f}"
        turned += f", {rope.kind}" if rope.kind != "default" else ""
        turned += f" x {rope.factor:g}" if rope.factor else ""
    return f"{facts.context_tokens:,} tokens{turned}"


def _cache(report: ModelReport) -> str:
    parts = []
    if report.kv_bytes_per_token:
        parts.append(f"{report.kv_bytes_per_token:,} bytes a token in {report.kv_dtype}")
    if report.state_bytes_per_sequence:
        parts.append(f"{report.state_bytes_per_sequence / 1024**2:.1f} MiB of state a sequence")
    return ", ".join(parts)


def _files(page: Page, report: ModelReport) -> None:
    weights = [one for one in report.files if one.kind in ("safetensors", "pytorch", "gguf", "lfs_pointer")]
    if not weights:
        return
    tensors = sum(one.tensors or 0 for one in weights)
    size = sum(one.bytes for one in weights)
    said = f", {counted(tensors, 'tensor')}" if tensors else ""
    page.label("files", f"{counted(len(weights), 'file')} of weights, {size / _GIB:.2f} GiB{said}")
    for one in weights:
        if one.note and len(weights) <= 4:
            page.label("", f"{one.name}: {one.note}")
    if report.is_digested:
        digested = [one for one in report.files if one.sha256]
        for one in digested:
            page.line(f"{one.sha256}  {one.name}")


# --- fit ------------------------------------------------------------------------------------------


def _fit(page: Page, one: Fit, facts: ModelFacts | None) -> None:
    plan = one.memory
    page.gap()
    gpus = f"{one.count} x {one.gpu}" if one.count > 1 else one.gpu
    asked = f"{counted(plan.sequences, 'sequence')} of {plan.context_tokens:,} tokens"
    sure = "" if plan.is_certain else ", by figures that may be off by the ranges below"
    if plan.fits:
        text = f"{gpus}, {asked}: {_gib(plan.free_bytes)} GiB to spare on each{sure}"
        page.text(text, head="FITS ", paint="pass")
    else:
        text = f"{gpus}, {asked}: {_gib(plan.short_bytes)} GiB too little on each{sure}"
        page.text(text, head="DOES NOT FIT ", paint="fail")
    most = facts.context_tokens if facts is not None else None
    if most is not None and plan.context_tokens > most:
        made = f"the model was made for {most:,} tokens: an engine takes no more by itself"
        page.text(made, head="but ", indent=2, paint="warn")
    for part in plan.components:
        _row(page, part.name.replace("_", " "), f"{_gib(part.bytes):>8} GiB{_spread(part)}", part.because)
    share = round(100 * plan.budget_bytes / plan.gpu_bytes)
    where = "this host says" if one.is_here else "by its datasheet"
    of = f"{share} % of {_gib(plan.gpu_bytes)} GiB ({where})"
    _row(page, "of", f"{_gib(plan.budget_bytes):>8} GiB", of)
    if plan.most_sequences is not None:
        page.label("at most", f"{plan.most_sequences:,} such sequences at once")
    if plan.fits and plan.longest_tokens and not (most and plan.context_tokens >= most):
        is_all = most is not None and plan.longest_tokens >= most
        made = ", all that it was made for" if is_all else ""
        page.label("or", f"contexts of {most if is_all else plan.longest_tokens:,} tokens{made}")
    _speed(page, one)
    if one.would_fit:
        page.text("what would fit:", indent=2)
        for text in one.would_fit:
            page.text(f"- {text}", indent=4)


def _row(page: Page, name: str, figure: str, because: str) -> None:
    """A row of the table; a reason that does not fit behind it stands below."""
    row = f"  {name:<14}{figure}"
    if len(row) + 2 + len(because) <= _WIDTH:
        page.line(f"{row}  {because}")
        return
    page.line(row)
    page.text(because, indent=_REASON_AT, hang=0)


def _gib(size: int) -> str:
    return f"{size / _GIB:.2f}"


def _spread(part: Component) -> str:
    if part.low_bytes == part.high_bytes:
        return ""
    return f" ({_gib(part.low_bytes)} to {_gib(part.high_bytes)})"


def _speed(page: Page, one: Fit) -> None:
    """Floors, which no measurement may pass; not what an engine will reach."""
    if one.decode is not None:
        step = f"{one.decode.time_s * 1000:.2f} ms a token, {one.decode.tok_per_s:,.0f} tokens/s in all"
        page.label("at best", f"{step}: {one.decode.bound} sets it")
    if one.prefill is not None:
        page.label("", f"{one.prefill.time_s * 1000:,.0f} ms to read such a prompt ({one.prefill.bound})")
    if one.crossing_tokens is not None:
        page.label("", f"from {one.crossing_tokens:,} tokens a step on, arithmetic sets it")
    page.label("by", "; ".join(one.rates_because))


def _foot(page: Page, report: ModelReport) -> None:
    page.gap()
    if not report.fits and report.facts is not None and report.facts.parameters is not None:
        page.text("no GPU was seen here: `--gpu H200` (or `--gpu L4x2`) tells whether it fits")
    meaning = {0: "whole", 1: "broken, or does not fit", 3: "could not tell"}[report.exit_code]
    if report.exit_code == 0 and report.fits:
        meaning = "whole, and it fits"
    page.text(f"matrix {report.matrix_edition}; exit code {report.exit_code}: {meaning}")
