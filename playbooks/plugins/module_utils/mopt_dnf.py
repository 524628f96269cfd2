"""dnf by its own Python interface, rpm by argument lists: what is there, what a transaction would do, doing it.

Runs under the system's Python (3.6 on Enterprise Linux 8), the one that has dnf. `dnf shell` could say the same
transaction, but goes on after a line that it did not understand, and its tables break names at 80 columns.
Python 3.6 syntax, no Ansible.
"""

import fnmatch
import json
import os
import re
import shutil
import subprocess
import time
import traceback

try:
    from ansible.module_utils import mopt_foresee
except ImportError:
    import mopt_foresee

__all__ = ["Dnf", "Failed"]

ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": "/root"}
VERSIONLOCK = "etc/dnf/plugins/versionlock.list"


class Failed(Exception):
    """dnf or rpm refused; `text` is what it said."""

    def __init__(self, text, unknown=False):
        Exception.__init__(self, text)
        self.text = text
        self.unknown = unknown


class Dnf:
    """One host, or the private root of a test."""

    kind = "dnf"

    def __init__(self, root="/", options=(), lock_timeout_s=120, log=None, path=None):
        self.root = root
        self.options = dict(o.split("=", 1) for o in options)
        self.lock_timeout_s = lock_timeout_s
        self.log = log
        self.environment = dict(ENVIRONMENT)
        self.foreseen = None
        if path:
            self.environment["PATH"] = path

    # --- what is there ----------------------------------------------------------------------------

    def _rpm(self, *more):
        argv = ["rpm"] + ([] if self.root == "/" else ["--root", self.root]) + list(more)
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment
        )
        return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")

    def rows(self):
        """`(name, version, architecture)` of each installed package; versions without an epoch of 0."""
        code, text, said = self._rpm("-qa", "--qf", "%{NAME}\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\t%{ARCH}\n")
        if code:
            raise Failed(said or "rpm -qa ended with %d" % code)
        rows = [tuple(line.split("\t")) for line in text.splitlines() if line.count("\t") == 2]
        return [(n, _plain(v), a) for n, v, a in rows if n != "gpg-pubkey"]

    def present(self):
        """`{name: (version, …)}`: kernels stand side by side; a foreign architecture stands in the name."""
        native = os.uname()[4]
        found = {}
        for name, version, arch in self.rows():
            key = name if arch in (native, "noarch", "(none)") else name + "." + arch
            found[key] = tuple(sorted(found.get(key, ()) + (version,)))
        return found

    def held(self):
        """Installed names that the version lock list names."""
        patterns = [re.sub(r"-(?:\d+:)?[^-]+-[^-]+$", "", line) for line in self.locks()]
        return {n for n in self.present() if any(fnmatch.fnmatchcase(n, p) for p in patterns)}

    def locks(self):
        """Lines of the version lock list that lock something."""
        try:
            with open(os.path.join(self.root, VERSIONLOCK)) as file:
                lines = [line.strip() for line in file]
        except OSError:
            return []
        return [line for line in lines if line and line[0] not in "#!"]

    def broken(self):
        """What rpm's own check of dependencies finds, and packages that are there twice: `{name: what}`."""
        found = {}
        code, text, said = self._rpm("-Va", "--nofiles", "--nodigest", "--nosignature")
        for line in (text + said).splitlines():
            match = re.match(r"Unsatisfied dependencies for (\S+?)-[^-\s]+-[^-\s]+:", line)
            if match:
                found[match.group(1)] = "has dependencies that nothing meets"
            elif "rpmdb" in line and ("rror" in line or "damaged" in line):
                found["rpmdb"] = line.strip()[:200]
        several = (n for n, v in self.present().items() if len(v) > 1 and not n.startswith(("kernel", "gpg-")))
        found.update(dict.fromkeys(several, "is installed in several versions"))
        return found

    def is_interrupted(self):
        return False

    def finish(self):
        return ""

    # --- dnf --------------------------------------------------------------------------------------

    def _base(self, locked=True, refresh=False):
        """A base with its repositories read. Without `locked` the version lock is not asked: we hold plans to it ourselves."""
        import dnf
        import dnf.rpm

        base = dnf.Base()
        conf = base.conf
        if self.root != "/":
            conf.installroot = self.root
        conf.read(filename=os.path.join(self.root, "etc/dnf/dnf.conf"))
        if self.root != "/":
            for key in ("cachedir", "persistdir", "logdir"):
                setattr(conf, key, os.path.join(self.root, "var", "dnf-" + key))
                os.makedirs(os.path.join(self.root, "var", "dnf-" + key), exist_ok=True)
            conf.reposdir = [os.path.join(self.root, "etc/yum.repos.d")]
            conf.varsdir = [os.path.join(self.root, "etc/dnf/vars")]
            conf.pluginconfpath = [os.path.join(self.root, "etc/dnf/plugins")]
        for key, value in self.options.items():
            setattr(conf, key, value)
        if self.foreseen:
            conf.reposdir = [self.foreseen[0]]
        conf.substitutions.update_from_etc(installroot=self.root, varsdir=conf.varsdir)
        conf.substitutions["releasever"] = dnf.rpm.detect_releasever(self.root) or "9"
        # Only what is in the plan goes, and nothing else takes the place of a version that it names.
        conf.clean_requirements_on_remove = False
        conf.best = True
        conf.exit_on_lock = True
        conf.assumeyes = True
        conf.retries, conf.timeout = 3, 30
        base.init_plugins(disabled_glob=() if locked else ("versionlock",))
        base.pre_configure_plugins()
        base.read_all_repos()
        base.configure_plugins()
        for repo in base.repos.iter_enabled():
            is_new = self.foreseen is not None and repo.id in self.foreseen[1]
            repo.skip_if_unavailable = repo.skip_if_unavailable and not refresh and not is_new
            if is_new:
                repo.basecachedir = self.foreseen[2]
            if refresh:
                repo._repo.expire()
        return base

    def _guarded(self, act):
        """Runs an act of dnf apart, again while another process holds dnf's lock, for as long as the request waits."""
        end = time.time() + self.lock_timeout_s
        while True:
            answer = self._apart(act)
            if "failed" not in answer:
                return answer["value"]
            if not answer["failed"].startswith("LockError: ") or time.time() > end:
                raise Failed(answer["failed"], unknown=answer["unknown"])
            time.sleep(2)

    def _apart(self, act):
        """An act of dnf in a child: libdnf takes its plugins once a process. What scriptlets print goes to the log."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            try:
                if self.log is not None:
                    for number in (1, 2):
                        os.dup2(self.log.fileno(), number)
                try:
                    answer = {"value": self._caught(act)}
                except Failed as fault:
                    answer = {"failed": fault.text, "unknown": fault.unknown}
                except BaseException:
                    answer = {"failed": traceback.format_exc()[-4000:], "unknown": False}
                with os.fdopen(writing, "w") as pipe:
                    json.dump(answer, pipe)
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            text = pipe.read()
        os.waitpid(child, 0)
        if not text:
            raise Failed("dnf's process ended without an answer: it was killed, or ran out of memory")
        return json.loads(text)

    @staticmethod
    def _caught(act):
        """Turns what dnf raises into Failed."""
        import dnf.exceptions
        import libdnf

        try:
            return act()
        except dnf.exceptions.LockError as fault:
            raise Failed("LockError: %s" % fault)
        except (dnf.exceptions.MarkingErrors, dnf.exceptions.MarkingError) as fault:
            raise Failed(str(fault), unknown=True)
        except (dnf.exceptions.Error, libdnf.error.Error, OSError, RuntimeError) as fault:
            raise Failed("%s: %s" % (type(fault).__name__, fault))

    def _resolved(self, request, present):
        import dnf.exceptions

        base = self._base(locked=False)
        base.conf.install_weak_deps = bool(request.get("weak"))
        base.conf.localpkg_gpgcheck = True
        base.fill_sack(load_system_repo=True)
        mopt_foresee.enable_streams(base, request.get("streams") or ())
        local = {w["name"]: w["file"] for w in request["install"] if w.get("file") and not _met(w, present)}
        packages = base.add_remote_rpms([local[n] for n in sorted(local)], strict=True) if local else []
        # Local files come first: with a job there already dnf adds none.
        for package in packages:
            base.package_install(package, strict=True)
        gone = request["remove"] + request.get("also_gone", [])
        for name in gone:
            if present.get(name):
                base.remove(name)
        for want in request["install"] + request.get("with", []):
            if want["name"] not in local and not _met(want, present):
                base.install("-".join(p for p in (want["name"], want.get("version")) if p), strict=True)
        try:
            base.resolve(allow_erasing=bool(gone) or bool(request.get("allow_downgrade")))
        except dnf.exceptions.DepsolveError as fault:
            raise Failed(str(fault))
        return base

    @staticmethod
    def _changes(base, present):
        found = {}
        for side, packages in (("after", base.transaction.install_set), ("before", base.transaction.remove_set)):
            for package in packages:
                name = package.name
                if package.arch not in (os.uname()[4], "noarch"):
                    name += "." + package.arch
                row = found.setdefault(name, {"name": name, "before": "", "after": ""})
                row[side] = _plain("%s:%s-%s" % (package.epoch, package.version, package.release))
        return [found[name] for name in sorted(found)]

    def simulate(self, request, present):
        """The changes that dnf would make. Raises Failed."""

        def act():
            base = self._resolved(request, present)
            try:
                changes = self._changes(base, present)
                if not request.get("allow_downgrade"):
                    lower = [c["name"] for c in changes if c["before"] and c["after"] and _is_lower(base, c)]
                    if lower:
                        raise Failed("would downgrade %s, which the plan does not allow" % ", ".join(lower))
                return changes
            finally:
                base.close()
                mopt_foresee.forget(base.conf.cachedir, self.foreseen[1] if self.foreseen else ())

        return self._guarded(act)

    def foresee(self, foreseen, folder):
        """From now on the plan's repositories are seen, too, for a simulation."""
        source = mopt_foresee.dnf_folder(foreseen, folder, self.root)
        self.foreseen = (source, mopt_foresee.ids_of(foreseen), os.path.join(folder, "cache"))

    def update_apart(self, folder):
        """False: metadata that is missing or old is read by every simulation, a second one would find no other."""
        return False

    def update(self):
        """Reads the metadata of the repositories anew. Raises Failed when that of one cannot be had."""

        def act():
            base = self._base(refresh=True)
            try:
                base.fill_sack(load_system_repo=False)
            finally:
                base.close()

        self._guarded(act)
        return ""

    def download(self, request, present):
        """Nothing by itself: `apply` loads everything and checks each signature before it touches anything."""

    def apply(self, request, present):
        def act():
            base = self._resolved(request, present)
            try:
                _load(base)
                base.do_transaction()
            finally:
                base.close()

        self._guarded(act)

    def unlock(self, names):
        """Takes the lines that lock these names out of the version lock list."""
        path = os.path.join(self.root, VERSIONLOCK)
        with open(path) as file:
            lines = file.readlines()
        kept = [line for line in lines if not _locks(line.strip(), names)]
        if kept != lines:
            with open(path + ".mopt", "w") as file:
                file.writelines(kept)
            shutil.copymode(path, path + ".mopt")
            os.rename(path + ".mopt", path)

    def keep(self, changes, folder):
        """Copies of the packages that a transaction takes away: `(kept, could not be had)`."""
        wanted = [(c["name"], v) for c in changes for v in c["before"].split() if v]
        if not wanted:
            return [], []
        return self._guarded(lambda: self._keep(wanted, folder))

    def _keep(self, wanted, folder):
        import dnf.exceptions
        import hawkey

        kept, missing = [], []
        base = self._base(locked=False)
        try:
            base.fill_sack(load_system_repo=False)
            # Of another stream or excluded: it was installed all the same.
            for name, version in wanted:
                label = name + "-" + version
                stem, _, arch = name.partition(".") if name.endswith((".i686", ".i386")) else (name, "", "")
                query = base.sack.query(flags=hawkey.IGNORE_EXCLUDES).available()
                query = query.filter(name=stem, evr=version)
                packages = list(query.filter(arch=arch) if arch else query)[:1]
                target = os.path.join(folder, os.path.basename(packages[0].location)) if packages else ""
                if not packages:
                    missing.append(label)
                    continue
                if not os.path.exists(target):
                    try:
                        if packages[0].repo._repo.isLocal() is False or not packages[0].baseurl:
                            base.download_packages(packages)
                        shutil.copyfile(packages[0].localPkg(), target)
                    except (dnf.exceptions.Error, OSError):
                        missing.append(label)
                        continue
                kept.append(label)
        finally:
            base.close()
        return kept, missing


def _load(base):
    """Downloads what is missing and checks each signature. Keys are taken from local files alone."""
    import dnf.exceptions

    packages = list(base.transaction.install_set)
    base.download_packages([p for p in packages if p.reponame != "@commandline"])
    for package in packages:
        result, said = base.package_signature_check(package)
        if result == 1 and all(url.startswith("file:") for url in package.repo.gpgkey):
            try:
                base.package_import_key(package)
            except dnf.exceptions.Error as fault:
                raise dnf.exceptions.Error("GPG check FAILED: %s: %s" % (package, fault))
            result, said = base.package_signature_check(package)
        # A capsule's file was checked when it was fetched, and nobody but root reaches its folder since. Some vendors sign
        # their index alone: without a signature is as they made it, with a wrong one is not.
        if result and package.reponame == "@commandline" and "not signed" in said and _is_private(package.localPkg()):
            continue
        if result:
            raise dnf.exceptions.Error("GPG check FAILED: %s" % (said or package))


def _is_private(path):
    """Whether a file and its folder are root's, and nobody else may write there."""
    places = [os.stat(p) for p in (path, os.path.dirname(path))]
    return all(place.st_uid == 0 and not place.st_mode & 0o022 for place in places)


def _is_lower(base, change):
    def parts(text):
        epoch, _, rest = text.rpartition(":")
        version, _, release = rest.rpartition("-")
        return (epoch or "0", version, release)

    import rpm

    return rpm.labelCompare(parts(change["after"]), parts(change["before"])) < 0


def _met(want, present):
    versions = present.get(want["name"], ())
    return bool(versions) and (not want.get("version") or _plain(want["version"]) in versions)


def _plain(version):
    return version[2:] if version.startswith("0:") else version


def _locks(line, names):
    stem = re.sub(r"-(?:\d+:)?[^-]+-[^-]+$", "", line.lstrip("!"))
    return any(fnmatch.fnmatchcase(name, stem) for name in names) and line and line[0] != "#"
