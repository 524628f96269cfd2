#!/usr/bin/python
"""A file with its whole content, keys merged into one, or its absence; checked before it takes the place of the old."""

DOCUMENTATION = r"""
module: mopt_file
short_description: Write a file whole, merge keys into it, or take it away
description: SELinux contexts are those of the path's own rule. What does not parse is never written, nor merged into.
options:
  path: {description: Absolute path., type: path, required: true}
  content: {description: The whole content, or with merge the keys to be merged., type: str, default: ''}
  mode: {description: Permission bits., type: str, default: '0644'}
  state: {description: There or not there., type: str, default: present, choices: [present, absent]}
  validate: {description: Format that it must have., type: str, default: '', choices: ['', json, toml]}
  merge: {description: Merge into what is there., type: str, default: '', choices: ['', json]}
  rebuild_initramfs: {description: Said back in the result for the role., type: bool, default: false}
"""
EXAMPLES = r"""
- name: Runtime for Docker
  mopt_file: {path: /etc/docker/daemon.json, merge: json, content: '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}'}
"""
RETURN = r"""
rebuild_initramfs: {description: Whether the change wants a new initramfs, type: bool, returned: always}
"""

import json
import os
import tempfile

from ansible.module_utils import mopt_sets
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.text.converters import to_bytes, to_text

CAP = 4 << 20


def _there(module, path):
    """Text of the file, or None. A link is followed to what it names; a folder or a device is refused."""
    if not os.path.lexists(path):
        return None
    if not os.path.isfile(path):
        module.fail_json(msg="`{0}` is not a file".format(path))
    if os.path.getsize(path) > CAP:
        module.fail_json(msg="`{0}` is larger than 4 MiB: not touched".format(path))
    with open(path, "rb") as file:
        return to_text(file.read(), errors="surrogateescape")


def merged(old, new):
    """`new` laid over `old`: objects key by key, everything else whole."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    both = dict(old)
    for key in new:
        both[key] = merged(old[key], new[key]) if key in old else new[key]
    return both


def _merged_text(module, path, old, content):
    try:
        before = json.loads(old) if old and old.strip() else {}
    except ValueError as fault:
        cause = "container.engine_config_unreadable"
        said = "`{0}` is not readable JSON ({1}): nothing is merged into it. Mend or move it, then run again.".format(path, fault)
        module.fail_json(msg=mopt_sets.named(cause, said), cause=cause)
    if not isinstance(before, dict):
        module.fail_json(msg="`{0}` holds no JSON object: nothing is merged into it".format(path))
    after = merged(before, json.loads(content))
    # Bytes stay as they are where the keys are there already: a run changes nothing twice.
    return old if old is not None and after == before else json.dumps(after, indent=4) + "\n"


def _validate(module, path, kind, text):
    try:
        if kind == "json":
            json.loads(text)
        elif kind == "toml":
            try:
                import tomllib
            except ImportError:
                return
            tomllib.loads(text)
    except ValueError as fault:
        module.fail_json(msg="the new content of `{0}` is not {1}: {2}".format(path, kind, fault))


def _write(module, path, text):
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(handle, "wb") as file:
        file.write(to_bytes(text, errors="surrogateescape"))
    # Keeps owner and context of what is there; a new file gets the context of its path.
    module.atomic_move(part, os.path.realpath(path))


def main():
    spec = {
        "path": {"type": "path", "required": True},
        "content": {"type": "str", "default": ""},
        "mode": {"type": "str", "default": "0644"},
        "state": {"type": "str", "default": "present", "choices": ["present", "absent"]},
        "validate": {"type": "str", "default": "", "choices": ["", "json", "toml"]},
        "merge": {"type": "str", "default": "", "choices": ["", "json"]},
        "rebuild_initramfs": {"type": "bool", "default": False},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    p = module.params
    path = p["path"]
    if not path.startswith("/"):
        module.fail_json(msg="`{0}` is not an absolute path".format(path))
    old = _there(module, path)
    if p["state"] == "absent":
        if old is not None and not module.check_mode:
            os.unlink(path)
        module.exit_json(changed=old is not None, path=path, rebuild_initramfs=p["rebuild_initramfs"],
                         diff={"before": old or "", "after": ""})  # fmt: skip
    text = _merged_text(module, path, old, p["content"]) if p["merge"] else p["content"]
    _validate(module, path, p["validate"] or p["merge"], text)
    changed = text != old
    if changed and not module.check_mode:
        _write(module, path, text)
    is_mode_ours = not p["merge"] or old is None
    if is_mode_ours and os.path.exists(path):
        changed = module.set_mode_if_different(path, int(p["mode"], 8), changed)
    module.exit_json(changed=changed, path=path, rebuild_initramfs=p["rebuild_initramfs"],
                     diff={"before": old or "", "after": text, "before_header": path, "after_header": path})  # fmt: skip


if __name__ == "__main__":
    main()
