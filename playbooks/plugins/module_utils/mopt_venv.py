"""Places of engine environments: which are ours, which one is current, what is installed in them. Python 3.6 syntax.

An environment is a link `PATH` to a folder `PATH@DIGEST` beside it. A new one is built in a folder of its own, and
the link moves when it is proved: whoever starts an engine finds the old one or the new one, never a half-made one.
"""

import glob
import json
import os
import re
import shutil

from ansible.module_utils import mopt_host

__all__ = ["MARK", "current", "in_use", "installed", "mark", "mark_of", "new_place", "point_to", "sweep"]

#: In each folder that was made here. What has none is somebody else's, and is never touched.
MARK = ".mopt-environment.json"


def mark_of(place):
    """What the mark of a folder says; empty where it has none that can be read."""
    try:
        value = json.loads(mopt_host.text_of(os.path.join(place, MARK)) or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def mark(place, **said):
    os.makedirs(place, mode=0o755, exist_ok=True)
    part = os.path.join(place, MARK + ".part")
    with open(part, "w") as file:
        json.dump(said, file, sort_keys=True)
    os.rename(part, os.path.join(place, MARK))


def current(path):
    """The folder that the link names, where it is one of ours; else empty."""
    if not os.path.islink(path):
        return ""
    place = os.path.join(os.path.dirname(path), os.readlink(path))
    return place if place in _siblings(path) else ""


def new_place(path, digest):
    """A folder that is not there yet."""
    names = ["%s@%s" % (path, digest[:12])] + ["%s@%s-%d" % (path, digest[:12], n) for n in range(2, 1000)]
    return next(name for name in names if not os.path.lexists(name))


def point_to(path, place):
    """The link moves in one step."""
    part = path + "@link"
    if os.path.lexists(part):
        os.unlink(part)
    os.symlink(os.path.basename(place), part)
    os.rename(part, path)


def sweep(path, keep=()):
    """Takes away folders of this environment that are ours, not kept and not in use. Says which stayed because of that."""
    busy = []
    for place in _siblings(path):
        if place in keep:
            continue
        if in_use(place):
            busy.append(place)
        else:
            shutil.rmtree(place, ignore_errors=True)
    return busy


def _siblings(path):
    """Folders of ours beside a path, links excepted."""
    shape = re.compile(re.escape(path) + r"@[0-9a-f]{12}(-\d{1,3})?$")
    found = [p for p in glob.glob(glob.escape(path) + "@*") if shape.match(p) and os.path.isdir(p) and not os.path.islink(p)]
    return sorted(p for p in found if mark_of(p).get("path") == path)


def in_use(place):
    """Whether a process has a file below it mapped: an engine would miss what it has not imported yet."""
    for maps in glob.glob("/proc/[0-9]*/maps"):
        if place + "/" in mopt_host.text_of(maps, 16 << 20):
            return True
    return False


def installed(place):
    """`{name: version}` of what is installed, by the folders that installers leave."""
    found = {}
    for folder in glob.glob(os.path.join(glob.escape(place), "lib*/python3*/site-packages/*.dist-info")):
        name, _, version = os.path.basename(folder)[: -len(".dist-info")].partition("-")
        found[normal(name)] = version
    return found


def normal(name):
    """A distribution's name as it is compared."""
    return re.sub(r"[-_.]+", "-", name).lower()
