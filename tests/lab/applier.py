"""`mopt-doctor` on a lab host as an admin has it who changes hosts: an environment of its own, with Ansible in it."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.lab.authority import ensure_authority
from tests.lab.base import run
from tests.lab.hosts import Host
from tests.lab.namespace import is_inside
from tests.lab.places import RUN, TREE

__all__ = ["doctor", "ended", "install", "journal", "plan_on", "run_name"]

PLACE = "opt/mopt-doctor"
SCRIPTS = {
    "mopt-doctor": "doctor.cli:program",
    "ansible-playbook": "ansible.cli.playbook:main",
    "ansible": "ansible.cli.adhoc:main",
}
#: What the extra `provision` brings, and what that needs.
NEEDS = (
    "msgspec", "packaging", "yaml", "_yaml", "pynvml.py", "distro", "psutil",
    "ansible", "ansible_runner", "pexpect", "ptyprocess", "jinja2", "markupsafe", "daemon", "lockfile",
    "cryptography", "cffi", "_cffi_backend.*", "pycparser", "resolvelib",
    "ansible_core-*.dist-info", "ansible_runner-*.dist-info", "jinja2-*.dist-info", "cryptography-*.dist-info",
)  # fmt: skip
#: Collections and network plugins that no role uses: half of its size.
UNWANTED = ("__pycache__", "edition.json", "ansible_test", "galaxy")


def install(host: Host) -> None:
    """The environment below /opt, once."""
    if not (host.root / PLACE).exists():
        run("cp", "-a", _snapshot(), host.root / PLACE)
        (host.root / "usr/local/bin").mkdir(parents=True, exist_ok=True)
        (host.root / "usr/local/bin/mopt-doctor").unlink(missing_ok=True)
        (host.root / "usr/local/bin/mopt-doctor").symlink_to(f"/{PLACE}/bin/mopt-doctor")


@functools.cache
def _snapshot() -> Path:
    """A virtual environment of the guest's Python; signing keys of the matrix are the lab's."""
    scratch = Path(tempfile.mkdtemp(prefix="applier-", dir=RUN if is_inside() else None))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    target = scratch / "product"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    packages = target / f"lib/python{version}/site-packages"
    packages.mkdir(parents=True)
    (target / "bin").mkdir()
    for name in ("python", "python3"):
        (target / "bin" / name).symlink_to("/usr/bin/python3")
    (target / "pyvenv.cfg").write_text(
        f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {version}\n"
    )
    for name, entry in SCRIPTS.items():
        module, _, function = entry.partition(":")
        script = target / "bin" / name
        script.write_text(
            f"#!/{PLACE}/bin/python -I\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        )
        script.chmod(0o755)
    unwanted = shutil.ignore_patterns(*UNWANTED)
    for name in ("doctor", "optimize", "matrices", "playbooks"):
        shutil.copytree(TREE / name, packages / name, ignore=unwanted, symlinks=True)
    site = Path(sysconfig.get_path("purelib"))
    for pattern in NEEDS:
        for source in site.glob(pattern):
            if source.is_dir():
                shutil.copytree(
                    source,
                    packages / source.name,
                    ignore=shutil.ignore_patterns("__pycache__", "ansible_test"),
                )
            else:
                shutil.copy(source, packages / source.name)
    for path in sorted((packages / "matrices").rglob("*.yaml")):
        text = path.read_text()
        for true, own in sorted(ensure_authority().replacements().items(), key=lambda pair: -len(pair[0])):
            text = text.replace(true, own)
        path.write_text(text)
    compile_matrix = (
        "import sys; sys.path.insert(0, '.'); from pathlib import Path; from doctor.edition.build import build, write; "
        "write(build(Path('matrices')), Path('matrices/edition.json'))"
    )
    run(sys.executable, "-IB", "-c", compile_matrix, cwd=packages)
    run(
        sys.executable, "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash", packages
    )
    return target


def doctor(host: Host, arguments: str, *codes: int) -> subprocess.CompletedProcess[str]:
    """`mopt-doctor ARGUMENTS` as root on the host. Any other exit code is shown whole."""
    install(host)
    done = host.ssh(f"mopt-doctor {arguments}", check=False)
    if codes and done.returncode not in codes:
        raise AssertionError(
            f"`mopt-doctor {arguments}` ended with {done.returncode}:\n{done.stdout[-4000:]}\n{done.stderr[-6000:]}"
        )
    return done


def plan_on(host: Host, goal: str, arguments: str = "", *codes: int) -> dict[str, Any]:
    """A plan made on the host, in /root/plan.json there."""
    doctor(host, f"plan --goal {goal} -o /root/plan.json {arguments}", *(codes or (0,)))
    found: dict[str, Any] = json.loads(host.read("root/plan.json"))
    return found


def run_name(host: Host) -> str:
    """The newest run that is kept on the host."""
    folder = host.root / "var/lib/mopt-doctor/journals"
    found = sorted(
        (p for p in folder.iterdir() if (p / "order.json").exists()),
        key=lambda p: (p / "order.json").stat().st_mtime,
    )
    return found[-1].name


def journal(host: Host, name: str) -> list[dict[str, Any]]:
    """Entries of a run; a line that was cut is passed over."""
    path = host.root / "var/lib/mopt-doctor/journals" / name / "journal.jsonl"
    lines = path.read_bytes().split(b"\n") if path.exists() else ()
    return [json.loads(line) for line in lines if line.endswith(b"}")]


def ended(host: Host, name: str, *, after: int = 0, wait_s: float = 600) -> dict[str, Any]:
    """The end of a run, once more than `after` of its acts have ended; over reboots, and without asking the host."""
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        closed = [row for row in journal(host, name) if row["kind"] == "closed"]
        if len(closed) > after:
            return closed[-1]
        time.sleep(0.5)
    rows = journal(host, name)
    raise AssertionError(f"run {name} did not end in {wait_s} s; its last entries: {rows[-8:]}")
