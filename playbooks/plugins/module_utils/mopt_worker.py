"""Carries out one package transaction apart from the connection that asked for it. Python 3.6 syntax, no Ansible.

`python3 -I FOLDER/worker simulate|update|run FOLDER`: reads `FOLDER/request.json`, writes its answer beside it. A run
holds a lock, so that two never meet, and says in `FOLDER/state.json` who it is: one that lost its caller is
found again.
"""

import fcntl
import json
import os
import sys
import time
import traceback

try:
    from ansible.module_utils import mopt_apt, mopt_dnf, mopt_sets
except ImportError:
    import mopt_apt
    import mopt_dnf
    import mopt_sets

__all__ = ["main", "run", "simulate"]

LOCK = "/run/lock/mopt-doctor.transaction"


def manager_of(request, log=None):
    kind = {"apt": mopt_apt.Apt, "dnf": mopt_dnf.Dnf}[request["manager"]]
    return kind(
        root=request.get("root", "/"),
        options=request.get("options", ()),
        lock_timeout_s=request.get("lock_timeout_s", 120),
        log=log,
        path=request.get("path"),
    )


def simulate(request, log=None):
    """What would be done: `{changes, deviations, met}`, or with `failed` what the manager said."""
    manager = manager_of(request, log)
    present = manager.present()
    answer = {"changes": [], "deviations": [], "failed": "", "unknown": False, "broken": _broken(manager)}
    wants, leaves = mopt_sets.unmet(request["install"], request["remove"], present)
    unfinished = _ours(answer["broken"], request)
    if not wants and not leaves and not unfinished:
        return answer
    if manager.is_interrupted():
        foreign = sorted(set(answer["broken"]) - set(unfinished))
        if foreign:
            answer["failed"] = "dpkg was interrupted, and these are not of this plan: " + ", ".join(foreign)
            return answer
        answer["finishes"] = unfinished
        return answer
    try:
        _renewed(manager, request)
        answer["changes"] = _looked_up(manager, request, present)
    except (mopt_apt.Failed, mopt_dnf.Failed) as fault:
        answer.update(failed=fault.text, unknown=fault.unknown)
        return answer
    answer["deviations"] = mopt_sets.deviations(answer["changes"], request, present, manager.held())
    answer["finishes"] = unfinished
    return answer


def _broken(manager):
    """What lies half done. dpkg's table says it at once; rpm's check of a whole system takes seconds, and waits for a failure."""
    return manager.broken() if manager.kind == "apt" else {}


def update(request, log=None):
    """Reads package lists or metadata anew."""
    try:
        manager_of(request, log).update()
    except (mopt_apt.Failed, mopt_dnf.Failed) as fault:
        return {"failed": fault.text}
    return {"failed": ""}


def _ours(broken, request):
    """Names of the plan that lie there half done: the transaction is not over, whatever the versions say."""
    names = {w["name"] for w in request["install"]} | set(request["remove"])
    if request["manager"] == "dnf":
        return []
    return sorted(n for n in broken if n in names or mopt_sets._fits(n, request.get("extra_allowed", ())))


def _stale(manager):
    """A file that says that lists or metadata have misled a run: a mirror was renewed, or another's was in its place."""
    return os.path.join(manager.root, "var/lib/mopt-doctor/lists-are-stale")


def _renewed(manager, request):
    """Reads anew what misled an earlier run: dnf would trust its cache for two days, apt for ever."""
    if request.get("may_update") and os.path.exists(_stale(manager)):
        manager.update()
        os.unlink(_stale(manager))


def _looked_up(manager, request, present):
    """Lists that do not know a package are read again, once. What earlier transactions of a dry run told is not told again."""
    if request.get("foreseen"):
        manager.foresee(request["foreseen"], request["foreseen_in"])
    try:
        changes = manager.simulate(request, present)
    except (mopt_apt.Failed, mopt_dnf.Failed) as fault:
        if not fault.unknown or not (request.get("may_update") or request.get("foreseen_in")):
            raise
        if request.get("may_update"):
            manager.update()
        elif not manager.update_apart(request["foreseen_in"]):
            raise
        changes = manager.simulate(request, present)
    told = {w["name"] for w in request.get("with", ())} | set(request.get("also_gone", ()))
    return [change for change in changes if change["name"] not in told]


def run(request, folder, log):
    """Does it: what really changed, and in which state it left the host."""
    manager = manager_of(request, log)
    answer = {"failed": "", "kept": [], "missing": [], "outcome": "unchanged", "changes": []}
    before = manager.present()
    try:
        if manager.is_interrupted():
            manager.finish()
        told = simulate(request, log)
        if told["failed"] or told["deviations"]:
            answer.update(failed=told["failed"] or "; ".join(told["deviations"]))
            return answer
        _carry_out(manager, request, told, answer)
    except (mopt_apt.Failed, mopt_dnf.Failed, OSError) as fault:
        answer["failed"] = getattr(fault, "text", "") or str(fault)
        if mopt_sets.cause_of(answer["failed"]) in ("prov.repo_key", "prov.mirror_unreachable"):
            os.makedirs(os.path.dirname(_stale(manager)), exist_ok=True)
            open(_stale(manager), "w").close()
    return _settle(manager, request, before, answer)


def _carry_out(manager, request, told, answer):
    present = manager.present()
    if not told["changes"] and not told.get("finishes"):
        return
    manager.download(request, present)
    if request.get("keep_in"):
        os.makedirs(request["keep_in"], mode=0o700, exist_ok=True)
        answer["kept"], answer["missing"] = manager.keep(told["changes"], request["keep_in"])
    held = manager.held()
    lifted = [c["name"] for c in told["changes"] if c["name"] in held]
    if lifted:
        manager.unlock(lifted)
    manager.apply(request, present)


def _settle(manager, request, before, answer):
    """Outcome by what is there, never by exit codes: rpm's scriptlets hide theirs."""
    after = manager.present()
    answer["changes"] = mopt_sets.changed(before, after)
    answer["broken"] = _broken(manager)
    wants, leaves = mopt_sets.unmet(request["install"], request["remove"], after)
    is_done = not wants and not leaves and not _ours(answer["broken"], request)
    if is_done and not answer["failed"]:
        answer["outcome"] = "done"
    elif answer["changes"] or _ours(answer["broken"], request):
        answer["outcome"] = "half-way"
    if not is_done and request["manager"] == "dnf":
        answer["broken"] = manager.broken()
    if not is_done and not answer["failed"]:
        left = [w["name"] for w in wants] + leaves
        answer["failed"] = "the package manager ended well, but these are not as wanted: " + ", ".join(left)
    return answer


def _write(path, value):
    with open(path + ".part", "w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".part", path)


def _locked(request):
    """The lock of all transactions, or None when somebody else had it for too long."""
    path = request.get("lock", LOCK)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    end = time.time() + request.get("lock_timeout_s", 120)
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except OSError:
            if time.time() > end:
                os.close(handle)
                return None
            time.sleep(0.5)


def start_of(pid):
    """When a process started, in the kernel's own count; empty when there is none."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def main(argv):
    """Entry of the detached process. The answer goes to the folder, never to a pipe that may be gone."""
    act, folder = argv
    with open(os.path.join(folder, "request.json")) as file:
        request = json.load(file)
    with open(os.path.join(folder, act + ".log"), "a") as log:
        try:
            if act == "simulate":
                answer = simulate(request, log)
            elif act == "update":
                answer = update(request, log)
            else:
                _write(os.path.join(folder, "state.json"), {"pid": os.getpid(), "start": start_of(os.getpid())})
                lock = _locked(request)
                if lock is None:
                    said = "another package transaction of mopt-doctor holds the lock %s" % request.get("lock", LOCK)
                    answer = {"failed": "LockError: " + said, "outcome": "unchanged", "changes": []}
                else:
                    answer = run(request, folder, log)
        except Exception:
            answer = {"failed": traceback.format_exc()[-4000:], "outcome": "unknown", "changes": [], "deviations": []}
    _write(os.path.join(folder, "result.json" if act == "run" else act + "d.json"), answer)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
