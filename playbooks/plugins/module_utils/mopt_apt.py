"""apt and dpkg by argument lists: what is there, what a transaction would do, doing it. Python 3.6 syntax, no Ansible."""

import glob
import os
import re
import subprocess

try:
    from ansible.module_utils import mopt_foresee
except ImportError:
    import mopt_foresee

__all__ = ["Apt", "Failed"]

ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C",
    "HOME": "/root",
    "DEBIAN_FRONTEND": "noninteractive",
    "DEBIAN_PRIORITY": "critical",
    "APT_LISTCHANGES_FRONTEND": "none",
    "UCF_FORCE_CONFFOLD": "1",
    # It would restart services, with a daemon-reload that takes GPUs from running containers.
    "NEEDRESTART_SUSPEND": "1",
}
_STEP = re.compile(r"^(Inst|Remv|Purg) (\S+)(?: \[([^\]\s]+)\])?(?: \((\S+)[^)]*\))?")


class Failed(Exception):
    """A package manager refused; `text` is what it said."""

    def __init__(self, text, unknown=False):
        Exception.__init__(self, text)
        self.text = text
        self.unknown = unknown


class Apt:
    """One host, or the private root of a test when `options` lead there."""

    kind = "apt"

    def __init__(self, root="/", options=(), lock_timeout_s=120, log=None, path=None):
        self.root = root
        self.options = list(options)
        self.lock_timeout_s = lock_timeout_s
        self.log = log
        self.environment = dict(ENVIRONMENT)
        if path:
            self.environment["PATH"] = path

    # --- what is there ----------------------------------------------------------------------------

    def _dpkg(self, tool):
        admin = os.path.join(self.root, "var/lib/dpkg")
        return [tool] if self.root == "/" else [tool, "--admindir=" + admin]

    def rows(self):
        """`(name, version, architecture, three letters of state)` of each package that dpkg knows."""
        shape = "${Package}\t${Version}\t${Architecture}\t${db:Status-Abbrev}\n"
        text = self._run(self._dpkg("dpkg-query") + ["-W", "-f", shape], quiet=(0, 1))
        return [tuple(line.split("\t")[:4]) for line in text.splitlines() if line.count("\t") == 3]

    def present(self):
        """`{name: (version,)}` of what is unpacked; a foreign architecture stands in the name."""
        native = self.native()
        found = {}
        for name, version, arch, state in self.rows():
            if version and state[1:2] not in ("n", "c"):
                key = name if arch in (native, "all") else name + ":" + arch
                found[key] = (version,)
        return found

    def native(self):
        return self._run(["dpkg", "--print-architecture"]).strip()

    def held(self):
        """Names on hold."""
        return {row[0] for row in self.rows() if row[3][:1] == "h"}

    def broken(self):
        """Packages that are neither installed nor absent: `{name: what dpkg says}`."""
        words = {"U": "unpacked, not configured", "F": "half-configured", "H": "half-installed",
                 "W": "awaits triggers", "t": "has triggers pending"}  # fmt: skip
        found = {r[0]: words[r[3][1]] for r in self.rows() if r[3][1:2] in words}
        found.update({r[0]: "must be installed again" for r in self.rows() if r[3][2:3] == "R"})
        return found

    def is_interrupted(self):
        """Whether dpkg stopped in the middle: apt then refuses everything."""
        folder = os.path.join(self.root, "var/lib/dpkg/updates")
        return any(name.isdigit() for name in _listed(folder))

    def finish(self):
        """Configures what lies unpacked: `dpkg --configure -a`, as apt asks for."""
        extra = [] if self.root == "/" else ["--root=" + self.root]
        return self._run(["dpkg"] + extra + ["--configure", "-a"])

    # --- what would be done -----------------------------------------------------------------------

    def _get(self, *more):
        fixed = [
            "-o", "DPkg::Lock::Timeout=%d" % self.lock_timeout_s,
            "-o", "Acquire::Retries=3", "-o", "Acquire::http::Timeout=30", "-o", "Acquire::https::Timeout=30",
            "-o", "APT::Get::AutomaticRemove=false", "-o", "Dpkg::Use-Pty=false",
            "-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold",
        ]  # fmt: skip
        return ["apt-get", "-q", "-y"] + fixed + self.options + list(more)

    def _act(self, request, present, *more):
        flags = ["--purge", "--allow-change-held-packages"]
        if request.get("allow_downgrade"):
            flags.append("--allow-downgrades")
        recommends = "true" if request.get("weak") else "false"
        flags += ["-o", "APT::Install-Recommends=" + recommends]
        flags += self._preferred(request)
        return self._get(*(flags + list(more) + ["install"] + self._words(request, present)))

    def _preferred(self, request):
        """A dry run has no branch lock on disk yet: what has the very version of a wanted package is preferred."""
        if not request.get("prefer"):
            return []
        # A pattern: for the name `*` apt takes pins of releases alone.
        shape = "Package: /./\nPin: version %s\nPin-Priority: 1000\n"
        text = "\n".join(shape % version for version in request["prefer"])
        own = os.path.join(self.root, "etc/apt/preferences")
        if os.path.isfile(own):
            with open(own) as file:
                text += "\n" + file.read()
        with open(request["prefer_in"], "w") as file:
            file.write(text)
        return ["-o", "Dir::Etc::preferences=" + request["prefer_in"]]

    @staticmethod
    def _words(request, present):
        """Everything that has a version is named, so that nothing else may be chosen for it."""
        words = []
        for want in request["install"] + request.get("with", []):
            version = want.get("version") or ""
            if present.get(want["name"]) == (version,):
                words.append(want["name"] + "=" + version)
            elif want.get("file"):
                words.append(os.path.abspath(want["file"]))
            elif version:
                words.append(want["name"] + "=" + version)
            elif not present.get(want["name"]):
                words.append(want["name"])
        return words + [name + "-" for name in request["remove"] + request.get("also_gone", []) if present.get(name)]

    def simulate(self, request, present):
        """The changes that apt would make. Raises Failed."""
        text = self._run(self._act(request, present, "-s"))
        found = {}
        for line in text.splitlines():
            step = _STEP.match(line)
            if step:
                act, name, old, new = step.groups()
                after = new if act == "Inst" else ""
                found[name] = {"name": name, "before": " ".join(present.get(name, ())) or old or "", "after": after}
        return [found[name] for name in sorted(found)]

    def foresee(self, foreseen, folder):
        """From now on the plan's repositories are seen, too, for a simulation. Raises Failed when one cannot be read."""
        self.options += mopt_foresee.apt_options(foreseen, folder, self.root)
        if foreseen["repositories"]:
            self._read(*mopt_foresee.apt_update(folder))

    def update_apart(self, folder):
        """Reads all lists anew into the folder of a simulation; those of the host stay as they are. True. Raises Failed."""
        if not os.path.isdir(folder):
            self.foresee({"repositories": [], "pins": []}, folder)
        self._read("-o", "APT::Update::Error-Mode=any", "update")
        return True

    # --- doing it ---------------------------------------------------------------------------------

    def update(self):
        """Reads the package lists anew. Raises Failed when one of them cannot be had: an old one misleads."""
        return self._read("-o", "APT::Update::Error-Mode=any", "update")

    def _read(self, *words):
        text = self._run(self._get(*words))
        if re.search(r"^(?:W: Failed to fetch|E: )", text, re.M):
            raise Failed(text)
        return text

    def download(self, request, present):
        """Everything lies in the cache before anything is touched."""
        self._run(self._act(request, present, "--download-only"))

    def apply(self, request, present):
        # Not with --no-download: of a file: repository apt then knows no path, and ends with an internal error.
        self._run(self._act(request, present))

    def unlock(self, names):
        """Lifts holds."""
        self._run(["apt-mark"] + self.options + ["unhold"] + list(names))

    def keep(self, changes, folder):
        """Copies of the packages that a transaction takes away: `(kept, could not be had)`."""
        kept, missing = [], []
        for change in changes:
            if not change["before"]:
                continue
            name, version = change["name"], change["before"]
            (kept if self._fetch(name, version, folder) else missing).append(name + "=" + version)
        return kept, missing

    def _fetch(self, name, version, folder):
        base, _, arch = name.partition(":")
        shape = "_".join((base, version.replace(":", "%3a"), arch or "*")) + ".deb"
        if glob.glob(os.path.join(folder, shape)):
            return True
        for path in glob.glob(os.path.join(self.root, "var/cache/apt/archives", shape)):
            _copy(path, folder)
            return True
        try:
            self._run(self._get("-o", "APT::Sandbox::User=root", "download", name + "=" + version), cwd=folder)
        except Failed:
            return False
        return bool(glob.glob(os.path.join(folder, shape)))

    def _run(self, argv, quiet=(0,), cwd=None):
        """The output of a command; it goes to the log as it comes, too."""
        return run(argv, self.environment, self.log, quiet, cwd)


def run(argv, environment, log=None, quiet=(0,), cwd=None):
    """Output of a command. Raises Failed with its last 64 kB when it ends otherwise than `quiet` says."""
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, cwd=cwd
    )
    kept = []
    size = 0
    with process.stdout:
        for line in iter(process.stdout.readline, b""):
            text = line.decode("utf-8", "replace")
            kept.append(text)
            size += len(text)
            while size > 8000000:
                size -= len(kept.pop(0))
            if log is not None:
                log.write(text)
                log.flush()
    code = process.wait()
    text = "".join(kept)
    if code not in quiet:
        unknown = re.search(
            r"Unable to locate package|has no installation candidate|Version '[^']{1,200}' for '[^']{1,200}' was not found",
            text,
        )
        raise Failed(text[-65536:] or "%s ended with %d" % (argv[0], code), unknown=bool(unknown))
    return text


def _listed(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _copy(path, folder):
    target = os.path.join(folder, os.path.basename(path))
    with open(path, "rb") as source, open(target + ".part", "wb") as copy:
        for block in iter(lambda: source.read(1 << 20), b""):
            copy.write(block)
    os.rename(target + ".part", target)
