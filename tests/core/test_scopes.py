"""Several scopes judged side by side: the worst decides, and each keeps what is its own."""

from __future__ import annotations

import msgspec
import pytest

from doctor.core.check import check, failed, passed
from doctor.core.checks import CHECKS
from doctor.core.host import Absent, Environment, Host
from doctor.core.judge import checks_for, judge, judge_scopes
from doctor.core.versions import Dotted
from tests.core.hosts import (
    NOT_THERE,
    compat_library,
    failing_probe,
    healthy,
    in_container,
    in_wsl2,
    known_of,
    matrix,
    no_driver,
    put,
    reports,
)

BOX = "container:4f2a"
OTHER = "container:beef"


def scoped(host: Host, scope: str) -> Host:
    return msgspec.structs.replace(host, scope=scope)


def shadowed(scope: str = BOX) -> Host:
    """A container whose loader prefers an old compat libcuda."""
    library = compat_library(Dotted("575.57.08"))
    probe = failing_probe(
        803,
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        library_path=library.path,
        library_version=library.version,
    )
    return scoped(put(in_container(), "cuda.probe", probe), scope)


def environment(scope: str = "venv:/opt/x", cuda: str = "12.9") -> Host:
    torch = {"torch": "2.9.1+cu129", "torch_cuda": Dotted(cuda), "torch_build": "cuda"}
    return Host(scope=scope, environment=known_of(Environment(python=Dotted("3.12.3"), **torch)))


def untold(scope: str) -> Host:
    """A scope of which nothing is known."""
    return Host(scope=scope)


def verdicts(*hosts: Host) -> dict[str, str]:
    return {s.scope: s.verdict for s in judge_scopes(hosts, matrix()).scopes}


@pytest.mark.parametrize("host", [healthy(), no_driver(), in_container(), in_wsl2(), Host()])
def test_one_scope_is_judged_as_before(host: Host) -> None:
    assert judge_scopes((host,), matrix(), tool="t") == judge(host, matrix(), tool="t")


def test_a_healthy_host_does_not_excuse_its_container() -> None:
    report = judge_scopes((healthy(), shadowed()), matrix())
    assert (report.verdict, report.exit_code) == ("not_ready", 1)
    assert {s.scope: s.verdict for s in report.scopes} == {"host": "ready", BOX: "not_ready"}
    assert [(c.id, c.scope) for c in report.causes] == [("cuda.compat_lib_shadow", BOX)]
    assert {(f.id, f.scope, f.cause) for f in report.findings if f.status == "fail"} == {
        ("cuda.init", BOX, "cuda.compat_lib_shadow"),
        ("cuda.libcuda", BOX, "cuda.compat_lib_shadow"),
    }
    # The machine is the host's word, whatever the container says.
    assert report.host.virtualisation == "bare_metal"


@pytest.mark.parametrize(
    ("hosts", "verdict"),
    [
        ((healthy(), scoped(in_container(), BOX)), "ready"),
        ((healthy(), untold(BOX)), "unknown"),
        ((untold("host"), scoped(in_container(), BOX)), "unknown"),
        ((untold("host"), shadowed()), "not_ready"),
        ((healthy(), untold(OTHER), shadowed()), "not_ready"),
        ((no_driver(), scoped(in_container(), BOX)), "not_ready"),
    ],
)
def test_the_worst_scope_decides(hosts: tuple[Host, ...], verdict: str) -> None:
    report = judge_scopes(hosts, matrix())
    assert report.verdict == verdict
    assert report.exit_code == {"ready": 0, "not_ready": 1, "unknown": 3}[verdict]
    assert [s.scope for s in report.scopes] == [h.scope for h in hosts]


def test_causes_of_the_worst_scope_come_first_and_the_hosts_first_among_equals() -> None:
    open_first = judge_scopes((untold("host"), shadowed()), matrix())
    assert [c.scope for c in open_first.causes] == [BOX, "host"]
    both = judge_scopes((no_driver(), shadowed()), matrix())
    assert [c.scope for c in both.causes] == ["host", BOX]
    # The same cause in two scopes is said of both, and each explains its own.
    twice = judge_scopes((healthy(), shadowed(), shadowed(OTHER)), matrix())
    assert [(c.id, c.scope) for c in twice.causes] == [
        ("cuda.compat_lib_shadow", BOX),
        ("cuda.compat_lib_shadow", OTHER),
    ]


def test_an_environment_is_judged_on_the_machine_that_it_lies_on() -> None:
    assert verdicts(healthy(), environment()) == {"host": "ready", "venv:/opt/x": "ready"}
    old = reports(put(healthy(), "cuda.probe", NOT_THERE), cuda_driver_version=Dotted("11.8"))
    report = judge_scopes((old, environment()), matrix())
    assert {s.scope: s.verdict for s in report.scopes}["venv:/opt/x"] == "not_ready"
    assert ("cuda.driver_too_old_for_runtime", "venv:/opt/x") in [(c.id, c.scope) for c in report.causes]


def test_an_environment_never_makes_its_host_unready() -> None:
    cpu = Environment(torch="2.9.1+cpu", torch_build="cpu", is_meant=True)
    report = judge_scopes((healthy(), Host(scope="venv:/opt/x", environment=known_of(cpu))), matrix())
    assert {s.scope: s.verdict for s in report.scopes} == {"host": "ready", "venv:/opt/x": "not_ready"}
    assert {f.scope for f in report.findings if f.status == "fail"} == {"venv:/opt/x"}


def test_an_environment_without_torch_and_engine_is_not_judged() -> None:
    empty = Host(scope="venv:/opt/x", environment=known_of(Environment(python=Dotted("3.12.3"))))
    assert judge_scopes((healthy(), empty), matrix()) == judge(healthy(), matrix(), others=(empty,))


def test_an_environment_alone_is_not_told_to_run() -> None:
    report = judge_scopes((environment(),), matrix())
    assert (report.verdict, report.exit_code) == ("unknown", 3)
    assert [(s.scope, s.verdict) for s in report.scopes] == [("venv:/opt/x", "unknown")]


def test_with_nothing_to_judge_nothing_is_ready() -> None:
    report = judge_scopes((untold("pod:web"),), matrix())
    assert (report.verdict, report.exit_code, report.scopes, report.findings) == ("unknown", 3, (), ())
    with pytest.raises(ValueError, match="no host"):
        judge_scopes((), matrix())


def test_a_container_without_a_host_speaks_for_itself() -> None:
    report = judge_scopes((shadowed(), environment()), matrix())
    assert {s.scope: s.verdict for s in report.scopes} == {BOX: "not_ready", "venv:/opt/x": "unknown"}
    assert report.host.virtualisation == "container"


def test_an_environment_of_a_container_is_judged_by_what_the_container_sees() -> None:
    inside = environment(f"venv:/opt/x@{BOX}")
    seen = scoped(reports(in_container(), cuda_driver_version=Dotted("11.8")), BOX)
    seen = put(seen, "cuda.probe", NOT_THERE)
    told = {s.scope: s.verdict for s in judge_scopes((healthy(), seen, inside), matrix()).scopes}
    assert told[inside.scope] == "not_ready"


def test_a_kind_of_scope_that_nobody_knows_is_not_judged() -> None:
    strange = scoped(no_driver(), "pod:web")
    assert checks_for("pod:web", CHECKS) == ()
    assert verdicts(healthy(), strange) == {"host": "ready"}
    # Also where its name sorts before the others.
    assert verdicts(scoped(no_driver(), ""), shadowed()) == {BOX: "not_ready"}


def test_checks_left_out_by_choice_leave_containers_out_too() -> None:
    disk = tuple(c for c in CHECKS if c.id == "kernel.headers")
    report = judge_scopes((healthy(), scoped(in_container(), BOX)), matrix(), checks=disk)
    assert [s.scope for s in report.scopes] == ["host"], "inside a container it does not apply"


@check("engine.torch", "torch in each environment", needs=("environment",))
def _torch(case):  # type: ignore[no-untyped-def]
    inside = case.host.environment
    if isinstance(inside, Absent):
        return []
    return [passed("works") if inside.value.torch else failed("none", wanted="torch")]


def test_an_engine_check_gives_environments_a_verdict() -> None:
    checks = (*CHECKS, _torch)
    assert checks_for("venv:/opt/x", checks)[-1] is _torch
    assert _torch not in checks_for("host", checks)
    case = judge(environment(), matrix(), checks=(_torch,))
    assert [(f.id, f.scope, f.status) for f in case.findings] == [("engine.torch", "venv:/opt/x", "pass")]
