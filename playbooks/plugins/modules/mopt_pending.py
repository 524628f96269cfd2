#!/usr/bin/python
"""Which stages still have something to do with packages, and whether that reaches who uses the GPUs."""

DOCUMENTATION = r"""
module: mopt_pending
short_description: Compare the stages of a plan with what is installed, without a package manager's solver
options:
  manager: {description: The host's package manager., type: str, required: true, choices: [apt, dnf]}
  stages: {description: C(mopt_stages)., type: list, elements: dict, required: true}
"""
EXAMPLES = r"""
- name: What is left to do
  mopt_pending: {manager: apt, stages: "{{ mopt_stages }}"}
"""
RETURN = r"""
stages: {description: Stages whose packages are not as wanted, type: list, returned: always}
reloads: {description: Stages whose module is loaded at another version, type: list, returned: always}
acting: {description: Stages that have anything to do at all, type: list, returned: always}
disruptive: {description: Whether modules or services that use GPUs will be touched, type: bool, returned: always}
broken: {description: Packages left half done, type: dict, returned: always}
foreign: {description: Those of them that are no part of the plan, type: list, returned: always}
pci_ids: {description: "NVIDIA's devices on the bus, vendor:device", type: list, returned: always}
"""

import glob
import os

from ansible.module_utils import mopt_apt, mopt_dnf, mopt_host, mopt_sets, mopt_wiring, mopt_worker
from ansible.module_utils.basic import AnsibleModule

#: Their packages restart services or replace what a running process has open.
DISRUPTIVE = ("driver", "fabric", "container", "dcgm")


def main():
    spec = {
        "manager": {"type": "str", "required": True, "choices": ["apt", "dnf"]},
        "stages": {"type": "list", "elements": "dict", "required": True},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    p = module.params
    manager = mopt_apt.Apt() if p["manager"] == "apt" else mopt_dnf.Dnf()
    present, broken = manager.present(), mopt_worker._broken(manager)
    found, reloads, disruptive = [], [], False
    for stage in p["stages"]:
        is_pending = any(_is_open(one, present, broken, p["manager"]) for one in stage.get("packages") or ())
        kernel = stage.get("kernel") or {}
        loaded = mopt_host.loaded_version(kernel.get("module", "nvidia")) if kernel.get("module_version") else ""
        if is_pending:
            found.append(stage["id"])
        if loaded and loaded != kernel["module_version"]:
            reloads.append(stage["id"])
        if (is_pending and stage["id"] in DISRUPTIVE) or stage["id"] in reloads or _restarts(stage):
            disruptive = True
    module.exit_json(
        changed=False, stages=found, reloads=reloads, acting=_acting(p["stages"]), disruptive=disruptive, broken=broken,
        foreign=_foreign(broken, p["stages"]),
        pci_ids=_pci_ids(),
    )  # fmt: skip


def _restarts(stage):
    """An engine that is wired anew restarts, and with it what runs in its containers."""
    engines = [one for one in stage.get("containers") or () if one.get("unit")]
    return not all(mopt_wiring.is_wired(one) for one in engines)


def _acting(stages):
    """Stages that are more than their name."""
    found = []
    for stage in stages:
        acts = dict(stage)
        services = acts.pop("services", None) or {}
        reboot = acts.pop("reboot", None) or {}
        filled = [k for k, v in acts.items() if v and k not in ("id", "why")]
        if filled or any(services.values()) or reboot.get("when", "never") != "never":
            found.append(stage["id"])
    return found


def _pci_ids():
    found = set()
    for path in glob.glob("/sys/bus/pci/devices/*/vendor"):
        if mopt_host.text_of(path).lower() == "0x10de":
            device = mopt_host.text_of(os.path.join(os.path.dirname(path), "device")).lower()
            found.add("10de:" + device[2:])
    return sorted(found)


def _foreign(broken, stages):
    """Half-done packages that no transaction of the plan names: apt would go on with them, too."""
    mine = [one for stage in stages for one in stage.get("packages") or ()]
    names = {w["name"] for one in mine for w in one["install"]} | {n for one in mine for n in one["remove"]}
    globs = [g for one in mine for g in one.get("extra_allowed", ())]
    waits = ("awaits triggers", "has triggers pending")
    return sorted(n for n, what in broken.items() if n not in names and what not in waits and not mopt_sets._fits(n, globs))


def _is_open(one, present, broken, kind):
    request = {"install": one["install"], "remove": one["remove"], "manager": kind, "extra_allowed": one.get("extra_allowed", ())}
    wants, leaves = mopt_sets.unmet(request["install"], request["remove"], present)
    return bool(wants or leaves or mopt_worker._ours(broken, request))


if __name__ == "__main__":
    main()
