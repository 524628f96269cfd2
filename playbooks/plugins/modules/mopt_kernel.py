#!/usr/bin/python
"""Kernel modules: there for each kernel that can boot, loaded at the version on disk, and whether a reboot is due."""

DOCUMENTATION = r"""
module: mopt_kernel
short_description: Build what is missing, load, unload, and compare what is loaded with what is installed
description:
  - Nothing is forced out of the kernel, and nobody is ended for it. A module in use is left, and a reboot is called due.
options:
  kernels: {description: Kernels that must have the module., type: list, elements: str, default: []}
  module: {description: The module., type: str, default: nvidia}
  version: {description: The version that each of them must have; empty is not compared., type: str, default: ''}
  load: {description: Modules to be loaded., type: list, elements: str, default: []}
  unload: {description: 'Modules to be unloaded for a reload, in order.', type: list, elements: str, default: []}
  when: {description: What makes a reboot due., type: str, default: never, choices: [never, if_module_differs, if_kernel_differs, always]}
  reload: {description: Unload and load again where nothing uses them., type: bool, default: false}
  absent: {description: 'The module is to be gone: for the undo of a first installation.', type: bool, default: false}
"""
EXAMPLES = r"""
- name: Modules
  mopt_kernel: {kernels: [6.8.0-60-generic], version: 580.126.20, load: [nvidia], when: if_module_differs}
"""
RETURN = r"""
reboot_due: {description: Whether, type: bool, returned: always}
reason: {description: Why, type: str, returned: always}
on_disk: {description: Version for each kernel, type: dict, returned: always}
"""

import glob
import os
import re

from ansible.module_utils import mopt_host, mopt_sets
from ansible.module_utils.basic import AnsibleModule

BUILD_TIMEOUT_S = 3600


def _make_log(version):
    """The end of the newest build log."""
    logs = glob.glob("/var/lib/dkms/nvidia*/*/build/make.log") + glob.glob("/var/lib/dkms/nvidia*/*/*/*/log/make.log")
    logs = [p for p in logs if not version or version in p]
    newest = max(logs, key=os.path.getmtime) if logs else ""
    return newest, mopt_host.text_of(newest)[-3000:] if newest else ""


def _build(module, kernel):
    """Builds what the package managers' scripts left out: they end well without a module."""
    p = module.params
    code, said = mopt_host.command(["dkms", "autoinstall", "-k", kernel], BUILD_TIMEOUT_S)
    found = mopt_host.module_on_disk(p["module"], kernel)
    if found == p["version"]:
        return
    log, tail = _make_log(p["version"])
    if not os.path.isdir("/lib/modules/%s/build/" % kernel):
        cause, why = "driver.headers_missing", "/lib/modules/%s/build leads nowhere: its headers are not installed" % kernel
    elif code == 127:
        cause, why = "driver.module_not_built_for_running_kernel", "no dkms is there to build it"
    else:
        cause = "driver.dkms_build_failed"
        why = " | ".join(line for line in (tail or said).splitlines() if re.search(r"\berror\b", line, re.I))[-600:]
        why = (why or said.strip()[-600:]) + (" (%s)" % log if log else "")
    if code not in (0, 127):
        cause = mopt_sets.cause_of(said) or cause
    text = "kernel {0} has {1} of module {2}, not {3}: {4}".format(kernel, found or "no file", p["module"], p["version"], why)
    module.fail_json(
        msg=mopt_sets.named(cause, text), cause=cause, said=said.splitlines()[-20:], log=log,
    )  # fmt: skip


def _reload(module):
    """Unloads in order while nothing uses them. True when all are out."""
    for name in module.params["unload"]:
        if not mopt_host.loaded_version(name):
            continue
        users = mopt_host.text_of("/sys/module/%s/refcnt" % name)
        if users not in ("", "0"):
            return False
        if mopt_host.command(["modprobe", "-r", name])[0]:
            return False
    return True


def _load(module):
    """Loads what is not loaded. What the kernel said where it refused."""
    for name in module.params["load"]:
        if mopt_host.loaded_version(name):
            continue
        code, said = mopt_host.command(["modprobe", name])
        if code:
            return said.strip() or "modprobe %s ended with %d" % (name, code)
    return ""


def _due(p, wanted, problem):
    """Why a reboot is due; empty where none is."""
    running, following = mopt_host.running_kernel(), mopt_host.next_kernel()
    if p["when"] == "always":
        return "the stage asks for one"
    if p["when"] in ("if_kernel_differs", "if_module_differs") and p["kernels"] and running not in p["kernels"]:
        return "kernel %s runs, %s is the one that was prepared" % (running, p["kernels"][-1])
    if p["when"] == "if_kernel_differs" and running != following:
        return "kernel %s runs, %s boots next" % (running, following)
    if p["when"] != "if_module_differs":
        return ""
    loaded = mopt_host.loaded_version(p["module"])
    if loaded and loaded != wanted:
        return "module %s %s is loaded, %s" % (p["module"], loaded, (wanted + " is on disk") if wanted else "none is on disk")
    if wanted and p["load"] and not loaded:
        blocker = "nouveau has the GPUs" if mopt_host.loaded_version("nouveau") else problem
        return "module %s could not be loaded: %s" % (p["module"], blocker or "no reason given")
    return ""


def main():
    spec = {
        "kernels": {"type": "list", "elements": "str", "default": []},
        "module": {"type": "str", "default": "nvidia"},
        "version": {"type": "str", "default": ""},
        "load": {"type": "list", "elements": "str", "default": []},
        "unload": {"type": "list", "elements": "str", "default": []},
        "when": {"type": "str", "default": "never",
                 "choices": ["never", "if_module_differs", "if_kernel_differs", "always"]},
        "reload": {"type": "bool", "default": False},
        "absent": {"type": "bool", "default": False},
    }  # fmt: skip
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    p = module.params
    kernels = p["kernels"] or [mopt_host.running_kernel()]
    changed = False
    for kernel in kernels if p["version"] else ():
        if mopt_host.module_on_disk(p["module"], kernel) != p["version"]:
            changed = True
            if not module.check_mode:
                _build(module, kernel)
    wanted = "" if p["absent"] else p["version"] or mopt_host.module_on_disk(p["module"], mopt_host.running_kernel())
    before = mopt_host.loaded_version(p["module"])
    problem = ""
    if module.check_mode:
        changed = changed or bool(p["load"] and not before and wanted)
    else:
        if before and before != wanted and p["reload"]:
            _reload(module)
        if p["load"] and wanted:
            problem = _load(module)
            changed = changed or before != mopt_host.loaded_version(p["module"])
    if "Key was rejected" in problem or "Required key not available" in problem:
        cause = "driver.module_signature_rejected"
        said = "the kernel refuses module {0}: {1}. Secure Boot stays on: enrol the key that signed it (`mokutil --import`, "
        said += "then reboot and confirm at the console), or plan with origin `canonical`."
        module.fail_json(msg=mopt_sets.named(cause, said.format(p["module"], problem)), cause=cause)
    reason = _due(p, wanted, problem)
    module.exit_json(
        changed=changed, reboot_due=bool(reason), reason=reason, loaded=mopt_host.loaded_version(p["module"]),
        on_disk={k: mopt_host.module_on_disk(p["module"], k) for k in kernels}, kernel=mopt_host.running_kernel(),
    )  # fmt: skip


if __name__ == "__main__":
    main()
