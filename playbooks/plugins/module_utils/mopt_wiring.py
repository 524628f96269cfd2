"""How a container engine knows NVIDIA's runtime, and whether its CDI file is of the driver that runs. Python 3.6 syntax.

What `nvidia-ctk runtime configure` writes where was seen by running 1.17.8, 1.18.0 and 1.20.0 (tests/data/nvidia-ctk.json).
"""

import glob
import json
import os
import re

from ansible.module_utils import mopt_host

__all__ = ["docker_config", "is_first_version", "is_fresh", "is_wired"]

RUNTIME = {"path": "nvidia-container-runtime", "args": []}
CAP = 4 << 20


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


def is_first_version(text):
    """A configuration of containerd before its version 2: it imports nothing, so that a file beside it is never read."""
    head = re.split(r"^\s*\[", text, maxsplit=1, flags=re.MULTILINE)[0]
    version = re.search(r"^\s*version\s*=\s*(\d+)", head, re.MULTILINE)
    return bool(text.strip()) and (version is None or version.group(1) == "1")


def is_wired(one):
    """Whether an engine of the plan needs no change. What cannot be read is not wired; the act that writes it says why."""
    if one["engine"] == "podman":
        return is_fresh(one["config"])
    text = mopt_host.raw_text_of(one["config"], CAP)
    if one["engine"] == "docker":
        try:
            return docker_config(text, one.get("set_default", False), one["mode"] == "cdi") == text
        except ValueError:
            return False
    drop_in = one.get("drop_in") or ""
    if drop_in and one["engine"] == "containerd":
        # The file beside it counts only where it is imported.
        both = text + mopt_host.raw_text_of(drop_in, CAP) if os.path.dirname(drop_in) + "/*.toml" in text else text
    else:
        both = text + (mopt_host.raw_text_of(drop_in, CAP) if drop_in else "")
    needs = [r'^\s*(BinaryName|runtime_path)\s*=\s*"[^"\n]*nvidia-container-runtime"']
    needs += [r'^\s*default_runtime(_name)?\s*=\s*"nvidia"'] if one.get("set_default") else []
    needs += [r"^\s*enable_cdi\s*=\s*true"] if one["mode"] == "cdi" and one["engine"] == "containerd" else []
    return all(re.search(need, both, re.MULTILINE) for need in needs)


def is_fresh(path):
    """A CDI file that names every GPU device, and libraries of the loaded driver and of no other."""
    text = mopt_host.raw_text_of(path, CAP)
    if "nvidia.com/gpu" not in text:
        return False
    devices = [os.path.basename(p) for p in glob.glob("/dev/nvidia[0-9]*")]
    if any(not re.search(r"/dev/%s\b" % re.escape(name), text) for name in devices):
        return False
    loaded = mopt_host.loaded_version("nvidia")
    named = set(re.findall(r"/libcuda\.so\.(\d[\d.]*\d)", text))
    return not loaded or loaded == "?" or not named or named == {loaded}
