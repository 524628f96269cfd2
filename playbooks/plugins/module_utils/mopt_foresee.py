"""A host's repositories as a plan will have them, in the folder of one dry run. Python 3.6 syntax, no Ansible.

On a host that lacks a repository a simulation would know none of its packages. Here the package manager reads copies of
the host's sources with the plan's beside them; the indices go into the folder, and signatures are checked as ever.
Nothing of the host is written.
"""

import fnmatch
import os
import re
import shutil
from base64 import b64decode

__all__ = ["apt_options", "apt_update", "dnf_folder", "enable_streams", "forget", "ids_of"]

#: `#clear`: hooks of an update write outside of the folder.
CONFIGURATION = """\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Dir::Etc::sourceparts "{0}/sources";
Dir::Etc::preferencesparts "{0}/preferences";
Dir::State::lists "{0}/lists";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Dir::Log::planner "{0}/planner.log";
APT::Sandbox::User "root";
"""


def _copied(source, target, beside=()):
    """The files of a folder, but for those that globs name."""
    os.makedirs(target)
    for name in sorted(os.listdir(source)) if os.path.isdir(source) else ():
        path = os.path.join(source, name)
        if os.path.isfile(path) and not any(fnmatch.fnmatchcase(path, glob) for glob in beside):
            shutil.copyfile(path, os.path.join(target, name))


def _write(path, text):
    with open(path, "w") as file:
        file.write(text)


def _sources(foreseen, folder, source):
    """The host's sources without those that give way, and the plan's with their keys in the folder; the plan's alone too."""
    globs = [glob for one in foreseen["repositories"] for glob in one["conflicting"]]
    _copied(source, os.path.join(folder, "sources"), globs)
    for part in ("keys", "new"):
        os.makedirs(os.path.join(folder, part))
    for one in foreseen["repositories"]:
        text = one["text"]
        if one["key"]:
            key = os.path.join(folder, "keys", os.path.basename(one["keyring"]))
            with open(key, "wb") as file:
                file.write(b64decode(one["key"]))
            text = text.replace(one["keyring"], key)
        for part in ("sources", "new"):
            _write(os.path.join(folder, part, one["name"]), text)


def apt_options(foreseen, folder, root="/"):
    """Options under which apt sees what the plan will have. `apt_update` then reads the indices."""
    os.makedirs(folder)
    _sources(foreseen, folder, os.path.join(root, "etc/apt/sources.list.d"))
    _copied(os.path.join(root, "etc/apt/preferences.d"), os.path.join(folder, "preferences"))
    for pin in foreseen["pins"]:
        _write(os.path.join(folder, "preferences", os.path.basename(pin["file"])), pin["text"])
    lists, there = os.path.join(folder, "lists"), os.path.join(root, "var/lib/apt/lists")
    os.makedirs(os.path.join(lists, "partial"))
    for name in os.listdir(there) if os.path.isdir(there) else ():
        if os.path.isfile(os.path.join(there, name)) and name != "lock":
            os.symlink(os.path.join(there, name), os.path.join(lists, name))
    text = CONFIGURATION.format(folder)
    for host, proxy in sorted(foreseen.get("proxies", {}).items()):
        text += "".join('Acquire::%s::Proxy::%s "%s";\n' % (scheme, host, proxy) for scheme in ("http", "https"))
    _write(os.path.join(folder, "apt.conf"), text)
    return ["-c", os.path.join(folder, "apt.conf")]


def apt_update(folder):
    """Words of the update that reads the indices of what is new, and leaves the others."""
    fixed = ("Dir::Etc::sourcelist=/dev/null", "Dir::Etc::sourceparts=" + folder + "/new", "APT::Get::List-Cleanup=false",
             "APT::Update::Error-Mode=any")  # fmt: skip
    return [word for option in fixed for word in ("-o", option)] + ["update"]


def dnf_folder(foreseen, folder, root="/"):
    """A folder for `reposdir`."""
    os.makedirs(folder)
    _sources(foreseen, folder, os.path.join(root, "etc/yum.repos.d"))
    return os.path.join(folder, "sources")


def ids_of(foreseen):
    """Ids of the plan's repositories of dnf."""
    return [word for one in foreseen["repositories"] for word in re.findall(r"^\[([^\]\n]{1,200})\]", one["text"], re.M)]


def forget(folder, ids):
    """Takes away what dnf's solver kept of repositories that are not there yet."""
    for ident in ids:
        for end in (".solv", "-filenames.solvx", "-updateinfo.solvx", "-other.solvx", "-presto.solvx"):
            if os.path.exists(os.path.join(folder, ident + end)):
                os.unlink(os.path.join(folder, ident + end))


def enable_streams(base, streams):
    """A dry run takes streams as enabled; nothing of it is written, since no transaction follows."""
    if not streams:
        return
    from dnf.module.module_base import ModuleBase

    modules = ModuleBase(base)
    for stream in streams:
        # Uncounted: libdnf refuses a second change of a module's stream in one session, and a reset counts as one.
        base._moduleContainer.reset(stream["module"], False)
    modules.enable([s["module"] + ":" + s["stream"] for s in streams])
