#!/usr/bin/python
"""Installed packages held at their version: dpkg's hold, dnf's version lock list."""

DOCUMENTATION = r"""
module: mopt_hold
short_description: Hold packages, or set the whole list of what is held
options:
  manager: {description: The host's package manager., type: str, required: true, choices: [apt, dnf]}
  names: {description: Names to be held., type: list, elements: str, default: []}
  exactly:
    description: The holds (apt) or the lines of the version lock list (dnf) as they were; everything else is lifted.
    type: list
    elements: str
"""
EXAMPLES = r"""
- name: Hold
  mopt_hold: {manager: apt, names: [libnccl2]}
"""
RETURN = r"""
held: {description: What is held now, type: list, returned: always}
"""

import os

from ansible.module_utils import mopt_apt, mopt_dnf
from ansible.module_utils.basic import AnsibleModule

LIST = "/" + mopt_dnf.VERSIONLOCK
ENABLES = "/etc/dnf/plugins/versionlock.conf"


def _apt(module):
    p = module.params
    manager = mopt_apt.Apt()
    present = manager.present()
    before = manager.held()
    if p["exactly"] is None:
        wanted = before | set(p["names"])
        absent = sorted(n for n in p["names"] if n not in present)
        if absent and not module.check_mode:
            module.fail_json(msg="cannot be held, since they are not installed: " + ", ".join(absent))
    else:
        wanted = {n for n in p["exactly"] if n in present}
    if not module.check_mode:
        for act, names in (("unhold", before - wanted), ("hold", wanted - before)):
            if names:
                module.run_command(["apt-mark", act] + sorted(names), check_rc=True, environ_update={"LC_ALL": "C"})
    return before != wanted, sorted(wanted)


def _dnf(module):
    p = module.params
    manager = mopt_dnf.Dnf()
    before = manager.locks()
    if p["exactly"] is not None:
        wanted = list(p["exactly"])
    else:
        present = manager.present()
        wanted = [line for line in before if not mopt_dnf._locks(line, p["names"])]
        for name in p["names"]:
            # With the epoch always, as `dnf versionlock add` writes it.
            wanted += ["%s-%s.*" % (name, v if ":" in v else "0:" + v) for v in present.get(name, ())]
        absent = sorted(n for n in p["names"] if n not in present)
        if absent and not module.check_mode:
            module.fail_json(msg="cannot be locked, since they are not installed: " + ", ".join(absent))
        if absent and module.check_mode:
            # What the plan installs comes before its lock.
            return True, sorted(wanted + absent)
    changed = sorted(wanted) != sorted(before)
    if changed and wanted and not os.path.exists(ENABLES):
        module.fail_json(msg="`{0}` is missing: without dnf's versionlock plugin the list has no effect".format(ENABLES))
    if changed and not module.check_mode:
        os.makedirs(os.path.dirname(LIST), exist_ok=True)
        with open(LIST + ".mopt", "w") as file:
            file.write("".join(line + "\n" for line in wanted))
        module.atomic_move(LIST + ".mopt", LIST)
        os.chmod(LIST, 0o644)
    return changed, wanted


def main():
    spec = {
        "manager": {"type": "str", "required": True, "choices": ["apt", "dnf"]},
        "names": {"type": "list", "elements": "str", "default": []},
        "exactly": {"type": "list", "elements": "str"},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    changed, held = (_apt if module.params["manager"] == "apt" else _dnf)(module)
    module.exit_json(changed=changed, held=held)


if __name__ == "__main__":
    main()
