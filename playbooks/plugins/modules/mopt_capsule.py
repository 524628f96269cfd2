#!/usr/bin/python
"""The undo capsule: what a host was before a run, with everything that brings it back."""

DOCUMENTATION = r"""
module: mopt_capsule
short_description: Take, close, read and restore the undo capsule of a run
description:
  - C(take) records packages with versions and marks, holds, locks, streams, files, dkms, initramfs and boots, copies the files,
    and the packages that the plan will replace. A capsule of a run that did not end is never overwritten.
  - Records of one's own below C(folder) are no change of the host, so that C(take) and C(finish) are never C(changed).
  - C(plan) says which transaction leads back. C(restore) brings back files, holds and marks. C(compare) says what still differs.
options:
  act: {description: What to do., type: str, required: true, choices: [take, finish, plan, restore, compare]}
  manager: {description: The host's package manager., type: str, required: true, choices: [apt, dnf]}
  folder: {description: Folder of the run., type: path, required: true}
  files: {description: Paths and globs that the run may touch., type: list, elements: str, default: []}
  stages: {description: 'C(mopt_stages), for what will be replaced.', type: list, elements: dict, default: []}
  plan: {description: C(mopt_plan)., type: dict, default: {}}
  pending: {description: Packages will change. A capsule of a run that ended is then put aside., type: bool, default: true}
"""
EXAMPLES = r"""
- name: Before the first change
  mopt_capsule: {act: take, manager: apt, folder: /var/lib/mopt-doctor/runs/x, files: [/etc/modprobe.d/x.conf]}
"""
RETURN = r"""
undo: {description: "exact, same-branch or none", type: str, returned: take and plan}
missing: {description: Packages that cannot be had again, type: list, returned: take and plan}
differences: {description: What is not as it was, type: list, returned: compare}
install: {description: Packages of the way back, type: list, returned: plan}
remove: {description: Names of the way back, type: list, returned: plan}
streams: {description: Module streams of the way back, type: list, returned: plan}
"""

import glob
import json
import os
import pwd
import grp
import shutil
import time

from ansible.module_utils import mopt_apt, mopt_dnf, mopt_host, mopt_undo, mopt_venv
from ansible.module_utils.basic import AnsibleModule


def _paths(folder):
    undo = os.path.join(folder, "undo")
    return undo, os.path.join(undo, "capsule.json"), os.path.join(folder, "finished")


def _read(module, path):
    try:
        with open(path) as file:
            state = json.load(file)
    except (OSError, ValueError) as fault:
        module.fail_json(msg="no capsule to go back to: {0}".format(fault))
    if state.get("schema") != mopt_undo.SCHEMA:
        module.fail_json(msg="`{0}` is {1}, not {2}".format(path, state.get("schema"), mopt_undo.SCHEMA))
    return state


def _write(path, value):
    handle = os.open(path + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump(value, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".part", path)


def _class(missing, manager):
    """`exact` with every old package at hand, else `same-branch` where the repositories have others of the branch."""
    if not missing:
        return "exact"
    for label in missing:
        name, _, version = label.replace("=", " ").partition(" ")
        if not version:
            return "none"
        branch = version.rpartition(":")[2].partition(".")[0] + "."
        argv = ["apt-cache", "madison", name] if manager == "apt" else ["dnf", "-q", "-C", "list", "--showduplicates", name]
        offered = mopt_host.command(argv)[1]
        if not any(w.rpartition(":")[2].startswith(branch) for w in offered.replace("|", " ").split()):
            return "none"
    return "same-branch"


def take(module, p):
    undo, path, finished = _paths(p["folder"])
    if os.path.exists(path) and not (os.path.exists(finished) and p["pending"]):
        state = _read(module, path)
        return {"changed": False, "undo": state["undo"], "missing": state["missing"]}
    if module.check_mode:
        return {"changed": False, "undo": "", "missing": []}
    if os.path.exists(p["folder"]):
        os.rename(p["folder"], p["folder"] + time.strftime(".%Y%m%dT%H%M%S", time.gmtime()))
    os.makedirs(os.path.join(undo, "packages"), mode=0o700)
    for folder in (os.path.dirname(p["folder"]), p["folder"], undo):
        os.chmod(folder, 0o700)
    state = mopt_undo.state_of(p["manager"], p["files"] + mopt_undo.unit_links(p["stages"]))
    _copy_files(state, undo)
    wanted = mopt_undo.affected(p["stages"], state["packages"])
    kept, missing = [], []
    try:
        kept, missing = mopt_undo.manager_of(p["manager"]).keep(wanted, os.path.join(undo, "packages"))
    except (mopt_apt.Failed, mopt_dnf.Failed) as fault:
        missing = [w["name"] + " " + w["before"] for w in wanted]
        state["why_missing"] = fault.text[-500:]
    state.update(undo=_class(missing, p["manager"]), missing=missing, kept=kept, plan=p["plan"])
    state["taken_at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    _write(path, state)
    return {"changed": False, "undo": state["undo"], "missing": missing, "kept": kept}


def _copy_files(state, undo):
    folder = os.path.join(undo, "files")
    for path, row in state["files"].items():
        if row["kind"] == "file":
            target = folder + path
            os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
            shutil.copyfile(path, target)
            os.chmod(target, 0o600)


def finish(module, p):
    _, path, finished = _paths(p["folder"])
    if os.path.exists(path) and not os.path.exists(finished) and not module.check_mode:
        _write(finished, {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "boot_id": mopt_host.boot_id()})
    return {"changed": False}


def _package_files(module, p):
    """`{(name, version): path}` of what the capsule holds, as the packages call themselves."""
    found = {}
    folder = os.path.join(_paths(p["folder"])[0], "packages")
    for path in glob.glob(os.path.join(folder, "*.deb" if p["manager"] == "apt" else "*.rpm")):
        if p["manager"] == "apt":
            code, text = mopt_host.command(["dpkg-deb", "-f", path, "Package", "Version", "Architecture"])
            fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
            name, version, arch = (fields.get(k, "") for k in ("Package", "Version", "Architecture"))
            native = mopt_undo.manager_of("apt").native()
            key = name if arch in (native, "all") else name + ":" + arch
        else:
            code, text = mopt_host.command(
                ["rpm", "-qp", "--nosignature", "--qf", "%{NAME}\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\t%{ARCH}\n", path]
            )
            key, version, arch = (text.strip().splitlines() or [""])[-1].split("\t") if "\t" in text else ("", "", "")
            version = version[2:] if version.startswith("0:") else version
            key = key if arch in (os.uname()[4], "noarch") else key + "." + arch
        if code == 0 and key:
            found[(key, version)] = path
    return found


def plan(module, p):
    _, path, _ = _paths(p["folder"])
    then = _read(module, path)
    now = mopt_undo.state_of(then["manager"], then["patterns"])
    way = mopt_undo.difference(then, now, _package_files(module, p))
    wanted, have = then["streams"], now["streams"]
    way["streams"] = [{"module": m, "stream": wanted.get(m, "")} for m in sorted(set(wanted) | set(have))
                      if wanted.get(m, "") != have.get(m, "")]  # fmt: skip
    way["initramfs"] = any(
        then["files"].get(f, {}) != row for f, row in now["files"].items() if f.startswith("/etc/modprobe.d/")
    )
    before = mopt_undo.differences(then, now)
    return dict(way, changed=bool(before), differences=before, undo=_class(way["missing"], then["manager"]))


def restore(module, p):
    """Files back to their bytes, what was not there away; then holds, marks, and the keys that rpm trusts."""
    undo, path, _ = _paths(p["folder"])
    then = _read(module, path)
    now = mopt_undo.state_of(then["manager"], then["patterns"])
    touched = []
    for name in sorted(set(then["files"]) | set(now["files"])):
        old, new = then["files"].get(name, {"kind": "absent"}), now["files"].get(name, {"kind": "absent"})
        if old != new:
            touched.append(name)
            if not module.check_mode:
                _restore_file(module, undo, name, old)
                # What an engine's link pointed to was made by the run, and is of no use without it.
                mopt_venv.sweep(name, keep=(mopt_venv.current(name),))
    marks = _marks(then, now)
    if then["manager"] == "apt" and not module.check_mode:
        for act, names in marks:
            if names:
                module.run_command(["apt-mark", act] + names, check_rc=True, environ_update={"LC_ALL": "C"})
    elif not module.check_mode:
        for act, names in marks:
            if names and act in ("manual", "auto"):
                what = "install" if act == "manual" else "remove"
                module.run_command(["dnf", "-q", "-y", "-C", "mark", what] + names, environ_update={"LC_ALL": "C"})
    keys = sorted(set(now["keys"]) - set(then["keys"]))
    if keys and not module.check_mode:
        module.run_command(["rpm", "-e"] + keys, check_rc=True, environ_update={"LC_ALL": "C"})
    return {"changed": bool(touched or keys or any(names for _, names in marks)), "files": touched}


def _marks(then, now):
    present = set(then["packages"])
    lost = sorted((set(then["manual"]) - set(now["manual"])) & present)
    gained = sorted((set(now["manual"]) - set(then["manual"])) & present)
    found = [("manual", lost), ("auto", gained)]
    if then["manager"] == "apt":
        found += [("hold", sorted(set(then["held"]) - set(now["held"]))), ("unhold", sorted(set(now["held"]) - set(then["held"])))]
    return found


def _restore_file(module, undo, path, old):
    if old["kind"] == "other":
        return
    if old["kind"] == "absent":
        if os.path.islink(path) or (os.path.lexists(path) and not os.path.isdir(path)):
            os.unlink(path)
        return
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    if old["kind"] == "link":
        if os.path.lexists(path):
            os.unlink(path)
        os.symlink(old["target"], path)
        return
    part = os.path.join(module.tmpdir, "restored")
    shutil.copyfile(undo + "/files" + path, part)
    module.atomic_move(part, path)
    os.chmod(path, int(old["mode"], 8))
    os.chown(path, _number(pwd.getpwnam, old["owner"], 2), _number(grp.getgrnam, old["group"], 2))


def _number(look_up, name, at):
    try:
        return look_up(name)[at]
    except KeyError:
        return int(name) if name.isdigit() else 0


def compare(module, p):
    _, path, _ = _paths(p["folder"])
    then = _read(module, path)
    found = mopt_undo.differences(then, mopt_undo.state_of(then["manager"], then["patterns"]))
    return {"changed": False, "differences": found}


def main():
    acts = {"take": take, "finish": finish, "plan": plan, "restore": restore, "compare": compare}
    spec = {
        "act": {"type": "str", "required": True, "choices": sorted(acts)},
        "manager": {"type": "str", "required": True, "choices": ["apt", "dnf"]},
        "folder": {"type": "path", "required": True},
        "files": {"type": "list", "elements": "str", "default": []},
        "stages": {"type": "list", "elements": "dict", "default": []},
        "plan": {"type": "dict", "default": {}},
        "pending": {"type": "bool", "default": True},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    module.exit_json(**acts[module.params["act"]](module, module.params))


if __name__ == "__main__":
    main()
