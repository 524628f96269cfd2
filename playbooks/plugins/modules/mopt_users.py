#!/usr/bin/python
"""Processes that use the GPUs. Nobody is ended here."""

DOCUMENTATION = r"""
module: mopt_users
short_description: List the processes that have GPU device files open or mapped
options:
  devices: {description: Globs of device files., type: list, elements: str, default: ['/dev/nvidia*', '/dev/nvidia-caps/*']}
  ignore: {description: Names of commands that a later act stops by itself., type: list, elements: str, default: []}
"""
EXAMPLES = r"""
- name: Who is there
  mopt_users:
"""
RETURN = r"""
users: {description: "pid, command, user, devices", type: list, returned: always}
"""

import fnmatch
import os
import pwd

from ansible.module_utils.basic import AnsibleModule

LIMIT = 200


def users(proc, globs, ignore=()):
    """`[{pid, command, user, devices}]` by reading `/proc`. A process that ends meanwhile is none."""
    found = []
    for pid in sorted((int(n) for n in os.listdir(proc) if n.isdigit()), key=int):
        folder = os.path.join(proc, str(pid))
        devices = _open(folder, globs) | _mapped(folder, globs)
        if not devices:
            continue
        command = _text(os.path.join(folder, "comm")).strip()
        # The kernel keeps fifteen letters of a name: `nvidia-persiste`.
        if command in [name[:15] for name in ignore]:
            continue
        found.append({"pid": pid, "command": command, "user": _owner(folder), "devices": sorted(devices)})
    return found[:LIMIT]


def _open(folder, globs):
    found = set()
    try:
        for number in os.listdir(os.path.join(folder, "fd")):
            target = os.readlink(os.path.join(folder, "fd", number))
            if any(fnmatch.fnmatchcase(target, g) for g in globs):
                found.add(target)
    except OSError:
        pass
    return found


def _mapped(folder, globs):
    lines = _text(os.path.join(folder, "maps")).splitlines()
    paths = {line.split(None, 5)[5] for line in lines if " /dev/" in line and len(line.split(None, 5)) == 6}
    return {p for p in paths if any(fnmatch.fnmatchcase(p, g) for g in globs)}


def _text(path):
    try:
        with open(path, errors="replace") as file:
            return file.read(4 << 20)
    except OSError:
        return ""


def _owner(folder):
    try:
        uid = os.stat(folder).st_uid
    except OSError:
        return ""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def main():
    spec = {
        "devices": {"type": "list", "elements": "str", "default": ["/dev/nvidia*", "/dev/nvidia-caps/*"]},
        "ignore": {"type": "list", "elements": "str", "default": []},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    module.exit_json(changed=False, users=users("/proc", module.params["devices"], module.params["ignore"]))


if __name__ == "__main__":
    main()
