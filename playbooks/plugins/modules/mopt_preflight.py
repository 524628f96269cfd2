#!/usr/bin/python
"""What on this host stops every change: somebody else's driver, or a machine that is somebody else's."""

DOCUMENTATION = r"""
module: mopt_preflight
short_description: Look for the signs of a plan that refuse a host
description:
  - Reads files, the package database and, for a vGPU guest, what C(nvidia-smi) says of itself. Changes nothing.
options:
  signs: {description: 'C(mopt_signs): kind, subjects, versions, vendors and the refusal.', type: list, elements: dict, required: true}
"""
EXAMPLES = r"""
- name: Whose host is this
  mopt_preflight: {signs: "{{ mopt_signs }}"}
"""
RETURN = r"""
refusals: {description: "cause, text, way_out and what was found, one a cause", type: list, returned: always}
"""

import fnmatch
import glob
import os
import re

from ansible.module_utils import mopt_host
from ansible.module_utils.basic import AnsibleModule

#: Files that are asked for their owner; a driver has one libcuda a folder.
FILES_MAX = 20
SMI_TIMEOUT_S = 20


def packages():
    """`[(name, version, vendor)]` of whichever database is here."""
    dpkg = ["dpkg-query", "-W", "-f", "${Package}\\t${Version}\\t${Maintainer}\\t${db:Status-Status}\\n"]
    rpm = ["rpm", "-qa", "--qf", "%{NAME}\\t%{VERSION}-%{RELEASE}\\t%{VENDOR}\\tinstalled\\n"]
    found = []
    for argv in (dpkg, rpm):
        code, text = mopt_host.command(argv)
        rows = [line.split("\t") for line in text.splitlines()] if code == 0 else []
        found += [(r[0], r[1], r[2].lower()) for r in rows if len(r) == 4 and r[3] == "installed"]
    return found


def fits(name, globs):
    if any(g.startswith("!") and fnmatch.fnmatchcase(name, g[1:]) for g in globs):
        return False
    return any(fnmatch.fnmatchcase(name, g) for g in globs)


def _path(sign, _known):
    return next((path for pattern in sign["subjects"] for path in sorted(glob.glob(pattern))), "")


def _kernel(sign, _known):
    release = mopt_host.running_kernel().lower()
    return release if any(word in release for word in sign["subjects"]) else ""


def _package(sign, known):
    for name, version, vendor in sorted(known()):
        if not fits(name, sign["subjects"]):
            continue
        if sign.get("versions") and not fits(version, sign["versions"]):
            continue
        if sign.get("vendors") and not any(word in vendor for word in sign["vendors"]):
            continue
        return "{0} {1}".format(name, version)
    return ""


def _unowned(sign, _known):
    files = [p for pattern in sign["subjects"] for p in sorted(glob.glob(pattern)) if os.path.isfile(p) and not os.path.islink(p)]
    return next((path for path in files[:FILES_MAX] if not is_owned(path)), "")


def is_owned(path):
    """Whether a package has this file; true where neither database can be asked: what nobody read refuses nothing."""
    # Where /lib is a link to /usr/lib a package may name the file either way.
    names = [path] + ([path[len("/usr") :]] if path.startswith("/usr/lib") else [])
    asked = [mopt_host.command(["dpkg-query", "-S"] + [n])[0] for n in names] + [mopt_host.command(["rpm", "-qf"] + [n])[0] for n in names]
    return 0 in asked or all(code in (124, 127) for code in asked)


def _vgpu_guest(_sign, _known):
    """A hang of a wedged GPU is no sign."""
    code, text = mopt_host.command(["nvidia-smi", "-q"], SMI_TIMEOUT_S)
    mode = re.search(r"^\s*Virtualization Mode\s*:\s*(\S[^\n]*)$", text, re.MULTILINE) if code == 0 else None
    return "nvidia-smi: Virtualization Mode VGPU" if mode and mode.group(1).strip() == "VGPU" else ""


LOOKS = {"path": _path, "kernel": _kernel, "package": _package, "unowned": _unowned, "vgpu_guest": _vgpu_guest}


def main():
    spec = {"signs": {"type": "list", "elements": "dict", "required": True}}
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    kept = []

    def known():
        if not kept:
            kept.append(packages())
        return kept[0]

    found = {}
    for sign in module.params["signs"]:
        if sign["kind"] not in LOOKS:
            module.fail_json(msg="`{0}` is a sign that this module does not know".format(sign["kind"]))
        what = LOOKS[sign["kind"]](sign, known)
        if what and sign["refusal"]["text"] not in found:
            found[sign["refusal"]["text"]] = dict(sign["refusal"], found=what)
    module.exit_json(changed=False, refusals=[found[text] for text in sorted(found)])


if __name__ == "__main__":
    main()
