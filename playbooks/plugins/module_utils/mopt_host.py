"""What roles compare on a host: kernels, modules on disk and loaded. Reads files and argument lists. Python 3.6 syntax."""

import glob
import os
import re
import shutil
import signal
import subprocess

__all__ = [
    "boot_id", "command", "dkms", "loaded_version", "module_on_disk", "next_kernel", "raw_text_of", "running_kernel", "text_of",
]  # fmt: skip

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def text_of(path, limit=1 << 20):
    """Text of a file, stripped; empty where it cannot be read."""
    return raw_text_of(path, limit).strip()


def raw_text_of(path, limit=16 << 20):
    """The same with every byte of it."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(limit)
    except OSError:
        return ""


def command(argv, timeout_s=120, surroundings=None):
    """`(exit code, output and errors)`; 127 where there is no such command, 124 when it took too long."""
    if shutil.which(argv[0], path=PATH) is None:
        return 127, ""
    environment = dict({"PATH": PATH, "LC_ALL": "C", "HOME": "/root"}, **(surroundings or {}))
    # In a session of its own: what a child of it left running would hold the pipe, and the wait would have no end.
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    except OSError as fault:
        # A script whose interpreter is not there is as good as none.
        return 127, str(fault)
    try:
        said = process.communicate(timeout=timeout_s)[0]
    except subprocess.TimeoutExpired:
        _end(process)
        return 124, "%s took longer than %d s" % (argv[0], timeout_s)
    return process.returncode, said.decode("utf-8", "replace")


def _end(process):
    """The command and what it started; none of it is anybody else's."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.stdout.close()
    # One that hangs in the kernel ends when the kernel lets it: it is not waited for.
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        pass


def boot_id():
    return text_of("/proc/sys/kernel/random/boot_id")


def running_kernel():
    """As `/proc` says it: what `uname` says, without a process."""
    return text_of("/proc/sys/kernel/osrelease") or os.uname()[2]


def next_kernel():
    """The kernel that the boot loader takes by default: what grubby says, else the newest in /boot."""
    code, text = command(["grubby", "--default-kernel"])
    match = re.search(r"vmlinuz-(\S+)", text)
    if code == 0 and match:
        return match.group(1)
    releases = [os.path.basename(p)[len("vmlinuz-") :] for p in glob.glob("/boot/vmlinuz-*")]
    releases = [r for r in releases if "rescue" not in r and not r.endswith(".old")]
    return max(releases, key=_natural) if releases else running_kernel()


def _natural(text):
    return [(1, int(w), "") if w.isdigit() else (0, 0, w) for w in re.findall(r"\d+|[^\d]+", text)]


def loaded_version(module):
    """Version of a loaded module: empty where it is not loaded, `?` where it tells none."""
    folder = "/sys/module/" + module
    if not os.path.isdir(folder):
        return ""
    # Parameters of what is built in make a folder, too; what is loaded has a state.
    if not os.path.exists(folder + "/initstate"):
        return ""
    return text_of(folder + "/version") or "?"


def module_on_disk(module, kernel):
    """Version of the module that this kernel would load; empty where it has none."""
    code, text = command(["modinfo", "-k", kernel, "-F", "version", module])
    return text.strip().splitlines()[-1].strip() if code == 0 and text.strip() else ""


def dkms():
    """Lines of `dkms status`."""
    code, text = command(["dkms", "status"])
    return sorted(line.strip() for line in text.splitlines() if line.strip()) if code == 0 else []
