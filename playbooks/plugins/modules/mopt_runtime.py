#!/usr/bin/python
"""A container engine wired to the NVIDIA runtime, or the CDI file that it reads."""

DOCUMENTATION = r"""
module: mopt_runtime
short_description: Wire Docker, containerd, CRI-O or Podman to NVIDIA's runtime or to CDI
description:
  - Docker's configuration is merged, and dockerd itself must accept it before anything restarts. The others' is written by
    C(nvidia-ctk), into a file beside the engine's own where both can do that.
  - A CDI file is written again when it does not name the driver that is loaded, or not every GPU.
options:
  engine: {description: The engine., type: str, required: true, choices: [docker, containerd, podman, crio]}
  mode: {description: How., type: str, required: true, choices: [runtime, cdi]}
  config: {description: 'Its configuration, or the CDI file.', type: path, required: true}
  drop_in: {description: A file beside it for what is added., type: str, default: ''}
  set_default: {description: Whether it is the default runtime., type: bool, default: false}
"""
EXAMPLES = r"""
- name: Docker
  mopt_runtime: {engine: docker, mode: runtime, config: /etc/docker/daemon.json}
"""
RETURN = r"""
config: {description: What was written, type: str, returned: always}
"""

import os
import shutil
import tempfile

from ansible.module_utils import mopt_host, mopt_sets
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.mopt_wiring import docker_config, is_first_version, is_fresh, is_wired


def _docker(module, p):
    old = ""
    if os.path.exists(p["config"]):
        with open(p["config"]) as file:
            old = file.read(4 << 20)
    try:
        new = docker_config(old, p["set_default"], p["mode"] == "cdi")
    except ValueError as fault:
        said = "`{0}` is not readable ({1}): Docker would not start with it either. Nothing is merged. Mend it, then run again."
        _fail(module, "container.engine_config_unreadable", said.format(p["config"], fault))
    if new != old and not module.check_mode:
        os.makedirs(os.path.dirname(p["config"]), mode=0o755, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=module.tmpdir)
        with os.fdopen(handle, "w") as file:
            file.write(new)
        _validate(module, p["config"], part)
        module.atomic_move(part, p["config"])
    return new != old


def _validate(module, path, part):
    """By the daemon itself: what it refuses would keep it from starting again. Before Docker 23 it has no such option."""
    code, said = mopt_host.command(["dockerd", "--validate", "--config-file=" + part], 60)
    if code not in (0, 127) and "unknown flag" not in said:
        text = "Docker refuses what `{0}` would become: {1}. Nothing was changed, and nothing restarted. Mend it, then run again."
        _fail(module, "container.engine_config_unreadable", text.format(path, said.strip()[-800:]))


def _fail(module, cause, said):
    module.fail_json(msg=mopt_sets.named(cause, said), cause=cause)


def _by_ctk(module, p):
    """`nvidia-ctk` writes; whether something changed is told by the files."""
    if module.check_mode:
        return not is_wired(p)
    if shutil.which("nvidia-ctk", path=mopt_host.PATH) is None:
        _fail(module, "container.toolkit_not_configured", "`nvidia-ctk` is not installed")
    config, drop_in = _targets(p)
    watched = sorted({path for path in (p["config"], p["drop_in"], config) if path})
    before = [mopt_host.raw_text_of(path) for path in watched]
    argv = ["nvidia-ctk", "runtime", "configure", "--runtime=" + p["engine"], "--config=" + config]
    argv += ["--drop-in-config=" + drop_in] if drop_in else []
    argv += ["--nvidia-set-as-default"] if p["set_default"] else []
    argv += ["--cdi.enabled"] if p["mode"] == "cdi" else []
    code, said = mopt_host.command(argv)
    if code:
        cause = "container.engine_config_unreadable" if "unable to load config" in said else ""
        _fail(module, cause, "`{0}` ended with {1}: {2}".format(" ".join(argv), code, said[-1000:]))
    return before != [mopt_host.raw_text_of(path) for path in watched]


def _targets(p):
    """Which file is read and which one written. Both options exist from 1.18 on; before, there is one file."""
    if not p["drop_in"]:
        return p["config"], ""
    if "drop-in-config" not in mopt_host.command(["nvidia-ctk", "runtime", "configure", "--help"])[1]:
        # CRI-O reads every file of the folder; a new one leaves the admin's as it is.
        return (p["drop_in"] if p["engine"] == "crio" else p["config"]), ""
    if p["engine"] == "containerd" and is_first_version(mopt_host.raw_text_of(p["config"])):
        # The tool writes the file beside it all the same, and containerd never reads that.
        return p["config"], p["config"]
    return p["config"], p["drop_in"]


def _cdi(module, p):
    """The file that podman reads: by the toolkit's own service where it has one, else written here."""
    if is_fresh(p["config"]):
        return False
    if module.check_mode:
        return True
    if mopt_host.command(["systemctl", "cat", "nvidia-cdi-refresh.service"])[0] == 0:
        code, said = mopt_host.command(["systemctl", "restart", "nvidia-cdi-refresh.service"])
    else:
        os.makedirs(os.path.dirname(p["config"]), mode=0o755, exist_ok=True)
        code, said = mopt_host.command(["nvidia-ctk", "cdi", "generate", "--output=" + p["config"]])
    if code or not is_fresh(p["config"]):
        text = "`{0}` does not name the GPUs and the loaded driver of this host: {1}"
        _fail(module, "container.cdi_spec_stale", text.format(p["config"], said.strip()[-1000:] or "nothing was written"))
    return True


def main():
    spec = {
        "engine": {"type": "str", "required": True, "choices": ["docker", "containerd", "podman", "crio"]},
        "mode": {"type": "str", "required": True, "choices": ["runtime", "cdi"]},
        "config": {"type": "path", "required": True},
        "drop_in": {"type": "str", "default": ""},
        "set_default": {"type": "bool", "default": False},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    p = module.params
    act = _docker if p["engine"] == "docker" else _cdi if p["engine"] == "podman" else _by_ctk
    module.exit_json(changed=act(module, p), config=p["config"])


if __name__ == "__main__":
    main()
