"""The small modules: what they compare, write and refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.playbooks.ansible_stand_in import call, module

# --- files -------------------------------------------------------------------


def test_a_file_is_written_once(tmp_path):
    path = tmp_path / "etc/x.conf"
    told = call("mopt_file", check=True, path=str(path), content="a\n", rebuild_initramfs=True)
    assert (told["changed"], path.exists()) == (True, False)
    assert call("mopt_file", path=str(path), content="a\n", mode="0640")["changed"]
    assert path.read_text() == "a\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert not call("mopt_file", path=str(path), content="a\n", mode="0640")["changed"]


def test_a_file_goes_once(tmp_path):
    path = tmp_path / "x"
    path.touch()
    assert call("mopt_file", path=str(path), state="absent")["changed"]
    assert not path.exists()
    assert not call("mopt_file", path=str(path), state="absent")["changed"]


def test_keys_are_merged_and_the_admins_stay(tmp_path):
    path = tmp_path / "daemon.json"
    path.write_text('{"log-driver": "journald", "runtimes": {"own": {"path": "x"}}}')
    keys = json.dumps({"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}})
    assert call("mopt_file", path=str(path), content=keys, merge="json")["changed"]
    assert json.loads(path.read_text()) == {
        "log-driver": "journald",
        "runtimes": {"own": {"path": "x"}, "nvidia": {"path": "nvidia-container-runtime"}},
    }
    before = path.read_bytes()
    assert not call("mopt_file", path=str(path), content=keys, merge="json")["changed"]
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["{,}", "[1]", '{"a": 1,}'])
def test_what_cannot_be_read_is_not_merged_into(tmp_path, text):
    path = tmp_path / "daemon.json"
    path.write_text(text)
    told = call("mopt_file", path=str(path), content="{}", merge="json")
    assert told["failed"]
    assert path.read_text() == text


def test_what_does_not_parse_is_not_written(tmp_path):
    path = tmp_path / "x.json"
    assert call("mopt_file", path=str(path), content="{", validate="json")["failed"]
    assert not path.exists()


# --- container runtimes ----------------------------------------------------------


def test_docker_gets_the_runtime_and_keeps_the_rest():
    config = module("mopt_runtime").docker_config
    text = config('{"exec-opts": ["x"]}', set_default=True, cdi=False)
    assert json.loads(text) == {
        "exec-opts": ["x"],
        "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}},
        "default-runtime": "nvidia",
    }
    assert config(text, set_default=True, cdi=False) == text


def test_a_runtime_that_an_admin_set_stays():
    own = '{"runtimes": {"nvidia": {"path": "/opt/own"}}}'
    assert module("mopt_runtime").docker_config(own, set_default=False, cdi=False) == own


def test_a_docker_configuration_that_cannot_be_read_is_left(tmp_path):
    path = tmp_path / "daemon.json"
    path.write_text('{"a": }')
    told = call("mopt_runtime", engine="docker", mode="runtime", config=str(path))
    assert told["cause"] == "container.engine_config_unreadable"
    assert path.read_text() == '{"a": }'


# --- keys ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    """A key of gpg's own making, in both forms, with the fingerprint that gpg gives it."""
    home = tmp_path_factory.mktemp("gpg")
    home.chmod(0o700)
    gpg = ["gpg", "--homedir", str(home), "--batch", "--quiet"]
    try:
        subprocess.run(
            [*gpg, "--passphrase", "", "--quick-generate-key", "x@example.invalid", "rsa2048"],
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        pytest.skip("gpg is not installed")
    listing = subprocess.run(
        [*gpg, "--with-colons", "--fingerprint"], check=True, capture_output=True, text=True
    ).stdout
    fingerprint = next(line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr"))
    armoured = subprocess.run([*gpg, "--armor", "--export"], check=True, capture_output=True).stdout
    plain = subprocess.run([*gpg, "--export"], check=True, capture_output=True).stdout
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)
    return fingerprint, armoured, plain


def test_fingerprints_are_those_of_gpg(key):
    import mopt_openpgp

    fingerprint, armoured, plain = key
    assert mopt_openpgp.fingerprints(armoured)[0] == fingerprint
    assert mopt_openpgp.fingerprints(plain)[0] == fingerprint
    assert mopt_openpgp.dearmoured(armoured) == plain


@pytest.mark.parametrize("cut", [1, 20, 300])
def test_a_key_that_breaks_off_is_refused(key, cut):
    import mopt_openpgp

    with pytest.raises(ValueError, match=r"key|packet"):
        mopt_openpgp.fingerprints(key[2][:cut])


@pytest.mark.parametrize(
    "data", [b"", b"<html>not found</html>", b"\x00" * 40, b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nAAAA\n"]
)
def test_what_is_no_key_is_refused(data):
    import mopt_openpgp

    with pytest.raises(ValueError):  # noqa: PT011 - base64 has words of its own
        mopt_openpgp.fingerprints(data)


def _put(key_data, fingerprint, path):
    import base64

    return call(
        "mopt_keyring",
        kind="deb",
        content=base64.b64encode(key_data).decode(),
        keyring=str(path),
        fingerprint=fingerprint,
    )


def test_the_right_key_is_put_in_place_once(key, tmp_path):
    fingerprint, armoured, plain = key
    for name, bytes_there in (("k.asc", armoured), ("k.gpg", plain)):
        path = tmp_path / name
        assert _put(armoured, fingerprint[-16:], path)["changed"]
        assert path.read_bytes() == bytes_there
        assert not _put(armoured, fingerprint, path)["changed"]


def test_another_key_is_never_written(key, tmp_path):
    path = tmp_path / "k.gpg"
    told = _put(key[1], "A4B469963BF863CC", path)
    assert told["cause"] == "prov.repo_key"
    assert key[0] in told["msg"]
    assert not path.exists()


def test_a_short_id_is_no_fingerprint(key, tmp_path):
    assert _put(key[1], key[0][-8:], tmp_path / "k")["failed"]


# --- who uses the GPUs -----------------------------------------------------------


def test_a_process_that_holds_a_device_is_named_and_left_alone(tmp_path):
    device = tmp_path / "nvidia0"
    device.touch()
    code = (
        "import sys, time; open('/proc/self/comm', 'w').write('nvidia-persistenced'); h = open(sys.argv[1]); "
        "print('ready', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(device)], stdout=subprocess.PIPE)
    globs = [f"{tmp_path}/nvidia*"]
    try:
        assert process.stdout is not None
        process.stdout.readline()
        told = call("mopt_users", devices=globs)
        assert [(u["pid"], u["devices"]) for u in told["users"]] == [(process.pid, [str(device)])]
        assert told["users"][0]["command"] == "nvidia-persiste", "the kernel keeps fifteen letters"
        assert not call("mopt_users", devices=globs, ignore=["nvidia-persistenced"])["users"]
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()
    assert call("mopt_users", devices=globs)["users"] == []


# --- modules and reboots -----------------------------------------------------------


@pytest.fixture
def kernel(monkeypatch):
    """A host whose kernel and modules are what the test says."""
    host = module("mopt_kernel").mopt_host
    state = {"running": "6.8.0-60", "next": "6.8.0-60", "loaded": {}, "disk": {}}
    monkeypatch.setattr(host, "running_kernel", lambda: state["running"])
    monkeypatch.setattr(host, "next_kernel", lambda: state["next"])
    monkeypatch.setattr(host, "loaded_version", lambda name: state["loaded"].get(name, ""))
    monkeypatch.setattr(host, "module_on_disk", lambda _, release: state["disk"].get(release, ""))

    def command(argv, timeout_s=120):
        state.setdefault("ran", []).append(argv)
        if argv[0] == "modprobe" and "-r" not in argv:
            if state.get("refuses"):
                return 1, state["refuses"]
            state["loaded"][argv[1]] = state["disk"].get(state["running"], "")
        if argv[:2] == ["modprobe", "-r"]:
            state["loaded"].pop(argv[2], None)
        return 0, ""

    monkeypatch.setattr(host, "command", command)
    return state


PLAN = {
    "kernels": ["6.8.0-60"],
    "version": "580.126.20",
    "load": ["nvidia"],
    "unload": ["nvidia"],
    "when": "if_module_differs",
}


def test_a_first_installation_loads_and_needs_no_reboot(kernel):
    kernel["disk"] = {"6.8.0-60": "580.126.20"}
    told = call("mopt_kernel", **PLAN)
    assert (told["changed"], told["reboot_due"]) == (True, False)
    assert not call("mopt_kernel", **PLAN)["changed"]


def test_an_upgrade_under_a_loaded_module_is_due_for_a_reboot(kernel):
    kernel.update(disk={"6.8.0-60": "580.126.20"}, loaded={"nvidia": "535.261.03"})
    told = call("mopt_kernel", **PLAN)
    assert told["reboot_due"]
    assert "535.261.03 is loaded, 580.126.20 is on disk" in told["reason"]


def test_a_reload_saves_the_reboot_where_it_is_allowed(kernel):
    kernel.update(disk={"6.8.0-60": "580.126.20"}, loaded={"nvidia": "535.261.03"})
    told = call("mopt_kernel", **PLAN, reload=True)
    assert not told["reboot_due"]
    assert told["loaded"] == "580.126.20"


def test_nouveau_on_the_cards_is_due_for_a_reboot(kernel):
    kernel.update(disk={"6.8.0-60": "580.126.20"}, loaded={"nouveau": "?"}, refuses="No such device")
    told = call("mopt_kernel", **PLAN)
    assert "nouveau has the GPUs" in told["reason"]


def test_a_signature_that_is_refused_names_the_way_out_and_no_reboot(kernel):
    kernel.update(
        disk={"6.8.0-60": "580.126.20"},
        refuses="modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
    )
    told = call("mopt_kernel", **PLAN)
    assert told["cause"] == "driver.module_signature_rejected"
    assert "Secure Boot stays on" in told["msg"]


def test_a_module_that_is_missing_is_built_and_the_failure_named(kernel):
    told = call("mopt_kernel", **PLAN)
    assert told["failed"]
    assert told["cause"] == "driver.headers_missing"
    assert ["dkms", "autoinstall", "-k", "6.8.0-60"] in kernel["ran"]


def test_each_kernel_that_can_boot_must_have_it(kernel):
    kernel["disk"] = {"6.8.0-60": "580.126.20"}
    told = call("mopt_kernel", **{**PLAN, "kernels": ["6.8.0-60", "6.8.0-62"]})
    assert told["failed"]
    assert "kernel 6.8.0-62 has no file" in told["msg"]


def test_the_undo_of_a_first_installation_leaves_nothing_loaded(kernel):
    kernel["loaded"] = {"nvidia": "580.126.20"}
    told = call("mopt_kernel", unload=["nvidia"], when="if_module_differs", reload=True)
    assert (told["reboot_due"], told["loaded"]) == (False, "")


def test_another_kernel_next_is_due_where_the_stage_asks(kernel):
    kernel["next"] = "6.8.0-62"
    assert call("mopt_kernel", when="if_kernel_differs")["reboot_due"]
    assert not call("mopt_kernel", when="never")["reboot_due"]


def test_a_dry_run_loads_nothing(kernel):
    kernel["disk"] = {"6.8.0-60": "580.126.20"}
    assert call("mopt_kernel", check=True, **PLAN)["changed"]
    assert kernel.get("ran") is None


# --- what is left to do ------------------------------------------------------------


def test_a_stage_with_nothing_in_it_is_none():
    stages = [
        {
            "id": "empty",
            "why": ["x"],
            "packages": [],
            "services": {"stop": []},
            "reboot": {"when": "never"},
            "kernel": None,
        },
        {"id": "stops", "services": {"stop": ["x"]}},
        {"id": "reboots", "reboot": {"when": "always"}},
        {"id": "files", "files": [{}]},
    ]
    assert module("mopt_pending")._acting(stages) == ["stops", "reboots", "files"]


# --- undo --------------------------------------------------------------------------


def test_the_way_back_is_one_transaction_from_the_capsules_files():
    undo = module("mopt_capsule").mopt_undo
    then = {"packages": {"a": ["1"], "b": ["1"], "kernel-devel": ["1", "2"]}}
    now = {"packages": {"a": ["2"], "c": ["9"], "kernel-devel": ["2"]}}
    way = undo.difference(then, now, {("a", "1"): "/undo/a.deb", ("kernel-devel", "1"): "/undo/k.rpm"})
    assert way["install"] == [
        {"name": "a", "version": "1", "file": "/undo/a.deb"},
        {"name": "b", "version": "1"},
        {"name": "kernel-devel", "version": "1", "file": "/undo/k.rpm"},
    ]
    assert way["remove"] == ["c"]
    assert way["missing"] == ["b 1"]


@pytest.fixture
def capsule(tmp_path, monkeypatch):
    """A host of which the capsule sees files of this folder alone; its package manager is a table."""
    undo = module("mopt_capsule").mopt_undo
    packages = {"a": ("1",)}

    class Manager:
        @staticmethod
        def present():
            return dict(packages)

        @staticmethod
        def held():
            return set()

        @staticmethod
        def keep(wanted, _folder):
            return [], [f"{w['name']} {w['before']}" for w in wanted]

    monkeypatch.setattr(undo, "manager_of", lambda _: Manager)
    monkeypatch.setattr(undo, "ALWAYS", {"apt": ()})
    monkeypatch.setattr(undo, "_manual", lambda _: [])
    monkeypatch.setattr(undo, "streams", dict)
    etc = tmp_path / "etc"
    etc.mkdir()
    common = {"manager": "apt", "folder": str(tmp_path / "runs/one")}
    return etc, packages, common


def test_files_come_back_byte_by_byte_and_new_ones_go(capsule):
    etc, _, common = capsule
    (etc / "kept").write_text("old")
    (etc / "kept").chmod(0o640)
    (etc / "link").symlink_to("kept")
    assert not call("mopt_capsule", act="take", files=[f"{etc}/*", f"{etc}/new"], **common)["changed"]
    assert Path(common["folder"]).stat().st_mode & 0o777 == 0o700
    (etc / "kept").write_text("new")
    (etc / "link").unlink()
    (etc / "new").write_text("x")
    (etc / "other").write_text("matches the glob")
    assert len(call("mopt_capsule", act="compare", **common)["differences"]) == 4
    assert call("mopt_capsule", act="restore", **common)["changed"]
    assert call("mopt_capsule", act="compare", **common)["differences"] == []
    assert ((etc / "kept").read_text(), (etc / "kept").stat().st_mode & 0o777) == ("old", 0o640)
    assert (etc / "link").readlink() == Path("kept")
    assert not (etc / "new").exists()
    assert not call("mopt_capsule", act="restore", **common)["changed"]


def test_units_that_the_run_enabled_are_as_before_after_the_undo(capsule, monkeypatch):
    """A package that goes leaves the link that `systemctl enable` made."""
    etc, _, common = capsule
    monkeypatch.setattr(module("mopt_capsule").mopt_undo, "UNITS", str(etc))
    wants = etc / "multi-user.target.wants"
    wants.mkdir()
    (wants / "off.service").symlink_to("/lib/systemd/system/off.service")
    stages = [{"packages": [], "services": {"enable": ["on"], "disable": ["off"], "start": ["x"]}}]
    call("mopt_capsule", act="take", stages=stages, **common)
    (wants / "off.service").unlink()
    for name in ("on", "somebodys"):
        (wants / f"{name}.service").symlink_to(f"/lib/systemd/system/{name}.service")
    assert len(call("mopt_capsule", act="compare", **common)["differences"]) == 2
    assert call("mopt_capsule", act="restore", **common)["changed"]
    assert sorted(p.name for p in wants.iterdir()) == ["off.service", "somebodys.service"]
    assert call("mopt_capsule", act="compare", **common)["differences"] == []


def test_keys_that_rpm_came_to_trust_are_taken_back(capsule, monkeypatch, tmp_path):
    _, _, common = capsule
    keys = ["gpg-pubkey-1-1"]
    monkeypatch.setattr(module("mopt_capsule").mopt_undo, "_keys", lambda _: list(keys))
    call("mopt_capsule", act="take", **common)
    keys.append("gpg-pubkey-2-2")
    assert call("mopt_capsule", act="compare", **common)["differences"] == [
        "keys: lost [], gained ['gpg-pubkey-2-2']"
    ]
    log = tmp_path / "log"
    (tmp_path / "rpm").write_text(f'#!/bin/sh\necho "$@" >>{log}\n')
    (tmp_path / "rpm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert call("mopt_capsule", act="restore", **common)["changed"]
    assert log.read_text() == "-e gpg-pubkey-2-2\n"


def test_a_run_that_did_not_end_keeps_the_first_capsule(capsule):
    etc, _, common = capsule
    (etc / "x").write_text("first")
    call("mopt_capsule", act="take", files=[f"{etc}/x"], **common)
    (etc / "x").write_text("half-way")
    call("mopt_capsule", act="take", files=[f"{etc}/x"], **common)
    call("mopt_capsule", act="restore", **common)
    assert (etc / "x").read_text() == "first"


def test_a_run_that_ended_makes_room_for_the_next_one_only_when_something_is_to_be_done(capsule):
    etc, _, common = capsule
    (etc / "x").write_text("first")
    call("mopt_capsule", act="take", files=[f"{etc}/x"], **common)
    call("mopt_capsule", act="finish", **common)
    (etc / "x").write_text("second")
    call("mopt_capsule", act="take", files=[f"{etc}/x"], pending=False, **common)
    assert call("mopt_capsule", act="compare", **common)["differences"]
    call("mopt_capsule", act="take", files=[f"{etc}/x"], pending=True, **common)
    assert call("mopt_capsule", act="compare", **common)["differences"] == []


def test_what_cannot_be_had_again_lowers_the_class(capsule, monkeypatch):
    _, _, common = capsule
    host = module("mopt_capsule").mopt_host
    stages = [{"packages": [{"install": [{"name": "a", "version": "2"}], "remove": []}]}]
    monkeypatch.setattr(host, "command", lambda *_: (0, ""))
    told = call("mopt_capsule", act="take", stages=stages, **common)
    assert (told["undo"], told["missing"]) == ("none", ["a 1"])


def test_a_dry_run_takes_nothing(capsule):
    call("mopt_capsule", check=True, act="take", **capsule[2])
    assert not Path(capsule[2]["folder"]).exists()


# --- the transaction's run ----------------------------------------------------------

FAKE = """#!/bin/sh
case " $* " in
*" -s "*) echo 'Inst slow (1-1 test [all])';;
*--download-only*) ;;
*) sleep 2; printf 'Package: slow\\nStatus: install ok installed\\nVersion: 1-1\\n' >$DB;;
esac
"""
QUERY = """#!/bin/sh
[ -s $DB ] && printf 'slow\\t1-1\\tall\\tii \\n' || true
"""
CALLER = """
import sys; sys.path[:0] = [sys.argv[1]]
from tests.playbooks.ansible_stand_in import module
transaction = module("mopt_transaction")
transaction.PATH = "/nonexistent"
transaction._prepare(sys.argv[2], __import__("json").loads(sys.argv[3]))
transaction._start("/usr/bin/python3", sys.argv[2], "x")
print("started", flush=True)
__import__("time").sleep(60)
"""


@pytest.mark.slow
def test_a_run_outlives_the_connection_that_asked_for_it(tmp_path):
    """sshd ends the session's processes when the link is lost; the package manager is none of them."""
    root = tmp_path / "root"
    (root / "var/lib/dpkg").mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, text in (("apt-get", FAKE), ("dpkg-query", QUERY), ("dpkg", "#!/bin/sh\necho amd64\n")):
        (tools / name).write_text(text.replace("$DB", str(root / "var/lib/dpkg/status")))
        (tools / name).chmod(0o755)
    request = {
        "manager": "apt",
        "install": [{"name": "slow", "version": "1-1"}],
        "remove": [],
        "extra_allowed": [],
        "unlock": [],
        "root": str(root),
        "lock": str(tmp_path / "lock"),
        "lock_timeout_s": 5,
        "path": f"{tools}:/usr/bin:/bin",
    }
    folder = tmp_path / "state"
    tree = str(Path(__file__).resolve().parents[2])
    caller = subprocess.Popen(
        [sys.executable, "-c", CALLER, tree, str(folder), json.dumps(request)],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert caller.stdout is not None
    assert caller.stdout.readline() == b"started\n"
    end = time.monotonic() + 20
    while not (folder / "state.json").exists() and time.monotonic() < end:
        time.sleep(0.02)
    os.killpg(caller.pid, 9)
    caller.communicate()
    transaction = module("mopt_transaction")
    assert transaction._is_running(str(folder)), "a second run finds the first one at work"
    while not (folder / "result.json").exists() and time.monotonic() < end:
        time.sleep(0.05)
    answer = json.loads((folder / "result.json").read_text())
    assert (answer["outcome"], answer["failed"]) == ("done", "")
    assert not transaction._is_running(str(folder))


# --- commands on a host ------------------------------------------------------------


def test_a_command_that_takes_too_long_ends_with_its_children(tmp_path):
    """A child that holds the pipe must not keep the run waiting, nor be left behind."""
    host = module("mopt_verify").mopt_host
    pid = tmp_path / "pid"
    began = time.monotonic()
    code, said = host.command(["/bin/sh", "-c", f"sleep 600 & echo $! >{pid}; wait"], 1)
    assert (code, "longer than 1 s" in said) == (124, True)
    assert time.monotonic() - began < 10
    stat = Path(f"/proc/{pid.read_text().strip()}/stat")
    end = time.monotonic() + 10
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z" and time.monotonic() < end:
        time.sleep(0.05)
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_script_without_its_interpreter_is_no_command(tmp_path):
    """A host without a Python has tools that are written in it."""
    script = tmp_path / "grubby"
    script.write_text("#!/usr/bin/no-such-python\n")
    script.chmod(0o755)
    assert module("mopt_verify").mopt_host.command([str(script)])[0] == 127


# --- undo of a link ----------------------------------------------------------------


def test_an_engines_link_goes_back_and_what_it_named_goes(tmp_path):
    """A link to a folder is no folder: the undo takes it away, or lets it point where it did."""
    capsule, venv = module("mopt_capsule"), module("mopt_capsule").mopt_venv
    path = str(tmp_path / "vllm")
    places = [venv.new_place(path, "a" * 64), venv.new_place(path, "b" * 64)]
    for place in places:
        venv.mark(place, state="whole", path=path)
    venv.point_to(path, places[0])
    old = module("mopt_capsule").mopt_undo.file_state(path)
    venv.point_to(path, places[1])
    capsule._restore_file(None, str(tmp_path), path, old)
    assert venv.current(path) == places[0]
    capsule._restore_file(None, str(tmp_path), path, {"kind": "absent"})
    assert not os.path.lexists(path)
    assert Path(places[0]).is_dir()
    venv.sweep(path, keep=("",))
    assert not [p for p in places if Path(p).exists()]


def test_an_engine_that_would_restart_is_reason_to_drain(tmp_path, monkeypatch):
    """Packages are as planned, the wiring is gone: Docker restarts with all that runs in its containers."""
    pending = module("mopt_pending")
    path = tmp_path / "daemon.json"
    one = {"engine": "docker", "mode": "runtime", "config": str(path), "unit": "docker"}
    assert pending._restarts({"containers": [one]})
    path.write_text('{"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}}')
    assert not pending._restarts({"containers": [one]})
    cdi = {"engine": "podman", "mode": "cdi", "config": str(tmp_path / "none"), "unit": ""}
    assert not pending._restarts({"containers": [cdi]}), "nothing restarts for a file"
