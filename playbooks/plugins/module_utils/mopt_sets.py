"""What a package transaction would do, held against what it was asked to do. Pure, Python 3.6 syntax.

A change is `{"name", "before", "after"}`: an empty `before` is a package that comes in, an empty `after` one
that goes.
"""

import fnmatch
import re

__all__ = ["cause_of", "changed", "deviations", "is_met", "named", "unmet"]

#: What a package manager said -> the cause that `mopt-doctor explain` knows. The first that fits wins.
_CAUSES = (
    (r"Could not get lock|Unable to acquire the dpkg|Unable to lock the administration|Failed to obtain .{0,40}lock"
     r"|Waiting for process with pid|already locked by|LockError", "prov.package_lock"),
    # An index that could not be had is told as one that is not signed, too.
    (r"Failed to fetch \S{1,300}Release {1,4}(?:[45]\d\d |Could not|Temporary failure|Connection|Unable to connect)",
     "prov.mirror_unreachable"),
    (r"Conflicting values set for option Signed-By", "prov.repo_duplicate_entry"),
    (r"NO_PUBKEY|EXPKEYSIG|BADSIG|is not signed|signatures were invalid|GPG check FAILED|Bad GPG signature"
     r"|GPG keys listed for .{1,200} not correct for this package"
     r"|signature.{0,40}(?:bad|wrong|missing|NOKEY|NOT OK)|Public key for .{1,200} is not", "prov.repo_key"),
    (r"No space left on device|don't have enough free space"
     r"|needs \d+[KMG]?B? (?:more space )?on the|more space needed on", "prov.disk_full"),
    (r"dpkg was interrupted|not fully installed or removed|half-installed|reinstreq", "prov.packages_half_configured"),
    (r"Bad return status for module build|Error! Bad return status|dkms.{0,80}(?:failed|build error)",
     "driver.dkms_build_failed"),
    (r"[Kk]ernel headers for .{1,120} (?:cannot|could not) be found|Your kernel headers for kernel", "driver.headers_missing"),
    # A mirror that has dropped the running kernel's headers; the package manager calls it a name that does not exist.
    (r"(?:No match for argument|Unable to find a match|Unable to locate package|Version '[^']{1,200}' for)[: ].{0,40}"
     r"(?:kernel-(?:uek-)?devel|linux-headers)-?", "driver.headers_missing"),
    (r"filtered out by modular filtering", "prov.modular_filtering"),
    (r"trying to overwrite|conflicts with file from package", "prov.file_conflict"),
    (r"Failed to fetch|Could not (?:connect|resolve|handshake)|Temporary failure resolving|Connection (?:failed|refused|timed out)"
     r"|Failed to download|Cannot download|Curl error|Hash Sum mismatch|All mirrors were tried|does not have a Release file"
     r"|Status code: [45]\d\d", "prov.mirror_unreachable"),
    (r"Unable to locate package|has no installation candidate|Version '.{1,200}' for '.{1,200}' was not found"
     r"|No match for argument|Unable to find a match", "prov.package_renamed"),
    (r"nothing provides|unmet dependencies|but it is not (?:going to be installed|installable)|conflicting requests",
     "prov.dependency_repo_stale"),
)  # fmt: skip


def cause_of(text):
    """The cause that a package manager's words name; empty where they name none."""
    for pattern, cause in _CAUSES:
        if re.search(pattern, text[-60000:]):
            return cause
    return ""


def named(cause, text):
    """A failure's text with its cause in front: what the operator sees is what `mopt-doctor explain CAUSE` takes."""
    return cause + ": " + text if cause else text


def _fits(name, globs):
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs)


def is_met(want, present):
    """Whether a wanted package is there. Without a version, any will do: nothing is upgraded by the way."""
    versions = present.get(want["name"], ())
    return bool(versions) and (not want.get("version") or plain(want["version"]) in versions)


def plain(version):
    """A version without the epoch that says nothing."""
    return version[2:] if version.startswith("0:") else version


def unmet(install, remove, present):
    """`(packages that are not as wanted, names that are still there)`."""
    return [w for w in install if not is_met(w, present)], [n for n in remove if present.get(n)]


def deviations(changes, request, present, held=()):
    """Sentences: each change that nobody asked for, each wish that would not come true. None: plan and simulation agree."""
    wanted = {w["name"]: plain(w.get("version") or "") for w in request["install"]}
    removed = set(request["remove"]) | set(request.get("also_gone", ()))
    extra = request.get("extra_allowed", ())
    unlock = request.get("unlock", ())
    found = []
    for change in changes:
        name, before, after = change["name"], change["before"], change["after"]
        if name in held and not _fits(name, unlock):
            found.append("`{0}` is held at {1}, and the plan does not lift that".format(name, before or "its version"))
        elif not after:
            if name not in removed:
                found.append("would remove `{0}` {1}".format(name, before))
        elif name in wanted:
            if wanted[name] and after != wanted[name]:
                found.append("would bring `{0}` to {1}, not {2}".format(name, after, wanted[name]))
        elif not _fits(name, extra):
            found.append("would {0} `{1}` {2}".format("change" if before else "add", name, after))
    found.extend(_unfulfilled(changes, request, present, wanted))
    return found


def _unfulfilled(changes, request, present, wanted):
    after = {c["name"]: c["after"] for c in changes}
    for want in request["install"]:
        name = want["name"]
        if name not in after and not is_met(want, present):
            yield "would leave `{0}` out".format(" ".join(p for p in (name, wanted[name]) if p))
    for name in request["remove"]:
        if present.get(name) and name not in after:
            yield "would leave `{0}` installed".format(name)


def changed(before, after):
    """What really changed between two package lists (`{name: (version, …)}`), by name."""
    found = []
    for name in sorted(set(before) | set(after)):
        old, new = set(before.get(name, ())), set(after.get(name, ()))
        if old != new:
            found.append({"name": name, "before": " ".join(sorted(old - new)), "after": " ".join(sorted(new - old))})
    return found
