"""`mopt-doctor plan`: for people, for a playbook, and when there is nothing to be planned."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest

from doctor.cli import main
from doctor.core.stages import Variables
from tests.core.lowering import FOLDER

SCHEMA = Path(__file__).parent.parent / "doctor" / "schemas" / "mopt.vars-1.json"
HOSTS = Path(__file__).parent / "hosts"
H100 = ("--gpu", "H100x8", "--os", "ubuntu-24.04", "--kernel", "6.8.0-60-generic")
GOAL = ("--goal", "driver==580.126.20,kernel-modules==open")


@pytest.fixture
def plan(capsys):
    """A function: run `plan` with arguments; exit code, stdout, stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["plan", *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_variables_are_those_of_the_reference_and_of_the_schema(plan) -> None:
    code, out, err = plan(*H100, *GOAL, "--format", "ansible-vars")
    assert (code, err) == (0, "")
    assert out.encode() == (FOLDER / "ubuntu-24.04-h100-580-open.json").read_bytes()
    jsonschema.validate(json.loads(out), json.loads(SCHEMA.read_bytes()))


def test_variables_go_into_a_file(plan, tmp_path) -> None:
    target = tmp_path / "vars.json"
    assert plan(*H100, *GOAL, "--format", "ansible-vars", "-o", str(target)) == (0, "", "")
    assert msgspec.json.decode(target.read_bytes(), type=Variables).mopt_stages


def test_text_says_now_and_then_and_fits_the_screen(plan) -> None:
    code, out, _err = plan("--from", str(HOSTS / "hgx-h100-healthy"), "--goal", "driver==595.71.05")
    assert code == 0
    assert "nvidia-open-580 580.126.20-1ubuntu1 -> removed" in " ".join(out.split())
    assert "nvidia-fabricmanager not installed -> 595.71.05-1" in " ".join(out.split())
    assert "reboot: if the loaded module" in out
    long = [line for line in out.splitlines() if len(line) > 80 and "://" not in line]
    assert not long


def test_what_was_not_asked_for_and_stays_is_left_alone(plan) -> None:
    _code, out, _err = plan("--from", str(HOSTS / "hgx-h100-healthy"), "--goal", "driver==595.71.05")
    assert "container toolkit" not in out
    assert "nvidia-container-toolkit" not in out


def test_nothing_to_do_is_said(plan) -> None:
    host = str(HOSTS / "hgx-h100-healthy")
    code, out, _err = plan("--from", host, "--goal", "container-toolkit")
    assert code == 0
    assert "driver:" not in out
    assert "no package changes" in out


def test_secure_boot_takes_signed_modules_unless_told_otherwise(plan) -> None:
    machine = (*H100[2:], "--gpu", "L40S", "--have", "secure-boot==on", "--goal", "driver==580.*")
    code, out, _err = plan(*machine)
    assert code == 0
    assert "origin canonical" in out
    assert "driver 580.173.02 instead of" in " ".join(out.split())
    code, out, _err = plan(*machine, "--origin", "nvidia")
    assert code == 1
    assert "driver.module_signature_rejected" in out
    assert "mokutil --import" in " ".join(out.split())
    assert "disable" not in out.casefold()


def test_a_refusal_is_a_document_as_well(plan) -> None:
    host = str(HOSTS / "driver-container")
    code, out, _err = plan("--from", host, *GOAL, "--format", "ansible-vars")
    assert code == 1
    document = msgspec.json.decode(out.encode(), type=Variables)
    assert [one.cause for one in document.mopt_refusals] == ["container.driver_double_managed"]
    assert document.mopt_stages == ()


@pytest.mark.parametrize(
    ("host", "cause"),
    [
        ("wsl2-healthy", "container.wsl_linux_driver_shadow"),
        ("jetson-orin", "plan.jetson"),
        ("healthy-debian-12", "plan.system_without_packages"),
        ("container-healthy", "plan.inside_container"),
        ("vgpu-host-slices", "plan.vgpu_host"),
    ],
)
def test_somebody_elses_machine_is_refused_before_anything_is_chosen(plan, host, cause) -> None:
    code, out, _err = plan("--from", str(HOSTS / host), *GOAL, "--format", "ansible-vars")
    assert code == 1
    assert [one["cause"] for one in json.loads(out)["mopt_refusals"]] == [cause]


def test_a_conflict_is_told_and_no_variables_are_written(plan, tmp_path) -> None:
    target = tmp_path / "vars.json"
    machine = ("--gpu", "V100", *H100[2:], "--goal", "driver==595.71.05")
    code, out, err = plan(*machine, "--format", "ansible-vars", "-o", str(target))
    assert (code, out) == (1, "")
    assert "cannot hold together" in err
    assert not target.exists()
    code, out, _err = plan(*machine)
    assert code == 1
    assert "R580" in out


WRONG = {
    "no goal": (H100, "`plan` needs a goal"),
    "present": ((*H100, "--goal", "present"), "`plan` needs a goal"),
    "mirror without a value": ((*H100, *GOAL, "--mirror", "cuda"), "is not NAME=VALUE"),
    "mirror of nothing": ((*H100, *GOAL, "--mirror", "cude=https://x"), "names no repository"),
    "key of nothing": ((*H100, *GOAL, "--key", "x=https://x"), "names no repository"),
    "two mirrors": ((*H100, *GOAL, "--mirror", "cuda=a", "--mirror", "cuda=b"), "names `cuda` twice"),
    "air gap without addresses": ((*H100, *GOAL, "--origin", "airgap"), "needs an address"),
    "two machines": ((*H100, *GOAL, "--from", "x"), "name two machines"),
    "no package version": (
        (*H100, "--goal", "driver==580.82.07", "--hold", "os"),
        "has no package version",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_meant(plan, name) -> None:
    arguments, words = WRONG[name]
    code, out, err = plan(*arguments)
    assert (code, out) == (2, "")
    assert words in err


def test_a_site_adds_package_versions(plan, tmp_path) -> None:
    (tmp_path / "overlay.yaml").write_text('name: site-a\nas_of: "2026-11-30"\n')
    head = (
        'defaults: {as_of: "2026-11-30", review_by: "2027-05-31", confidence: measured}\npackage_versions:\n'
    )
    place = "origins: [nvidia], systems: [ubuntu-24.04], source: [a mirror]"
    row = f"- {{{{id: s-{{0}}, part: {{0}}, versions: {{1}}, {place}}}}}\n"
    versions = '{"580.82.07": "580.82.07-0ubuntu1"}'
    text = head + "".join(row.format(part, versions) for part in ("driver", "pinning"))
    (tmp_path / "packages.yaml").write_text(text)
    machine = ("--gpu", "L40S", *H100[2:], "--goal", "driver==580.82.07")
    assert plan(*machine)[0] == 2
    code, out, _err = plan(*machine, "--overlay", str(tmp_path))
    assert code == 0
    assert "nvidia-dkms-580-open ? -> 580.82.07-0ubuntu1" in out


def test_a_reload_saves_a_reboot_where_it_may(plan) -> None:
    _code, out, _err = plan(*H100, *GOAL, "--reload", "--format", "ansible-vars")
    driver = next(one for one in json.loads(out)["mopt_stages"] if one["id"] == "driver")
    assert driver["reboot"] == {"when": "if_module_differs", "timeout_s": 1800, "reload_instead": True}


def test_every_recorded_host_is_planned_refused_or_told_why_not(plan) -> None:
    """No host may end in a bug; a plan has stages or refusals."""
    for folder in sorted(path for path in HOSTS.iterdir() if path.is_dir()):
        code, out, err = plan("--from", str(folder), *GOAL, "--format", "ansible-vars")
        assert code in (0, 1, 2, 3), (folder.name, err)
        if out:
            document = msgspec.json.decode(out.encode(), type=Variables)
            assert bool(document.mopt_stages) != bool(document.mopt_refusals), folder.name
            assert code == (1 if document.mopt_refusals else 0), folder.name
        else:
            assert err, folder.name


L40S = ("--gpu", "L40Sx2", "--os", "ubuntu-24.04", "--kernel", "6.8.0-60-generic")
VLLM = ("--goal", "driver==580.126.20,kernel-modules==open,vllm==0.33.0")


def test_a_lock_of_an_engine_goes_into_the_variables(plan, tmp_path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text(f"# by uv\nvllm==0.33.0 \\\n    --hash=sha256:{'a' * 64}\n")
    code, out, err = plan(*L40S, *VLLM, "--format", "ansible-vars", "--engine-lock", str(lock))
    assert (code, err) == (0, "")
    stage = next(one for one in json.loads(out)["mopt_stages"] if one["id"] == "engine")
    assert stage["environments"][0]["requirements"] == f"vllm==0.33.0 --hash=sha256:{'a' * 64}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read"),
        ("vllm==0.33.0\n", "no hash"),
        (f"--index-url https://elsewhere.example\nvllm==0.33.0 --hash=sha256:{'a' * 64}\n", "an option"),
        (f"vllm==0.32.0 --hash=sha256:{'a' * 64}\n", "has vllm 0.32.0, the plan 0.33.0"),
    ],
)
def test_what_is_no_lock_of_the_plan_is_a_usage_error(plan, tmp_path, text, words) -> None:
    lock = tmp_path / "lock.txt"
    if text is not None:
        lock.write_text(text)
    code, _out, err = plan(*L40S, *VLLM, "--format", "ansible-vars", "--engine-lock", str(lock))
    assert code == 2
    assert words in " ".join(err.split())
