"""Reports of `bench` made by hand, with every part that a renderer has to get right."""

from doctor.core.load import (
    Attainment,
    Calibration,
    Estimate,
    KneeEstimate,
    KneeReport,
    LoadPlan,
    LoadReport,
    MetricSummary,
    Point,
    Probe,
    Quantile,
    SearchReport,
    Series,
    Slo,
    SloTerm,
    StageReport,
    Summary,
    Target,
    Timeline,
    Window,
    Withheld,
)


def quantile(p, value_s):
    if value_s is None:
        return Quantile(p=p, result=Withheld(reason="600 values; P99 needs 1000", have=600, needed=1000))
    return Quantile(p=p, result=Estimate(value_s=value_s, low_s=value_s * 0.95, high_s=value_s * 1.08))


def without_interval(p, value_s):
    reason = "9 of 568 values are independent; P95 needs 200"
    return Quantile(p=p, result=Point(value_s=value_s, reason=reason, have=9, needed=200))


def metric(name, p50_s, *, has_p99=True):
    shares = {0.5: 1.0, 0.9: 1.3, 0.95: 1.5, 0.99: 2.0 if has_p99 else None}
    return MetricSummary(
        metric=name,
        n=1800,
        n_effective=1500.0,
        mean_s=p50_s * 1.05,
        min_s=p50_s * 0.8,
        max_s=p50_s * 3,
        quantiles=tuple(
            without_interval(p, p50_s * s)
            if p == 0.95 and not has_p99
            else quantile(p, None if s is None else p50_s * s)
            for p, s in shares.items()
        ),
        note="67% of the pieces arrived together" if name == "itl" else "",
    )


def stage(name, *, rate=None, streams=None, ttft_s=0.05, per_s=20.0, has_p99=True):
    return StageReport(
        name=name,
        rate_per_s=rate,
        concurrency=streams,
        summary=Summary(
            window=Window(start_s=2.0, end_s=62.0, is_steady=True, because="the server was full"),
            offered=1800,
            succeeded=1790,
            statuses={"ok": 1790, "unavailable": 10},
            offered_per_s=per_s,
            completed_per_s=per_s,
            output_tok_per_s=per_s * 128,
            input_tok_per_s=None,
            in_flight_mean=per_s * 1.3,
            metrics=tuple(
                metric(name, t, has_p99=has_p99)
                for name, t in (("ttft", ttft_s), ("tpot", 0.02), ("itl", 0.02), ("e2e", 1.3))
            ),
            attainment=Attainment(
                good=1785, offered=1800, n_effective=1200.0, share=0.9917, low=0.985, high=0.996
            ),
            good_per_s=per_s * 0.99,
            littles_law_error=0.004,
            judgement="pass",
            reasons=("15 of 1800 requests were late or failed",),
        ),
    )


SEARCHED = LoadReport(
    tool="mopt-doctor 0",
    taken_at="2026-11-30T12:00:00Z",
    target=Target(url="http://127.0.0.1:8000/v1", endpoint="chat", model="smoke", server="vllm 0.33.0"),
    plan=LoadPlan(loop="open", arrivals="poisson", seed=7, schedule_digest="ab" * 32),
    slo=Slo(terms=(SloTerm(metric="ttft", limit_s=0.5),)),
    stages=(
        stage("1 streams", streams=1, per_s=0.8),
        stage("2 streams", streams=2, per_s=1.6, has_p99=False),
        stage("64 streams", streams=64, per_s=30.0, ttft_s=0.4),
        stage("best", rate=24.0, per_s=24.0),
        stage("lower", rate=12.0, per_s=12.0),
    ),
    search=SearchReport(
        outcome="found",
        rate_per_s=24.0,
        fails_at_per_s=27.5,
        estimate_per_s=25.1,
        recommended_per_s=19.2,
        probes=(
            Probe(rate_per_s=12.0, judgement="pass", requests=1000, n=990, n_effective=990.0, late=0),
            Probe(
                rate_per_s=27.5,
                judgement="fail",
                requests=1000,
                n=950,
                n_effective=80.0,
                late=190,
                reason="190 of 950 requests were late or failed",
            ),
        ),
        spent_requests=9000,
        spent_s=812.5,
        spent_tokens=1_800_000,
    ),
    knee=KneeReport(
        axis="concurrency",
        estimates=(
            KneeEstimate(method="two_segment", load=31.0),
            KneeEstimate(method="usl", load=33.0),
            KneeEstimate(method="power", load=None, reason="no peak inside"),
        ),
        load=32.0,
        spread=0.06,
        reason="2 of 3 estimates agree within 6%",
    ),
    calibration=Calibration(rate_per_s=24.0, n=72, ttft_error_p50_s=2e-4, ttft_error_p99_s=1.4e-3),
    timeline=Timeline(
        series=(
            Series(
                name="kv cache",
                unit="%",
                source="engine",
                t_s=tuple(float(t) for t in range(400)),
                values=tuple(None if t % 50 == 7 else t / 8 for t in range(400)),
            ),
            Series(name="in flight", unit="", source="client", t_s=(0.0, 1.0), values=(1.0, 2.0)),
            Series(name="power <W>", unit="W", source="gpu", t_s=(0.0, 399.0), values=(600.0, 680.0)),
            Series(name="not read", unit="", source="gpu", t_s=(0.0, 1.0), values=(None, None)),
        ),
        marks=((120.0, "GPU 0 throttled: power cap"),),
    ),
    judgement="pass",
)

#: What a server says may be anything.
HOSTILE = LoadReport(
    target=Target(url="http://h/<script>", endpoint="chat", model="</title><script>x</script>\x1b[2J"),
    plan=LoadPlan(loop="closed", arrivals="closed", seed=0),
    stages=(stage("<b>\u202e1 streams", streams=1),),
    timeline=Timeline(
        series=(
            Series(
                name="</text><script>", unit="<i>", source="gpu", t_s=(0.0, 1e300), values=(-1e300, 1e308)
            ),
            Series(name="tiny", unit="s", source="gpu", t_s=(0.0, 1e-300), values=(1e-300, 2e-300)),
        ),
        marks=((0.5, "<img src=x>"),),
    ),
    reasons=("<script>alert(1)</script> `code`",),
    is_cut=True,
)
