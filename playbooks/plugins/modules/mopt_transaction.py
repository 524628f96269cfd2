#!/usr/bin/python
"""One package transaction: simulated, held against the plan, then carried out apart from the connection."""

DOCUMENTATION = r"""
module: mopt_transaction
short_description: Install, remove and downgrade packages in one transaction that is exactly the planned one
description:
  - Simulates first and compares with what was asked; fails when the package manager would do anything else.
  - The run itself is a unit of systemd, or a session of its own, so that a lost connection does not stop it.
  - In check mode the simulation is the answer.
options:
  manager: {description: The host's package manager., type: str, required: true, choices: [apt, dnf]}
  install:
    description: Packages and their exact versions; an empty version takes what is there, else what is offered.
    type: list
    elements: dict
    default: []
  remove: {description: Names that go in the same transaction; with apt they are purged., type: list, elements: str, default: []}
  allow_downgrade: {description: Whether versions may fall., type: bool, default: false}
  extra_allowed: {description: Globs of names that dependency solving may add or move., type: list, elements: str, default: []}
  unlock: {description: Names whose hold or version lock is lifted when they change., type: list, elements: str, default: []}
  weak: {description: Take recommended packages too., type: bool, default: false}
  keep_in: {description: Folder for the packages that are taken away., type: path, default: ''}
  foreseen:
    description: 'Check mode only. Repositories and preferences that are not there yet: C(repositories), C(pins), C(proxies).'
    type: dict
    default: {}
  refresh: {description: Only read the package lists anew. Never done in check mode., type: bool, default: false}
  earlier:
    description: Transactions of the plan that come before. In check mode what they bring and take counts as allowed.
    type: list
    elements: dict
    default: []
  streams: {description: Check mode only. Module streams that are taken as enabled., type: list, elements: dict, default: []}
  lock_timeout_s: {description: How long to wait for the package manager's lock., type: int, default: 300}
  timeout_s: {description: How long to wait for the run. It goes on afterwards., type: int, default: 5400}
  state_in: {description: Folder of requests and results., type: path, default: /var/lib/mopt-doctor/transactions}
"""
EXAMPLES = r"""
- name: The whole set at one version
  mopt_transaction:
    manager: apt
    install: [{name: libnccl2, version: 2.28.3-1+cuda13.0}, {name: libnccl-dev, version: 2.28.3-1+cuda13.0}]
"""
RETURN = r"""
changes: {description: "What changed, or would: name, before, after", type: list, returned: always}
outcome: {description: "done, unchanged or half-way", type: str, returned: after a run}
cause: {description: "What mopt-doctor explain calls the fault", type: str, returned: on failure}
broken: {description: Packages left half done, type: dict, returned: always}
kept: {description: Packages copied to keep_in, type: list, returned: after a run}
missing: {description: Packages that cannot be had for an undo, type: list, returned: after a run}
"""

import hashlib
import json
import os
import shutil
import subprocess
import time

from ansible.module_utils import mopt_apt, mopt_dnf, mopt_foresee, mopt_sets, mopt_worker
from ansible.module_utils.basic import AnsibleModule

#: dnf's Python is the one of its own command, whatever Python runs this module.
PYTHONS = {
    "apt": ("/usr/bin/python3",),
    "dnf": ("/usr/libexec/platform-python", "/usr/bin/python3"),
}
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def _python(manager):
    return next((p for p in PYTHONS[manager] if os.access(p, os.X_OK)), None)


def _prepare(folder, request):
    """The request and the worker's sources, for nobody else's eyes or hands."""
    worker = os.path.join(folder, "worker")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(worker, mode=0o700)
    os.chmod(folder, 0o700)
    for module in (mopt_apt, mopt_dnf, mopt_foresee, mopt_sets, mopt_worker):
        name = module.__name__.rpartition(".")[2]
        target = "__main__.py" if module is mopt_worker else name + ".py"
        with open(os.path.join(worker, target), "w") as file:
            file.write(module.__loader__.get_source(module.__name__))
    with open(os.path.join(folder, "request.json"), "w") as file:
        json.dump(request, file)


def _read(path):
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def _is_running(folder):
    state = _read(os.path.join(folder, "state.json"))
    if _read(os.path.join(folder, "result.json")) is not None or not state:
        return False
    return mopt_worker.start_of(state["pid"]) == state["start"] != ""


def _argv(python, folder, act):
    return [python, "-I", os.path.join(folder, "worker"), act, folder]


def _environment():
    return {"PATH": PATH, "LC_ALL": "C", "HOME": "/root"}


def _asked(module, python, folder, act):
    done = subprocess.run(
        _argv(python, folder, act),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=_environment(),
    )  # fmt: skip
    answer = _read(os.path.join(folder, act + "d.json"))
    if answer is None:
        module.fail_json(msg="`" + act + "` ended without an answer: " + done.stdout.decode("utf-8", "replace")[-2000:])
    return answer


def _start(python, folder, ident):
    """As a unit where systemd runs, so that neither the session nor sshd takes it along; else a session of its own."""
    argv = _argv(python, folder, "run")
    if os.path.isdir("/run/systemd/system") and shutil.which("systemd-run", path=PATH):
        unit = ["systemd-run", "--quiet", "--collect", "--no-block", "--unit=mopt-transaction-" + ident]
        unit += ["--description=mopt-doctor package transaction", "--property=KillMode=process"]
        if subprocess.run(unit + argv, stdin=subprocess.DEVNULL, env=_environment()).returncode == 0:
            return
    subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=_environment(), start_new_session=True, close_fds=True,
    )  # fmt: skip


def _wait(module, folder, timeout_s):
    began = time.time()
    while time.time() - began < timeout_s:
        answer = _read(os.path.join(folder, "result.json"))
        if answer is not None:
            return answer
        # A worker that has not said who it is yet gets half a minute.
        if not _is_running(folder) and time.time() - began > 30:
            answer = _read(os.path.join(folder, "result.json"))
            if answer is None:
                cause = "prov.packages_half_configured"
                said = "the package run of {0} ended without a result: it was killed. Run the playbook again: it "
                said += "looks at what is installed and goes on from there."
                module.fail_json(msg=mopt_sets.named(cause, said.format(folder)), cause=cause)
            return answer
        time.sleep(0.3)
    module.fail_json(
        msg="the package run goes on after {0} s; its log is {1}. Run the playbook again: it waits for this run.".format(
            timeout_s, os.path.join(folder, "run.log")
        )
    )


def _fail(module, what, text, **more):
    """One sentence, what the manager said at its end, the cause."""
    lines = [line for line in text.splitlines() if line.strip()]
    marked = [line for line in lines if line.startswith(("E:", "Error", "error", "dpkg: error", "would "))]
    cause = more.pop("cause", "") or mopt_sets.cause_of(text)
    module.fail_json(
        msg=mopt_sets.named(cause, "{0}: {1}".format(what, " | ".join((marked or lines)[-6:])[:1500])),
        cause=cause,
        said=lines[-40:],
        **more
    )


def _judged(module, answer, parameters):
    """Ends the module unless the simulation is the plan and there is something to do."""
    if answer["failed"]:
        _fail(module, "the package manager refuses this transaction, nothing was changed", answer["failed"],
              outcome="unchanged", broken=answer["broken"], changes=[])  # fmt: skip
    if answer["deviations"]:
        cause = "prov.package_set_differs"
        said = "plan and simulation differ, nothing was changed: " + "; ".join(answer["deviations"])[:3000]
        module.fail_json(
            msg=mopt_sets.named(cause, said), cause=cause, deviations=answer["deviations"], changes=answer["changes"],
            outcome="unchanged", broken=answer["broken"],
        )  # fmt: skip
    todo = bool(answer["changes"] or answer.get("finishes"))
    if not todo or module.check_mode:
        module.exit_json(changed=todo, changes=answer["changes"], broken=answer["broken"],
                         finishes=answer.get("finishes", []))  # fmt: skip


def _foresee(request, earlier):
    """What earlier transactions of the plan do is not done yet: this simulation does it, too, and does not tell it again."""
    mine = {w["name"] for w in request["install"]}
    before = [w for one in earlier for w in one["install"] if w["name"] not in mine]
    request["with"] = before
    request["also_gone"] = sorted({n for one in earlier for n in one["remove"]} - mine)
    for one in earlier:
        request["extra_allowed"] = request["extra_allowed"] + list(one["extra_allowed"])
        request["allow_downgrade"] = request["allow_downgrade"] or one["allow_downgrade"]
    if earlier and request["manager"] == "apt":
        request["prefer"] = sorted({w["version"] for w in request["install"] + before if w.get("version")})


def _refresh(module, python, request):
    """The lists anew, or the reason why they cannot be had."""
    if module.check_mode:
        module.exit_json(changed=False, changes=[], broken={})
    folder = os.path.join(module.tmpdir, "refresh")
    _prepare(folder, request)
    answer = _asked(module, python, folder, "update")
    if answer["failed"]:
        _fail(module, "the package lists cannot be read anew", answer["failed"], changes=[], broken={}, outcome="unchanged")
    module.exit_json(changed=False, changes=[], broken={})


def main():
    spec = {
        "manager": {"type": "str", "required": True, "choices": ["apt", "dnf"]},
        "install": {"type": "list", "elements": "dict", "default": []},
        "remove": {"type": "list", "elements": "str", "default": []},
        "allow_downgrade": {"type": "bool", "default": False},
        "extra_allowed": {"type": "list", "elements": "str", "default": []},
        "unlock": {"type": "list", "elements": "str", "default": []},
        "weak": {"type": "bool", "default": False},
        "keep_in": {"type": "path", "default": ""},
        "foreseen": {"type": "dict", "default": {}},
        "refresh": {"type": "bool", "default": False},
        "earlier": {"type": "list", "elements": "dict", "default": []},
        "streams": {"type": "list", "elements": "dict", "default": []},
        "lock_timeout_s": {"type": "int", "default": 300},
        "timeout_s": {"type": "int", "default": 5400},
        "state_in": {"type": "path", "default": "/var/lib/mopt-doctor/transactions"},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    parameters = module.params
    python = _python(parameters["manager"])
    if python is None:
        module.fail_json(msg="no system Python for {0} among {1}".format(parameters["manager"], PYTHONS[parameters["manager"]]))
    fields = ("manager", "install", "remove", "allow_downgrade", "extra_allowed", "unlock", "weak", "keep_in", "lock_timeout_s")
    request = {name: parameters[name] for name in fields}
    request["may_update"] = not module.check_mode
    if module.check_mode:
        _foresee(request, parameters["earlier"])
        request["streams"] = parameters["streams"]
    if parameters["refresh"]:
        _refresh(module, python, request)
    ident = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:12]
    folder = os.path.join(parameters["state_in"], ident)
    if module.check_mode:
        folder = os.path.join(module.tmpdir, "simulation")
        request["prefer_in"] = os.path.join(folder, "preferences")
        request["foreseen"], request["foreseen_in"] = parameters["foreseen"], os.path.join(folder, "foreseen")
    if module.check_mode or not _is_running(folder):
        _prepare(folder, request)
        _judged(module, _asked(module, python, folder, "simulate"), parameters)
        _start(python, folder, ident)
    answer = _wait(module, folder, parameters["timeout_s"])
    more = {k: answer.get(k) for k in ("changes", "broken", "kept", "missing", "outcome")}
    if answer["failed"]:
        _fail(module, "the package transaction ended {0}".format(answer["outcome"]), answer["failed"],
              changed=bool(answer["changes"]), log=os.path.join(folder, "run.log"), **more)  # fmt: skip
    module.exit_json(changed=bool(answer["changes"]), **more)


if __name__ == "__main__":
    main()
