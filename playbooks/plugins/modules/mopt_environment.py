#!/usr/bin/python
"""An isolated Python environment for an inference engine, proved by an import, with the descriptor that `prove` reads."""

DOCUMENTATION = r"""
module: mopt_environment
short_description: Make an engine's virtual environment from pinned requirements
description:
  - The environment is built in a folder of its own, C(PATH@DIGEST), and the link C(PATH) moves to it when its import worked.
    The folder before it stays, for an undo. What was not made by this module is never touched.
  - What is installed is written down with its hashes in C(mopt-lock.txt) of the folder. Requirements that have hashes are all
    held to them.
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
  proxy: {description: Proxy for the index., type: str, default: ''}
  build_timeout_s: {description: How long downloads and installs may take., type: int, default: 3600}
"""
EXAMPLES = r"""
- name: vLLM
  mopt_environment: {name: vllm, engine: vllm, version: 0.33.0, python: '3.12', path: /opt/e/vllm, requirements: vllm==0.33.0,
                     import_name: vllm, descriptor: /var/lib/mopt-doctor/engines/vllm.json}
"""
RETURN = r"""
descriptor: {description: The descriptor, type: dict, returned: always}
why: {description: What was not as planned, type: str, returned: changed}
kept: {description: Older folders that stayed because a process uses them, type: list, returned: changed}
"""

import fcntl
import hashlib
import json
import os
import re
import shutil

from ansible.module_utils import mopt_host, mopt_sets, mopt_venv
from ansible.module_utils.basic import AnsibleModule

LOCK = "mopt-lock.txt"
SEARCH = "/usr/local/bin:" + mopt_host.PATH
#: Authorities that the host trusts: those of a site's own mirror are there, and in no bundle of pip or uv.
AUTHORITIES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")


def _python(version):
    """An interpreter of that version among the system's."""
    for name in ("python" + version, "python3"):
        path = shutil.which(name, path=SEARCH)
        if path:
            code, text = mopt_host.command([path, "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
            if code == 0 and text.strip() == version:
                return path
    return ""


def _uv(p):
    return p["uv"] or shutil.which("uv", path=SEARCH) or ""


def _source(p):
    if p["wheelhouse"]:
        return ["--no-index", "--find-links", p["wheelhouse"]]
    found = ["--index-url", p["index_url"]] if p["index_url"] else []
    return found + (["--extra-index-url", p["extra_index_url"]] if p["extra_index_url"] else [])


def _is_told(p):
    return bool(p["wheelhouse"] or p["index_url"])


def _from(p):
    """For messages, without a password."""
    source = p["wheelhouse"] or p["index_url"]
    return " from " + re.sub(r"//[^/@\s]*@", "//", source) if source else ""


def _surroundings(p):
    found = {"UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1", "UV_NO_PROGRESS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    bundle = next((path for path in AUTHORITIES if os.path.exists(path)), "")
    if bundle:
        found["PIP_CERT"] = bundle
    if _is_told(p):
        # Where packages come from is the plan's alone then: no other folder or index of the host's configuration joins in.
        found.update(PIP_CONFIG_FILE=os.devnull, UV_NO_CONFIG="1")
    if p["proxy"]:
        found.update(https_proxy=p["proxy"], http_proxy=p["proxy"], HTTPS_PROXY=p["proxy"], HTTP_PROXY=p["proxy"])
    return found


class Failed(Exception):
    """Why there is no new environment."""


def _cause(said):
    """Of what pip and uv said, as far as it is not the packages' own."""
    if "No space left on device" in said:
        return "prov.disk_full"
    away = r"Failed to fetch: `|error sending request|Failed to establish a new connection|Name or service not known|dns error"
    return "prov.mirror_unreachable" if re.search(away, said) else ""


def _run(p, argv, what):
    code, said = mopt_host.command(argv, p["build_timeout_s"], _surroundings(p))
    if code:
        raise Failed("{0}: `{1}` ended with {2}: {3}".format(what, os.path.basename(argv[0]), code, said.strip()[-2000:]))
    return said


def _build(p, place):
    """Interpreter, packages and the lock of what was installed, in `place`."""
    uv, python, folder = _uv(p), _python(p["python"]), p["wheelhouse"]
    if not python and not (uv and not folder):
        raise Failed(
            "no Python {0} on this host{1}: install it, or plan with delivery=container".format(
                p["python"], ", and a wheelhouse brings none" if folder else ", and no uv that could bring one"
            )
        )
    if folder and not os.path.isdir(folder):
        raise Failed("no folder `{0}` on this host: the wheels are looked for there".format(folder))
    requirements = os.path.join(place, "mopt-requirements.txt")
    with open(requirements, "w") as file:
        file.write(p["requirements"])
    (_with_uv if uv else _with_pip)(p, place, requirements, uv or python, python)
    os.unlink(requirements)


def _with_uv(p, place, requirements, uv, python):
    """First the lock with hashes, then what it names: nothing is installed that was not written down."""
    lock, inside = os.path.join(place, LOCK), os.path.join(place, "bin/python")
    _run(p, [uv, "venv", "--allow-existing", "--python", python or p["python"], place], "the environment")
    if _is_hashed(p):
        shutil.copyfile(requirements, lock)
    else:
        argv = [uv, "pip", "compile", "--quiet", "--generate-hashes", "--no-header", "--no-annotate", "--python", inside]
        _run(p, argv + _source(p) + ["--output-file", lock, requirements], "the choice of packages" + _from(p))
    argv = [uv, "pip", "install", "--python", inside, "--require-hashes"]
    _run(p, argv + _source(p) + ["-r", lock], "the packages" + _from(p))


def _with_pip(p, place, requirements, python, _again):
    """pip says in a report what it installed, with the hash of each file."""
    _run(p, [python, "-m", "venv", place], "the environment")
    pip = [os.path.join(place, "bin/python"), "-I", "-m", "pip"]
    report = os.path.join(place, "mopt-report.json")
    tells = "--report" in mopt_host.command(pip + ["install", "--help"], 60)[1]
    argv = pip + ["install", "--disable-pip-version-check", "--no-input", "--quiet"]
    argv += ["--require-hashes"] if _is_hashed(p) else []
    argv += ["--report", report] if tells else []
    _run(p, argv + _source(p) + ["-r", requirements], "the packages" + _from(p))
    text = p["requirements"]
    if not _is_hashed(p):
        text = _lock_of(report) if tells else mopt_host.command(pip + ["freeze"], 60)[1]
    if tells:
        os.unlink(report)
    with open(os.path.join(place, LOCK), "w") as file:
        file.write(text)


def _lock_of(report):
    with open(report) as file:
        rows = json.load(file)["install"]
    lines = []
    for row in rows:
        hashes = row["download_info"].get("archive_info", {}).get("hashes", {})
        words = "".join(" --hash=%s:%s" % pair for pair in sorted(hashes.items()))
        lines.append("%s==%s%s" % (mopt_venv.normal(row["metadata"]["name"]), row["metadata"]["version"], words))
    return "\n".join(sorted(lines)) + "\n"


def _is_hashed(p):
    return "--hash=" in p["requirements"]


def _import(p, place):
    """Empty where the import works, else what it said."""
    python = os.path.join(place, "bin", "python")
    if not os.access(python, os.X_OK):
        return "no interpreter `%s`" % python
    limit = p["import_timeout_s"]
    code, said = mopt_host.command([python, "-IB", "-c", "import sys; __import__(sys.argv[1])", p["import_name"]], limit)
    if code == 124:
        return "it did not end within %d s" % limit
    return "" if code == 0 else said.strip()[-1500:] or "exit code %d" % code


def _digest(text):
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _plain(p):
    """The descriptor as far as the plan tells it."""
    return {"schema": "mopt.engine/1", "engine": p["engine"], "version": p["version"], "kind": "venv",
            "python": os.path.join(p["path"], "bin/python"), "import": p["import_name"],
            "requirements": _digest(p["requirements"])}  # fmt: skip


def _descriptor(p, place):
    text = mopt_host.raw_text_of(os.path.join(place, LOCK))
    told = "planned" if _is_hashed(p) else "recorded" if "--hash=" in text else "none"
    return dict(_plain(p), lock=_digest(text), lock_file=os.path.join(p["path"], LOCK), hashes=told)


def _locked(place):
    """`{name: version}` of a lock. Lines of other systems, told by a marker, are left out where they are not installed."""
    text = mopt_host.raw_text_of(os.path.join(place, LOCK))
    rows = re.findall(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]\n]*\])?==([^\s;\\]+)([^\S\n]*;)?", text, re.MULTILINE)
    return {mopt_venv.normal(name): (version, bool(marker)) for name, version, marker in rows}


def _wrong(p, have):
    """What keeps the environment that is there from being the planned one; empty where it is."""
    place = mopt_venv.current(p["path"])
    if not place:
        return "there is none"
    if any(have.get(key) != value for key, value in _plain(p).items()):
        return "it was made for other requirements"
    if mopt_venv.mark_of(place).get("state") != "whole" or have != _descriptor(p, place):
        return "it is not whole"
    here = mopt_venv.installed(place)
    for name, (version, has_marker) in sorted(_locked(place).items()):
        if here.get(name) != version and not (has_marker and name not in here):
            return "{0} is {1}, locked at {2}".format(name, here.get(name, "not there"), version)
    said = _import(p, place)
    return "`import {0}` fails: {1}".format(p["import_name"], said) if said else ""


def _make(p):
    """Build, prove, then move the link; what failed is taken away, and the old one stays in place."""
    os.umask(0o022)
    before = mopt_venv.current(p["path"])
    os.makedirs(os.path.dirname(p["path"]), mode=0o755, exist_ok=True)
    mopt_venv.sweep(p["path"], keep=(before,))
    place = mopt_venv.new_place(p["path"], _plain(p)["requirements"].partition(":")[2])
    said = {"path": p["path"], "name": p["name"]}
    mopt_venv.mark(place, state="building", **said)
    try:
        _build(p, place)
        fault = _import(p, place)
        if fault:
            raise Failed("`import {0}` failed in the new environment: {1}".format(p["import_name"], fault))
    except (Failed, OSError) as fault:
        shutil.rmtree(place, ignore_errors=True)
        raise Failed("{0}. {1}".format(fault, "The environment before it is in place." if before else "There is no environment."))
    mopt_venv.mark(place, state="whole", **said)
    _restore_contexts(place)
    _write(p["descriptor"], _descriptor(p, place))
    mopt_venv.point_to(p["path"], place)
    return mopt_venv.sweep(p["path"], keep=(before, place))


def _restore_contexts(place):
    """Labels of SELinux by the host's own policy, where it has one."""
    if os.path.exists("/sys/fs/selinux/enforce"):
        mopt_host.command(["restorecon", "-R", place], 600)


def _write(path, value):
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    with open(path + ".part", "w") as file:
        json.dump(value, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".part", path)


def _refuse(module, p):
    """Places that cannot be one, or are somebody else's."""
    if not re.match(r"^/[A-Za-z0-9_./-]{3,200}$", p["path"]) or ".." in p["path"]:
        module.fail_json(msg="`{0}` is no place for an environment".format(p["path"]))
    if os.path.lexists(p["path"]) and not mopt_venv.current(p["path"]):
        module.fail_json(
            msg="`{0}` is there and was not made by mopt-doctor: it is left as it is. Move it away, then run again.".format(p["path"])
        )


def main():
    spec = {name: {"type": "str", "required": True} for name in ("name", "engine", "version", "python", "requirements", "import_name")}
    spec.update({name: {"type": "path", "required": True} for name in ("path", "descriptor")})
    spec.update({name: {"type": "str", "default": ""} for name in ("index_url", "extra_index_url", "wheelhouse", "uv", "proxy")})
    spec.update(import_timeout_s={"type": "int", "default": 300}, build_timeout_s={"type": "int", "default": 3600})
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    p = module.params
    _refuse(module, p)
    try:
        have = json.loads(mopt_host.text_of(p["descriptor"]) or "{}")
    except ValueError:
        have = {}
    wrong = _wrong(p, have if isinstance(have, dict) else {})
    if not wrong:
        module.exit_json(changed=False, descriptor=have)
    if module.check_mode:
        module.exit_json(changed=True, descriptor=_plain(p), why=wrong)
    os.makedirs(os.path.dirname(p["descriptor"]), mode=0o755, exist_ok=True)
    with open(p["descriptor"] + ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            module.fail_json(msg="another run builds `{0}` now: run again when it has ended".format(p["path"]))
        try:
            kept = _make(p)
        except Failed as fault:
            cause = _cause(str(fault))
            module.fail_json(msg=mopt_sets.named(cause, str(fault)[-4000:]), cause=cause)
    module.exit_json(changed=True, descriptor=_descriptor(p, mopt_venv.current(p["path"])), why=wrong, kept=kept)


if __name__ == "__main__":
    main()
