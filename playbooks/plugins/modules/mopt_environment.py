#!/usr/bin/python
"""An isolated Python environment for an inference engine, proved by an import, with the descriptor that `prove` reads."""

DOCUMENTATION = r"""
module: mopt_environment
short_description: Make an engine's virtual environment from pinned requirements
description:
  - A new environment is built beside its place and moved there when its import worked; one that is whole is left alone.
options:
  name: {description: Name., type: str, required: true}
  engine: {description: Engine., type: str, required: true}
  version: {description: Its version., type: str, required: true}
  python: {description: 'Version of Python, 3.12.', type: str, required: true}
  path: {description: Where it stands., type: path, required: true}
  requirements: {description: 'Requirements, with hashes where they are known.', type: str, required: true}
  index_url: {description: Index., type: str, default: ''}
  extra_index_url: {description: Another index., type: str, default: ''}
  wheelhouse: {description: Folder of wheels on the host; no index is asked then., type: str, default: ''}
  import_name: {description: What is imported as a proof., type: str, required: true}
  import_timeout_s: {description: How long that may take., type: int, default: 300}
  descriptor: {description: Path of the descriptor., type: path, required: true}
  uv: {description: Path of uv where it is on the host; without it venv and pip do the same., type: str, default: ''}
  build_timeout_s: {description: How long downloads and installs may take., type: int, default: 3600}
"""
EXAMPLES = r"""
- name: vLLM
  mopt_environment: {name: vllm, engine: vllm, version: 0.33.0, python: '3.12', path: /opt/e/vllm, requirements: vllm==0.33.0,
                     import_name: vllm, descriptor: /var/lib/mopt-doctor/engines/vllm.json}
"""
RETURN = r"""
descriptor: {description: The descriptor, type: dict, returned: always}
"""

import hashlib
import json
import os
import re
import shutil

from ansible.module_utils import mopt_host
from ansible.module_utils.basic import AnsibleModule


def _python(version):
    """An interpreter of that version among the system's."""
    for name in ("python" + version, "python3"):
        path = shutil.which(name, path="/usr/local/bin:" + mopt_host.PATH)
        if path:
            code, text = mopt_host.command([path, "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
            if code == 0 and text.strip() == version:
                return path
    return ""


def _uv(p):
    return p["uv"] or shutil.which("uv", path="/usr/local/bin:" + mopt_host.PATH) or ""


def _source(p):
    if p["wheelhouse"]:
        return ["--no-index", "--find-links", p["wheelhouse"]]
    found = ["--index-url", p["index_url"]] if p["index_url"] else []
    return found + (["--extra-index-url", p["extra_index_url"]] if p["extra_index_url"] else [])


def _run(module, argv, timeout_s, what):
    code, said = mopt_host.command(argv, timeout_s)
    if code:
        module.fail_json(msg="{0}: `{1}` ended with {2}: {3}".format(what, argv[0], code, said.strip()[-1500:]), said=said[-6000:])
    return said


def _build(module, p, place, requirements):
    uv = _uv(p)
    python = _python(p["python"])
    if not python and not (uv and not p["wheelhouse"]):
        module.fail_json(
            msg="no Python {0} on this host, and no uv that could bring one: install it, or plan with delivery=container".format(
                p["python"]
            )
        )
    hashed = ["--require-hashes"] if "--hash=" in p["requirements"] else []
    if uv:
        _run(module, [uv, "venv", "--python", python or p["python"], place], p["build_timeout_s"], "the environment")
        argv = [uv, "pip", "install", "--python", os.path.join(place, "bin/python")]
    else:
        _run(module, [python, "-m", "venv", place], p["build_timeout_s"], "the environment")
        argv = [os.path.join(place, "bin/python"), "-I", "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    _run(module, argv + hashed + _source(p) + ["-r", requirements], p["build_timeout_s"], "the packages")


def _import(p, place):
    python = os.path.join(place, "bin", "python")
    if not os.access(python, os.X_OK):
        return "no interpreter"
    code, said = mopt_host.command(
        [python, "-I", "-c", "import sys; __import__(sys.argv[1])", p["import_name"]], p["import_timeout_s"]
    )
    return "" if code == 0 else said.strip()[-1500:] or "exit code %d" % code


def main():
    spec = {name: {"type": "str", "required": True} for name in ("name", "engine", "version", "python", "requirements", "import_name")}
    spec.update({name: {"type": "path", "required": True} for name in ("path", "descriptor")})
    spec.update({name: {"type": "str", "default": ""} for name in ("index_url", "extra_index_url", "wheelhouse", "uv")})
    spec.update(import_timeout_s={"type": "int", "default": 300}, build_timeout_s={"type": "int", "default": 3600})
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    p = module.params
    if not re.match(r"^/[A-Za-z0-9_./-]{3,200}$", p["path"]) or ".." in p["path"]:
        module.fail_json(msg="`{0}` is no place for an environment".format(p["path"]))
    lock = hashlib.sha256(p["requirements"].encode("utf-8")).hexdigest()
    want = {"schema": "mopt.engine/1", "engine": p["engine"], "version": p["version"], "kind": "venv",
            "python": os.path.join(p["path"], "bin/python"), "lock": "sha256:" + lock, "import": p["import_name"]}  # fmt: skip
    try:
        have = json.loads(mopt_host.text_of(p["descriptor"]) or "{}")
    except ValueError:
        have = {}
    if have == want and not _import(p, p["path"]):
        module.exit_json(changed=False, descriptor=want)
    if module.check_mode:
        module.exit_json(changed=True, descriptor=want)
    _make(module, p)
    os.makedirs(os.path.dirname(p["descriptor"]), mode=0o755, exist_ok=True)
    part = p["descriptor"] + ".part"
    with open(part, "w") as file:
        json.dump(want, file, indent=1, sort_keys=True)
    os.rename(part, p["descriptor"])
    module.exit_json(changed=True, descriptor=want)


def _make(module, p):
    """Scripts of an environment hold its path, so it is built in place; an old one stands aside until the import worked."""
    old = p["path"] + ".old"
    shutil.rmtree(old, ignore_errors=True)
    os.makedirs(os.path.dirname(p["path"]), mode=0o755, exist_ok=True)
    if os.path.exists(p["path"]):
        os.rename(p["path"], old)
    requirements = os.path.join(module.tmpdir, "requirements.txt")
    with open(requirements, "w") as file:
        file.write(p["requirements"])
    try:
        _build(module, p, p["path"], requirements)
        said = _import(p, p["path"])
        if said:
            module.fail_json(msg="`import {0}` failed in the new environment: {1}".format(p["import_name"], said))
    except SystemExit:
        shutil.rmtree(p["path"], ignore_errors=True)
        if os.path.exists(old):
            os.rename(old, p["path"])
        raise
    shutil.rmtree(old, ignore_errors=True)


if __name__ == "__main__":
    main()
