#!/usr/bin/python
"""A container engine wired to the NVIDIA runtime, or the CDI file that it reads."""

DOCUMENTATION = r"""
module: mopt_runtime
short_description: Wire Docker, containerd, CRI-O or Podman to NVIDIA's runtime or to CDI
description:
  - Docker's configuration is merged and must parse before and after. The others' drop-ins are written by C(nvidia-ctk).
options:
  engine: {description: The engine., type: str, required: true, choices: [docker, containerd, podman, crio]}
  mode: {description: How., type: str, required: true, choices: [runtime, cdi]}
  config: {description: 'Its configuration, or the CDI file.', type: path, required: true}
  set_default: {description: Whether it is the default runtime., type: bool, default: false}
"""
EXAMPLES = r"""
- name: Docker
  mopt_runtime: {engine: docker, mode: runtime, config: /etc/docker/daemon.json}
"""
RETURN = r"""
config: {description: What was written, type: str, returned: always}
"""

import glob
import json
import os
import shutil
import tempfile

from ansible.module_utils import mopt_host
from ansible.module_utils.basic import AnsibleModule

RUNTIME = {"path": "nvidia-container-runtime", "args": []}


def docker_config(text, set_default, cdi):
    """`daemon.json` with the runtime in it. Raises ValueError where it holds no object."""
    value = json.loads(text) if text.strip() else {}
    if not isinstance(value, dict) or not isinstance(value.get("runtimes", {}), dict):
        raise ValueError("it holds no JSON object")
    after = json.loads(json.dumps(value))
    if cdi:
        features = after.setdefault("features", {})
        if not isinstance(features, dict):
            raise ValueError("`features` is no object")
        features["cdi"] = True
    else:
        # A path that an admin set stays: only what is missing comes.
        after.setdefault("runtimes", {}).setdefault("nvidia", dict(RUNTIME))
        if set_default:
            after["default-runtime"] = "nvidia"
    return text if after == value else json.dumps(after, indent=4) + "\n"


def _docker(module, p):
    old = ""
    if os.path.exists(p["config"]):
        with open(p["config"]) as file:
            old = file.read(4 << 20)
    try:
        new = docker_config(old, p["set_default"], p["mode"] == "cdi")
    except ValueError as fault:
        module.fail_json(
            msg="`{0}` is not readable ({1}): Docker would not start with it either. Nothing is merged. Mend it, then run "
            "again.".format(p["config"], fault),
            cause="container.engine_config_unreadable",
        )
    if new != old and not module.check_mode:
        os.makedirs(os.path.dirname(p["config"]), mode=0o755, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=module.tmpdir)
        with os.fdopen(handle, "w") as file:
            file.write(new)
        module.atomic_move(part, p["config"])
    return new != old


def _texts(paths):
    return {path: mopt_host.text_of(path, 4 << 20) for path in paths}


def _by_ctk(module, p):
    """`nvidia-ctk` writes; whether something changed is told by the files. A dry run writes beside them."""
    if shutil.which("nvidia-ctk", path=mopt_host.PATH) is None:
        if module.check_mode:
            return True
        module.fail_json(msg="`nvidia-ctk` is not installed", cause="container.toolkit_not_configured")
    watched = [p["config"]] + glob.glob("/etc/%s/conf.d/*nvidia*.toml" % p["engine"])
    before = _texts(watched)
    argv = ["nvidia-ctk", "runtime", "configure", "--runtime=" + p["engine"], "--config=" + p["config"]]
    if p["set_default"]:
        argv.append("--nvidia-set-as-default")
    if p["mode"] == "cdi":
        argv.append("--cdi.enabled")
    if module.check_mode:
        return not any("nvidia" in text for text in before.values())
    code, said = mopt_host.command(argv)
    if code:
        module.fail_json(msg="`{0}` ended with {1}: {2}".format(" ".join(argv), code, said[-1000:]))
    watched += glob.glob("/etc/%s/conf.d/*nvidia*.toml" % p["engine"])
    after = _texts(watched)
    return any(before.get(path, "") != text for path, text in after.items())


def _cdi(module, p):
    """The file that podman reads: by the toolkit's own service where it has one, else written once."""
    if os.path.exists(p["config"]) and "nvidia.com/gpu" in mopt_host.text_of(p["config"], 4 << 20):
        return False
    if module.check_mode:
        return True
    if mopt_host.command(["systemctl", "cat", "nvidia-cdi-refresh.service"])[0] == 0:
        code, said = mopt_host.command(["systemctl", "restart", "nvidia-cdi-refresh.service"])
    else:
        os.makedirs(os.path.dirname(p["config"]), mode=0o755, exist_ok=True)
        code, said = mopt_host.command(["nvidia-ctk", "cdi", "generate", "--output=" + p["config"]])
    if code or not os.path.exists(p["config"]):
        module.fail_json(msg="no CDI file `{0}`: {1}".format(p["config"], said[-1000:]), cause="container.cdi_spec_stale")
    return True


def main():
    spec = {
        "engine": {"type": "str", "required": True, "choices": ["docker", "containerd", "podman", "crio"]},
        "mode": {"type": "str", "required": True, "choices": ["runtime", "cdi"]},
        "config": {"type": "path", "required": True},
        "set_default": {"type": "bool", "default": False},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    p = module.params
    act = _docker if p["engine"] == "docker" else _cdi if p["engine"] == "podman" else _by_ctk
    module.exit_json(changed=act(module, p), config=p["config"])


if __name__ == "__main__":
    main()
