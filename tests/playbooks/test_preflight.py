"""What refuses a host where it stands: each sign, near misses, and what could not be asked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.playbooks.ansible_stand_in import call, module

REFUSAL = {"cause": "plan.foreign_driver", "text": "somebody else's", "way_out": "do that"}
DPKG = "libnvidia-compute-580\t580.95.05-0ubuntu0~gpu24.04.1\tx <x@example.invalid>\tinstalled\n"
RPM = "nvidia-x11-drv\t580.95.05-1.el9\tELRepo\tinstalled\nkmod-nvidia-580\t1-1\tRPM Fusion\tinstalled\n"


def sign(kind: str, *subjects: str, **more: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "subjects": list(subjects),
        "versions": [],
        "vendors": [],
        "refusal": REFUSAL,
        **more,
    }


OF_PPA = sign("package", "libnvidia-*", versions=["*~gpu*"])


@pytest.fixture
def host(monkeypatch):
    """Answers of commands by their first word; what has none is not installed."""

    class Host:
        def __init__(self) -> None:
            self.answers: dict[str, tuple[int, str]] = {}

        def command(self, argv, _timeout_s=120, _surroundings=None):
            return self.answers.get(" ".join(argv[:2]), self.answers.get(argv[0], (127, "")))

        def found(self, *signs: dict[str, Any]) -> list[str]:
            told = call("mopt_preflight", signs=list(signs))
            assert not told["failed"], told
            assert not told["changed"]
            return [one["found"] for one in told["refusals"]]

    made = Host()
    monkeypatch.setattr(module("mopt_preflight").mopt_host, "command", made.command)
    return made


def test_a_path_that_is_there(host, tmp_path):
    assert host.found(sign("path", f"{tmp_path}/release")) == []
    (tmp_path / "release").touch()
    assert host.found(sign("path", f"{tmp_path}/none*", f"{tmp_path}/rel*")) == [f"{tmp_path}/release"]


def test_the_kernels_name(host, monkeypatch):
    for release, is_found in (("5.15.167.4-microsoft-standard-WSL2", True), ("6.8.0-60-generic", False)):
        monkeypatch.setattr(
            module("mopt_preflight").mopt_host, "running_kernel", lambda release=release: release
        )
        assert bool(host.found(sign("kernel", "microsoft"))) is is_found


@pytest.mark.parametrize(
    ("tool", "text", "wanted", "found"),
    [
        ("dpkg-query", DPKG, OF_PPA, ["libnvidia-compute-580 580.95.05-0ubuntu0~gpu24.04.1"]),
        ("dpkg-query", DPKG.replace("~gpu24.04.1", ""), OF_PPA, []),
        ("dpkg-query", DPKG.replace("installed", "config-files"), sign("package", "libnvidia-*"), []),
        ("rpm", RPM, sign("package", "nvidia-x11-drv*"), ["nvidia-x11-drv 580.95.05-1.el9"]),
        ("rpm", RPM, sign("package", "kmod-nvidia-[0-9]*", vendors=["rpm fusion"]), ["kmod-nvidia-580 1-1"]),
        ("rpm", RPM, sign("package", "kmod-nvidia-[0-9]*", vendors=["nvidia"]), []),
        ("rpm", RPM, sign("package", "kmod-*", "!kmod-nvidia-580"), []),
    ],
)  # fmt: skip
def test_packages_by_name_version_and_vendor(host, tool, text, wanted, found):
    host.answers[tool] = (0, text)
    assert host.found(wanted) == found


@pytest.mark.parametrize(
    ("dpkg", "rpm", "is_refused"),
    [(0, 127, False), (1, 127, True), (127, 0, False), (127, 1, True), (127, 127, False), (124, 127, False)],
)
def test_a_library_that_no_package_has(host, tmp_path, dpkg, rpm, is_refused):
    """A link is ldconfig's and nobody's; where no database can be asked, nothing is refused."""
    (tmp_path / "libcuda.so.580.126.20").write_bytes(b"x")
    (tmp_path / "libcuda.so.1").symlink_to("libcuda.so.580.126.20")
    host.answers |= {"dpkg-query": (dpkg, ""), "rpm": (rpm, "")}
    found = host.found(sign("unowned", f"{tmp_path}/libcuda.so.*"))
    assert found == ([f"{tmp_path}/libcuda.so.580.126.20"] if is_refused else [])


@pytest.mark.parametrize(
    ("code", "text", "is_guest"),
    [
        (0, "    GPU Virtualization Mode\n        Virtualization Mode               : VGPU\n", True),
        (0, "        Virtualization Mode               : Pass-Through\n", False),
        (0, "        Virtualization Mode               : Host VGPU\n", False),
        (0, "        Host VGPU Mode                    : N/A\n", False),
        (124, "        Virtualization Mode               : VGPU\n", False),
        (9, "", False),
    ],
)
def test_a_vgpu_guest(host, code, text, is_guest):
    host.answers["nvidia-smi"] = (code, text)
    assert bool(host.found(sign("vgpu_guest"))) is is_guest


def test_two_signs_of_one_refusal_are_told_once(host, tmp_path):
    (tmp_path / "a").touch()
    assert len(host.found(sign("path", f"{tmp_path}/a"), sign("path", f"{tmp_path}/*"))) == 1


def test_every_sign_of_a_plan_is_one_that_the_module_knows():
    from doctor.core.stages import Sign

    [kind] = [field.type for field in msgspec.structs.fields(Sign) if field.name == "kind"]
    assert set(module("mopt_preflight").LOOKS) == set(kind.__args__)
    assert call("mopt_preflight", signs=[sign("smell")])["failed"]
