#!/usr/bin/python
"""What must hold at the end of a stage, looked at on the host."""

DOCUMENTATION = r"""
module: mopt_verify
short_description: Check files, package versions, modules, services and imports against the plan
options:
  manager: {description: The host's package manager., type: str, required: true, choices: [apt, dnf]}
  checks: {description: 'Each with kind, subject, want and why.', type: list, elements: dict, required: true}
  wait_s: {description: How long services may take to become active., type: int, default: 20}
"""
EXAMPLES = r"""
- name: Loaded is installed
  mopt_verify: {manager: apt, checks: [{kind: module_loaded, subject: nvidia, want: 580.126.20, why: one version}]}
"""
RETURN = r"""
failed_checks: {description: "kind, subject, want, found, why of each that does not hold", type: list, returned: always}
"""

import json
import os
import time

from ansible.module_utils import mopt_apt, mopt_dnf, mopt_host, mopt_sets
from ansible.module_utils.basic import AnsibleModule

IMPORT_TIMEOUT_S = 600


def _packages(kind):
    return (mopt_apt.Apt() if kind == "apt" else mopt_dnf.Dnf()).present()


def _json_key(subject):
    path, _, keys = subject.partition(":")
    try:
        value = json.loads(mopt_host.text_of(path, 4 << 20))
    except ValueError:
        return "not readable as JSON"
    for key in keys.split("."):
        if not isinstance(value, dict) or key not in value:
            return ""
        value = value[key]
    return value if isinstance(value, str) else json.dumps(value)


def _service(name, wait_s):
    end = time.time() + wait_s
    while True:
        state = mopt_host.command(["systemctl", "is-active", name])[1].strip()
        if state == "active" or time.time() > end:
            return state or "unknown"
        time.sleep(0.5)


def _import(path, name):
    python = os.path.join(path, "bin", "python")
    if not os.access(python, os.X_OK):
        return "no " + python
    code, said = mopt_host.command([python, "-I", "-c", "import sys; __import__(sys.argv[1])", name], IMPORT_TIMEOUT_S)
    return name if code == 0 else said.strip()[-500:] or "exit code %d" % code


def _found(check, packages, wait_s):
    """`(holds, what was found)`."""
    kind, subject, want = check["kind"], check["subject"], check.get("want") or ""
    if kind == "file_equals":
        found = mopt_host.text_of(subject)
        return found == want, found or "no such file"
    if kind == "file_exists":
        return os.path.exists(subject), "there" if os.path.exists(subject) else "missing"
    if kind == "package_version":
        versions = packages().get(subject, ())
        return mopt_sets.is_met({"name": subject, "version": want}, packages()), " ".join(versions) or "not installed"
    if kind == "module_on_disk":
        found = mopt_host.module_on_disk("nvidia", subject)
        return bool(found) and found == (want or found), found or "no module file"
    if kind in ("module_loaded", "not_loaded"):
        found = mopt_host.loaded_version(subject)
        holds = not found if kind == "not_loaded" else bool(found) and found == (want or found)
        return holds, found or "not loaded"
    if kind == "service_active":
        found = _service(subject, wait_s)
        return found == "active", found
    if kind == "json_key":
        found = _json_key(subject)
        return bool(found) and found == (want or found), found or "no such key"
    if kind == "python_import":
        found = _import(subject, want)
        return found == want, found
    return False, "a kind of check that this module does not know"


def main():
    spec = {
        "manager": {"type": "str", "required": True, "choices": ["apt", "dnf"]},
        "checks": {"type": "list", "elements": "dict", "required": True},
        "wait_s": {"type": "int", "default": 20},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    p = module.params
    kept = {}

    def packages():
        if not kept:
            kept.update(_packages(p["manager"]))
        return kept

    failed = []
    for check in p["checks"]:
        holds, found = _found(check, packages, p["wait_s"])
        if not holds:
            failed.append(dict(check, found=found))
    if failed:
        lines = ["{kind} {subject}: want {w}, found {found}".format(w=c.get("want") or "so", **c) for c in failed]
        module.fail_json(msg="does not hold: " + "; ".join(lines)[:3000], failed_checks=failed)
    module.exit_json(changed=False, failed_checks=[])


if __name__ == "__main__":
    main()
