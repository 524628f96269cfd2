"""The state of a host that an undo must bring back, and the way there. Python 3.6 syntax."""

import configparser
import glob
import grp
import hashlib
import os
import pwd
import stat

from ansible.module_utils import mopt_apt, mopt_dnf, mopt_host

__all__ = ["affected", "difference", "differences", "expanded", "file_state", "manager_of", "state_of", "streams", "unit_links"]

SCHEMA = "mopt.capsule/1"
MODULES = "/etc/dnf/modules.d"
UNITS = "/etc/systemd/system"
FILE_CAP = 16 << 20
#: State of the managers themselves, which no file entry names.
ALWAYS = {"apt": ("/etc/apt/preferences.d/*",), "dnf": ("/etc/dnf/plugins/versionlock.list", "/etc/dnf/modules.d/*.module")}


def manager_of(kind):
    return mopt_apt.Apt() if kind == "apt" else mopt_dnf.Dnf()


def streams():
    """`{module: stream}` of what is enabled."""
    found = {}
    for path in sorted(glob.glob(os.path.join(MODULES, "*.module"))):
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read(path)
        except configparser.Error:
            continue
        for name in parser.sections():
            if parser.get(name, "state", fallback="") == "enabled":
                found[name] = parser.get(name, "stream", fallback="")
    return found


def expanded(patterns):
    """Paths that globs and names stand for. A name without a file stands for its own absence."""
    found = set()
    for pattern in patterns:
        found.update(glob.glob(pattern) if any(c in pattern for c in "*?[") else [pattern])
    return sorted(found)


def file_state(path):
    """`{kind, sha256, mode, owner, group}` or the target of a link; `absent` where nothing is."""
    try:
        info = os.lstat(path)
    except OSError:
        return {"kind": "absent"}
    if stat.S_ISLNK(info.st_mode):
        return {"kind": "link", "target": os.readlink(path)}
    if not stat.S_ISREG(info.st_mode) or info.st_size > FILE_CAP:
        return {"kind": "other"}
    with open(path, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    return {"kind": "file", "sha256": digest, "mode": "%04o" % stat.S_IMODE(info.st_mode),
            "owner": _name(pwd.getpwuid, info.st_uid), "group": _name(grp.getgrgid, info.st_gid)}  # fmt: skip


def _name(look_up, number):
    try:
        return look_up(number)[0]
    except KeyError:
        return str(number)


def _manual(kind):
    argv = ["apt-mark", "showmanual"] if kind == "apt" else ["dnf", "-q", "-C", "repoquery", "--userinstalled", "--qf", "%{name}"]
    code, text = mopt_host.command(argv)
    return sorted(set(text.split())) if code == 0 else []


def _keys(kind):
    """Keys that rpm trusts; apt's are files."""
    code, text = mopt_host.command(["rpm", "-q", "gpg-pubkey"]) if kind == "dnf" else (1, "")
    return sorted(set(text.split())) if code == 0 else []


def state_of(kind, files):
    """Everything that the undo brings back and that is compared afterwards."""
    manager = manager_of(kind)
    return {
        "schema": SCHEMA,
        "manager": kind,
        "packages": {name: list(v) for name, v in sorted(manager.present().items())},
        "manual": _manual(kind),
        "held": sorted(manager.held()) if kind == "apt" else sorted(manager.locks()),
        "streams": streams(),
        "keys": _keys(kind),
        "files": {path: file_state(path) for path in expanded(list(files) + list(ALWAYS[kind]))},
        "dkms": mopt_host.dkms(),
        "initramfs": sorted(os.path.basename(p) for g in ("/boot/initrd.img-*", "/boot/initramfs-*.img") for p in glob.glob(g)),
        "default_kernel": mopt_host.next_kernel(),
        "running_kernel": mopt_host.running_kernel(),
        "boot_id": mopt_host.boot_id(),
        "patterns": list(files),
    }


def unit_links(stages):
    """Globs of the links by which units of the plan run at every boot: a package that goes leaves those that it did not make."""
    names = {name for stage in stages for act in ("enable", "disable") for name in (stage.get("services") or {}).get(act) or ()}
    return ["%s/*/%s" % (UNITS, name if "." in name else name + ".service") for name in sorted(names)]


def affected(stages, packages):
    """`[{name, before}]`: what is installed now and will be replaced or taken away, as far as the plan names it."""
    found = {}
    for stage in stages:
        for one in stage.get("packages") or ():
            for want in one["install"]:
                versions = packages.get(want["name"], ())
                if versions and want.get("version") and want["version"] not in versions:
                    found[want["name"]] = versions
            for name in one["remove"]:
                if packages.get(name):
                    found[name] = packages[name]
    return [{"name": n, "before": " ".join(v)} for n, v in sorted(found.items())]


def difference(then, now, files_of):
    """What one transaction has to do: `{install, remove, missing}`. `files_of` is `{(name, version): path}`."""
    install, missing = [], []
    for name, versions in then["packages"].items():
        have = now["packages"].get(name, [])
        for version in versions:
            if version in have:
                continue
            row = {"name": name, "version": version}
            path = files_of.get((name, version))
            if path:
                row["file"] = path
            else:
                missing.append(name + " " + version)
            install.append(row)
    remove = sorted(set(now["packages"]) - set(then["packages"]))
    return {"install": install, "remove": remove, "missing": missing}


def differences(then, now):
    """Sentences: what is not as it was, but for boots, logs and build times."""
    found = []
    for key in ("packages", "streams", "files"):
        old, new = then[key], now[key]
        for name in sorted(set(old) | set(new)):
            a, b = old.get(name), new.get(name)
            if key == "files" and {"kind": "absent"} in (a, b) and None in (a, b):
                continue
            if a != b:
                found.append("%s %s: was %s, is %s" % (key, name, a, b))
    for key in ("manual", "held", "keys", "dkms", "initramfs"):
        gone, come = sorted(set(then[key]) - set(now[key])), sorted(set(now[key]) - set(then[key]))
        if gone or come:
            found.append("%s: lost %s, gained %s" % (key, gone, come))
    if then["default_kernel"] != now["default_kernel"]:
        found.append("default kernel: was %s, is %s" % (then["default_kernel"], now["default_kernel"]))
    return found
