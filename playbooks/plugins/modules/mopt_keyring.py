#!/usr/bin/python
"""A repository's signing key, put in place only when it is the expected one."""

DOCUMENTATION = r"""
module: mopt_keyring
short_description: Put a signing key in place after its fingerprint was compared
description:
  - A C(.gpg) keyring is written without armour, as apt wants it; every other name is written as it came.
  - For rpm the key is imported into the package database too.
options:
  kind: {description: Whose key., type: str, required: true, choices: [deb, rpm]}
  url: {description: Where it is fetched from., type: str, default: ''}
  content: {description: 'The key itself, base64.', type: str, default: ''}
  proxy: {description: A proxy to fetch it through; it may hold a password., type: str, default: ''}
  keyring: {description: Path of the keyring on the host., type: path, required: true}
  fingerprint: {description: Fingerprint or long id., type: str, required: true}
"""
EXAMPLES = r"""
- name: Key
  mopt_keyring: {kind: deb, url: "https://example.org/key.asc", keyring: /usr/share/keyrings/x.gpg, fingerprint: A4B469963BF863CC}
"""
RETURN = r"""
fingerprints: {description: Those in the key, type: list, returned: always}
told: {description: 'The key in Base64, for a simulation.', type: str, returned: in check mode where it is not there yet}
"""

import base64
import os
import subprocess
import tempfile

from ansible.module_utils import mopt_openpgp, mopt_sets
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import fetch_url

CAP = 1 << 20


def _fits(data, wanted):
    try:
        return any(f.endswith(wanted) for f in mopt_openpgp.fingerprints(data))
    except ValueError:
        return False


def _fail(module, cause, said, **more):
    module.fail_json(msg=mopt_sets.named(cause, said), cause=cause, **more)


def _source(module):
    p = module.params
    if p["content"]:
        return base64.b64decode(p["content"])
    if p["proxy"]:
        os.environ.update(http_proxy=p["proxy"], https_proxy=p["proxy"])
    answer, info = fetch_url(module, p["url"], timeout=30)
    if info["status"] != 200:
        said = "the key {0} cannot be had: {1}".format(p["url"], info.get("msg", info["status"]))
        _fail(module, "prov.mirror_unreachable", said)
    return answer.read(CAP)


def _database(module):
    """What rpm calls its keys: the last digits of their ids, or whole fingerprints since rpm 4.20."""
    done = subprocess.run(
        ["rpm", "-q", "gpg-pubkey", "--qf", "%{VERSION}\n"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"},
    )  # fmt: skip
    return [word.upper() for word in done.stdout.decode("ascii", "replace").split()]


def _is_imported(module, data):
    known = _database(module)
    return any(f.endswith(word) for f in mopt_openpgp.fingerprints(data) for word in known if len(word) >= 8)


def main():
    spec = {
        "kind": {"type": "str", "required": True, "choices": ["deb", "rpm"]},
        "url": {"type": "str", "default": ""},
        "content": {"type": "str", "default": "", "no_log": False},
        "keyring": {"type": "path", "required": True, "no_log": False},
        "fingerprint": {"type": "str", "required": True},
        "proxy": {"type": "str", "default": "", "no_log": True},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True, required_one_of=[["url", "content"]])
    p = module.params
    wanted = p["fingerprint"].replace(" ", "").upper()
    if len(wanted) < 16:
        module.fail_json(msg="`{0}` is shorter than a long key id".format(p["fingerprint"]))
    data = b""
    if os.path.isfile(p["keyring"]) and os.path.getsize(p["keyring"]) <= CAP:
        with open(p["keyring"], "rb") as file:
            data = file.read()
    is_there = _fits(data, wanted)
    if not is_there:
        data = _source(module)
        _refuse_other(module, data, wanted)
        data = mopt_openpgp.dearmoured(data) if p["keyring"].endswith(".gpg") else data
        if module.check_mode:
            told = base64.b64encode(data).decode("ascii")
            module.exit_json(changed=True, fingerprints=mopt_openpgp.fingerprints(data), told=told)
        _write(module, data)
    is_known = p["kind"] == "deb" or _is_imported(module, data)
    if not is_known and not module.check_mode:
        module.run_command(["rpmkeys", "--import", p["keyring"]], check_rc=True, environ_update={"LC_ALL": "C"})
    changed = not is_there or not is_known
    if os.path.exists(p["keyring"]):
        changed = module.set_mode_if_different(p["keyring"], 0o644, changed)
    module.exit_json(changed=changed, fingerprints=mopt_openpgp.fingerprints(data))


def _refuse_other(module, data, wanted):
    p = module.params
    try:
        found = mopt_openpgp.fingerprints(data)
    except ValueError as fault:
        _fail(module, "prov.repo_key", "what {0} gave is no OpenPGP key: {1}".format(p["url"] or "the file", fault))
    if not any(f.endswith(wanted) for f in found):
        said = "the key of {0} has the fingerprint {1}, not {2}: it is not trusted, nothing was changed"
        said = said.format(p["url"] or "the file", " ".join(found), wanted)
        _fail(module, "prov.repo_key", said, fingerprints=found)


def _write(module, data):
    path = module.params["keyring"]
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    module.atomic_move(part, path)
    os.chmod(path, 0o644)


if __name__ == "__main__":
    main()
