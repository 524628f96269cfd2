#!/usr/bin/env python3
"""Collects the evidence of one host into a bundle (`mopt.evidence/1`): everything asked at once, nothing waited for for ever.

Python 3.6 syntax, standard library only, and one file, longer than this project's others, because
it is copied to hosts and run there by itself. Its witnesses lie beside it (`witness_gpu.py`,
`witness_host.py`, `witness_env.py`); without them those items say so.

    python3 -I collector.py --output DIR|-  [--budget SECONDS] [--sysroot DIR] [--site DIR]… [--env PATH]…

The parent opens no file of the host. Each question is put by a forked child, in a session of its
own; the parent owns the deadlines, names what is stuck (pid, state, wait channel), kills it and
waits for nothing that cannot be killed. Children hold no descriptor but their own pipes, so a
reader of the collector's output sees its end even when one of them never dies.
"""

import ctypes
import errno
import gc
import json
import os
import re
import select
import signal
import stat
import struct
import sys
import time

TYPE_CHECKING = False  # the import of typing costs 3 ms
if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = "mopt.evidence/1"
VERSION = "1"

KIB = 1024
MIB = 1024 * KIB

# --- what is collected ----------------------------------------------------------------------------


class Row:
    """One question: what is asked and why, whether it needs root, its time limit and cap in bytes."""

    def __init__(
        self, ask: "str | tuple[str, ...]", why: str, root: bool = False, timeout_s: float = 5.0, cap: int = 64 * KIB,
        lane: str = "files", keep: str = "first", live: bool = False, finds: str = "",
        systemd: bool = False, needs: str = "", lines: bytes = b""
    ) -> None:
        self.ask = ask
        self.why = why
        self.root = root
        self.timeout_s = timeout_s
        self.cap = cap
        self.lane = lane
        self.keep = keep
        self.live = live
        self.finds = finds
        self.systemd = systemd
        self.needs = needs
        self.lines = lines

    @property
    def argv(self) -> "tuple[str, ...]":
        """Of a command; empty for anything else."""
        return self.ask if isinstance(self.ask, tuple) else ()

    @property
    def text(self) -> str:
        return self.ask if isinstance(self.ask, str) else "command:" + " ".join(self.ask)


DPKG_FORMAT = "${Package}\\t${Version}\\t${Architecture}\\t${db:Status-Abbrev}\\t${Maintainer}\\n"
RPM_FORMAT = "%{NAME}\\t%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\\t%{ARCH}\\tinstalled\\t%{VENDOR}\\n"
PACKAGES = (
    "*nvidia*", "cuda*", "libcuda*", "libcu*", "libnccl*", "libnv*", "libxnvctrl*", "tensorrt*", "nvlink*", "nvlsm*",
    "datacenter-gpu-manager*", "xserver-xorg-video-nvidia*", "*nouveau*", "dkms", "kmod", "gcc", "gcc-[0-9]*",
    "linux-image-*", "linux-headers-*", "linux-modules-*", "kernel", "kernel-core", "kernel-devel*", "kernel-headers",
    "kernel-modules*", "docker*", "moby-engine", "containerd*", "podman*", "cri-o*", "mlnx*", "doca*", "mokutil",
    "rdma-core", "ofed*", "infiniband-diags", "kubelet", "crun", "runc",
    "unattended-upgrades", "dnf-automatic", "python3-dnf-plugin-versionlock", "libc6", "glibc",
)
UNITS = (
    "nvidia-persistenced.service", "nvidia-fabricmanager.service", "nvidia-imex.service", "nvidia-dcgm.service",
    "nvidia-cdi-refresh.service", "nvidia-cdi-refresh.path", "nvidia-powerd.service", "nvidia-gridd.service",
    "nvidia-suspend.service", "nvidia-resume.service", "dkms.service", "docker.service", "containerd.service",
    "crio.service", "podman.service", "kubelet.service", "k3s.service", "k3s-agent.service", "rke2-server.service",
    "rke2-agent.service", "snap.docker.dockerd.service", "snap.microk8s.daemon-kubelite.service", "slurmd.service",
    "openibd.service",
    "unattended-upgrades.service", "apt-daily-upgrade.timer", "dnf-automatic.timer", "dnf-automatic-install.timer",
    "packagekit.service", "display-manager.service",
)
UNIT_PROPERTIES = "--property=Id,LoadState,ActiveState,SubState,UnitFileState,Result"
PCI = "/sys/bus/pci/devices/<pci>/"
EFIVARS = "/sys/firmware/efi/efivars/{SecureBoot,SetupMode}-8be4df61-93ca-11d2-aa0d-00e098032b8c"

#: One row a question. `ask`: `file:`, `stat:` with `{a,b}`, `*` and `<set>` (see MEMBERS), or a
#: command's argv, or a witness. `live`: asks the running kernel. `finds`: what later rows' `<finds>`
#: stands for. `systemd`: asked only where systemd runs. `needs`: asked only where this path exists.
#: `lines`: of a file only the lines that hold this. Caps in bytes;
#: `keep`: the first ones, the last ones, or `part` where no more is wanted.
TABLE = (
    Row("stat:/lib/modules/*", "kernels installed", lane="look"),
    Row("stat:/lib/modules/<kernel>/{build,build/Makefile,vmlinuz}", "headers and image of each kernel", lane="look"),
    Row("stat:/boot/vmlinuz-<kernel>", "which kernels can boot", lane="look"),
    Row("stat:<module>", "NVIDIA module files of each kernel", lane="look", finds="module"),
    Row("stat:/usr/local/{cuda,cuda-*}", "CUDA toolkits", lane="look", finds="toolkit"),
    Row("stat:<callerdir>", "directories only the caller's PATH and LD_LIBRARY_PATH name", lane="look"),
    Row("stat:<libdir>/{libcuda,libnvidia-ml}.so*", "user-space driver libraries", lane="look", finds="library"),
    Row("stat:<containerdir>/libcuda.so*", "a driver that a container manages (GPU Operator, GKE)", lane="look"),
    Row("file:/{etc,usr/lib}/os-release", "distribution"),
    Row("file:/etc/{redhat-release,debian_version}", "distribution"),
    Row("file:/proc/{version,cmdline,stat,modules,meminfo,self/limits}", "kernel, boot time, modules, memory", cap=256 * KIB),
    Row("file:/proc/sys/kernel/{osrelease,hostname,tainted}", "kernel"),
    Row("file:/proc/sys/kernel/random/boot_id", "which boot this was"),
    Row("file:/proc/cpuinfo", "processor, hypervisor flag", cap=16 * KIB, keep="part"),
    Row("file:/sys/kernel/security/lockdown", "lockdown", root=True),
    Row("file:" + EFIVARS, "Secure Boot"),
    Row("file:/sys/class/dmi/id/{sys_vendor,product_name,bios_vendor,chassis_type}", "which machine or hypervisor"),
    Row("file:/{sys/hypervisor/type,proc/1/cgroup,run/systemd/container}", "virtual machine or container"),
    Row("stat:/proc/self/ns/{pid,uts,cgroup}", "in the first namespaces of its kernel, or in a container's"),
    Row("file:/sys/module/{nvidia*,nouveau,nova*}/{version,taint,refcnt,srcversion}", "loaded modules"),
    Row("file:/sys/module/{nvidia*,nouveau,nova*}/parameters/*", "their parameters", root=True),
    Row("file:/{etc,run,usr/lib,usr/local/lib}/modprobe.d/*.conf", "module options and blacklists"),
    Row("file:/etc/{ld.so.conf,ld.so.conf.d/*.conf}", "where the loader looks"),
    Row("file:/var/lib/dkms/*/*/build/make.log", "why a DKMS build failed", keep="last"),
    Row("file:/var/lib/dkms/*/*/*/*/log/make.log", "why a DKMS build failed", keep="last"),
    Row("file:/usr/local/{cuda,cuda-*}/version.{json,txt}", "toolkit versions"),
    Row("file:/var/log/{apt/history.log,dnf.rpm.log}", "what was installed when", root=True, cap=256 * KIB, keep="last"),
    Row("file:/etc/apt/apt.conf.d/*", "automatic updates"),
    Row("file:/etc/dnf/{automatic.conf,plugins/versionlock.list}", "automatic updates, version locks"),
    Row("file:/etc/yum/pluginconf.d/versionlock.list", "version locks"),
    Row("file:/run/reboot-required.pkgs", "is a reboot due"),
    Row("file:/boot/grub2/grubenv", "next kernel", root=True),
    Row("stat:/sys/module/{nvidia,nouveau}", "is a GPU driver loaded"),
    Row("stat:/sys/firmware/efi", "booted through EFI"),
    Row("stat:/dev/{nvidiactl,nvidia0,nvidia-uvm,nvidia*,nvidia-caps/*,dri/*,dxg}", "device nodes"),
    Row("stat:/{usr/lib/wsl,.dockerenv,run/.containerenv}", "WSL2 or container"),
    Row("stat:/etc/{nv_tegra_release,dgx-release}", "whose system this is"),
    Row("stat:/run/reboot-required", "is a reboot due"),
    Row("stat:/usr/bin/{docker,dockerd,containerd,podman,crio,kubelet}", "container engines"),
    Row("stat:/usr/local/bin/{dockerd,containerd,crio,k3s,rke2}", "container engines"),
    Row("stat:/{snap/bin/docker,snap/microk8s/current,opt/rke2/bin/rke2}", "container engines"),
    Row("stat:/run/{docker.sock,user/*/docker.sock}", "does Docker run, and for whom"),
    Row("file:/{etc/docker,var/snap/docker/current/config}/daemon.json", "runtimes of Docker"),
    Row("file:/etc/containerd/{config.toml,conf.d/*.toml}", "runtimes of containerd", cap=256 * KIB),
    Row("file:/var/lib/rancher/{k3s,rke2}/agent/etc/containerd/config*", "runtimes of k3s and RKE2", root=True),
    Row("file:/etc/crio/{crio.conf,crio.conf.d/*}", "runtimes of CRI-O"),
    Row("file:/etc/containers/{containers.conf,containers.conf.d/*.conf}", "runtimes of Podman"),
    Row("stat:/usr/bin/{nvidia-container-runtime,nvidia-container-runtime-hook,nvidia-container-runtime.cdi}",
        "NVIDIA Container Toolkit"),
    Row("stat:/usr/bin/{nvidia-container-runtime.legacy,nvidia-ctk,nvidia-cdi-hook}", "NVIDIA Container Toolkit"),
    Row("file:/{etc,usr/local/nvidia/toolkit/.config}/nvidia-container-runtime/config.toml", "NVIDIA Container Toolkit"),
    Row("stat:/{sbin,usr/sbin}/{ldconfig,ldconfig.real}", "what the NVIDIA Container Toolkit writes caches with"),
    Row("file:/{etc,run}/cdi/*", "devices for containers (CDI)", cap=MIB),
    Row("stat:<cdipath>", "is there what the CDI specifications name"),
    Row("stat:/dev/char/195:*", "links without which systemd takes GPUs from containers"),
    Row("stat:/sys/fs/cgroup/cgroup.controllers", "cgroup version"),
    Row("file:/sys/fs/selinux/{enforce,booleans/container_use_devices}", "SELinux", needs="/sys/fs/selinux"),
    Row("file:/etc/selinux/config", "SELinux"),
    Row("file:/var/log/audit/audit.log", "what SELinux denied", root=True, cap=MIB, keep="last", lines=b"avc:  denied"),
    Row("stat:/run/nvidia/{driver,toolkit,validations}", "is the GPU Operator here"),
    Row("stat:/var/lib/kubelet/device-plugins/nvidia*", "is a device plugin registered", root=True),
    Row("file:/proc/devices", "device classes of the driver", needs="/sys/module/nvidia"),
    Row("stat:/dev/nvidia-caps-imex-channels/*", "IMEX channels"),
    Row("file:/etc/nvidia-imex/nodes_config.cfg", "IMEX peers"),
    Row("stat:/usr/bin/{nv-fabricmanager,nvlsm}", "Fabric Manager, subnet manager"),
    Row("file:/var/log/fabricmanager.log", "why Fabric Manager fails", root=True, keep="last"),
    Row("file:/etc/apt/{sources.list,sources.list.d/*.list,sources.list.d/*.sources}", "where packages come from"),
    Row("file:/etc/{yum.repos.d/*.repo,dnf/modules.d/*.module}", "where packages come from", cap=MIB),
    Row("stat:<keyring>", "is there the key that a repository names"),
    Row("file:/proc/sys/{kernel/numa_balancing,vm/swappiness}", "memory and NUMA"),
    Row("file:/sys/kernel/mm/transparent_hugepage/enabled", "huge pages"),
    Row("file:/sys/devices/system/clocksource/clocksource0/current_clocksource", "clock"),
    Row("file:/sys/devices/system/node/node*/{cpulist,meminfo}", "NUMA nodes"),
    Row("file:/proc/self/cgroup", "limits of this session"),
    Row("file:<cgroup>/memory.max", "limits of this session"),
    Row("file:/sys/fs/cgroup/memory/memory.limit_in_bytes", "limits of this session", needs="/sys/fs/cgroup/memory"),
    Row("file:" + PCI + "{vendor,device,subsystem_vendor,subsystem_device,class,numa_node,resource,power_state}",
        "GPUs, NVSwitches, other displays", lane="pci"),
    Row("file:" + PCI + "{current,max}_link_{speed,width}", "PCIe links", lane="pci"),
    Row("stat:" + PCI + "{driver,physfn}", "which driver is bound; a slice of another function (SR-IOV)", lane="pci"),
    Row("file:" + PCI + "config", "does the device answer", cap=64, lane="pci", keep="part"),
    Row("stat:/sys/bus/pci/devices/<gpu>", "what bridges lead to it", lane="pci"),
    Row("file:/sys/bus/pci/devices/<gpu>/iommu_group/type", "does the IOMMU translate", lane="pci"),
    Row("file:/sys/bus/pci/devices/<bridge>/config", "ACS on the way from GPU to GPU", root=True, cap=4 * KIB, lane="pci",
        keep="part"),
    Row("stat:/sys/class/infiniband/<ib>/device", "InfiniBand and RoCE", lane="pci"),
    Row("file:/sys/class/infiniband/<ib>/{fw_ver,device/numa_node}", "InfiniBand and RoCE", lane="pci"),
    Row("file:/sys/class/infiniband/<ib>/ports/*/{state,phys_state,rate,link_layer}", "InfiniBand and RoCE", lane="pci"),
    Row("file:/proc/driver/nvidia/{version,params}", "loaded driver", lane="driver"),
    Row("file:/proc/driver/nvidia/gpus/*/information", "GPUs as the driver names them", lane="driver"),
    Row(("uname", "-a"), "kernel and architecture", live=True),
    Row(("systemd-detect-virt",), "virtual machine or container", live=True, systemd=True),
    Row(("nvidia-smi", "-q", "-x"), "GPUs", timeout_s=60.0, cap=8 * MIB, lane="gpu", live=True),
    Row(("modinfo", "<module>"), "flavour, version and signature of module files"),
    Row(("dkms", "status"), "modules built on this host", timeout_s=8.0),
    Row(("ldconfig", "-p"), "the loader's cache", cap=MIB),
    Row(("gcc", "--version"), "compiler for DKMS"),
    Row(("nvcc", "--version"), "toolkit version"),
    Row(("<toolkit>/bin/nvcc", "--version"), "toolkit version"),
    Row(("dpkg-query", "-W", "-f=" + DPKG_FORMAT) + PACKAGES, "installed packages", timeout_s=8.0, cap=2 * MIB),
    Row(("rpm", "-qa", "--qf", RPM_FORMAT) + PACKAGES, "installed packages", timeout_s=10.0, cap=2 * MIB),
    Row(("dpkg", "-S", "<libraries>"), "who owns the driver libraries", timeout_s=8.0),
    Row(("rpm", "-qf", "--qf", "%{NAME}\\n", "<libraries>"), "who owns the driver libraries", timeout_s=8.0),
    Row(("systemctl", "show") + UNITS + (UNIT_PROPERTIES,), "services", live=True, systemd=True),
    Row(("dmesg",), "kernel messages", root=True, timeout_s=8.0, cap=512 * KIB, keep="last", live=True),
    Row(("journalctl", "-k", "-b", "0"), "kernel messages", root=True, timeout_s=10.0, cap=MIB, keep="last", live=True,
        systemd=True),
    Row(("journalctl", "-k", "-b", "-1"), "kernel messages of the boot before", root=True, timeout_s=10.0, cap=MIB,
        keep="last", live=True, systemd=True),
    Row(("journalctl", "-u", "nvidia-fabricmanager", "-b", "0"), "why Fabric Manager fails", root=True, timeout_s=8.0,
        keep="last", live=True, systemd=True, needs="/usr/bin/nv-fabricmanager"),
    Row(("mokutil", "--sb-state"), "Secure Boot", live=True),
    Row(("mokutil", "--list-enrolled"), "keys that may sign modules", cap=256 * KIB, live=True, needs="/sys/firmware/efi"),
    Row(("mokutil", "--list-new"), "keys that wait for the console", cap=256 * KIB, live=True, needs="/sys/firmware/efi"),
    Row(("nvidia-ctk", "--version"), "NVIDIA Container Toolkit"),
    Row(("ofed_info", "-s"), "MLNX_OFED or DOCA-OFED"),
    Row(("grubby", "--default-kernel"), "next kernel", root=True, live=True),
    Row("nvml", "GPUs, from libnvidia-ml", timeout_s=60.0, cap=4 * MIB, lane="gpu", live=True),
    Row("cuinit", "does CUDA start", timeout_s=60.0, cap=MIB, lane="gpu", live=True),
    Row("cuinit-caller", "does CUDA start with the caller's LD_LIBRARY_PATH", timeout_s=60.0, cap=MIB, lane="gpu", live=True),
    Row("distro", "distribution", cap=MIB, lane="host"),
    Row("resources", "memory, disks, limits (not under --sysroot)", cap=MIB, lane="host"),
    Row("machine", "processors, IOMMU, clock, locks of package managers (not under --sysroot)", cap=MIB, lane="host"),
    Row("docker", "Docker's own word, where it runs (not under --sysroot)", cap=MIB, lane="host"),
    Row("environments", "Python environments with an engine in them", cap=4 * MIB, lane="env"),
)

CALLER_VARIABLES = (
    "LD_LIBRARY_PATH", "LD_PRELOAD", "PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "CUDA_MODULE_LOADING", "VIRTUAL_ENV", "CONDA_PREFIX",
    "container", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID",
)
#: Before the names of the caller's variables, where `live.py` hands them over so that they steer
#: nothing here. By itself it says that they are handed over.
CALLER_PREFIX = "MOPT_CALLER_"

COMMAND_DIRS = (
    "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin", "/usr/local/cuda/bin",
    "/usr/local/nvidia/bin",
)
CLEAN_ENVIRONMENT = {"PATH": ":".join(COMMAND_DIRS), "LC_ALL": "C", "HOME": "/"}
DEFAULT_LIBRARY_DIRS = (
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu", "/lib64", "/lib",
)
NIX_LIBRARY_DIR = "/run/opengl-driver/lib"
LIBRARY_DIRS = DEFAULT_LIBRARY_DIRS[:4] + (
    "/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", NIX_LIBRARY_DIR,
)
#: Library directories below the roots of driver containers: programs of the host do not load from them.
CONTAINER_LIBRARY_DIRS = tuple(
    "/run/nvidia/driver/" + d for d in ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64")
) + ("/home/kubernetes/bin/nvidia/lib64",)

#: Witnesses of the running host; no sysroot has an answer.
OUTER_ONLY = ("resources", "machine", "docker")

#: Options that turn a tool to another root; `{}` is the sysroot.
ROOT_OPTIONS = {
    "dpkg-query": ("--admindir={}/var/lib/dpkg",),
    "dpkg": ("--admindir={}/var/lib/dpkg",),
    "rpm": ("--root={}",),
    "ldconfig": ("-C", "{}/etc/ld.so.cache"),
    "dkms": ("--dkmstree", "{}/var/lib/dkms"),
}

#: A journal may be gigabytes: so many of its newest lines are more than its cap holds.
NEWEST_LINES = ("-n", "20000")

#: A file that takes longer than this is left to its child, and another goes on with the rest.
OVERTAKE_S = 0.3
#: So many children may wait in one lane; then the lane waits with them.
LATE_MAX = 12
#: Rows that need what lane `look` finds start by then with what is known, and go on when it ends.
LOOK_WAIT_S = 2.0
#: How long the search for the tools themselves may hold up the commands.
TOOLS_WAIT_S = 0.25
#: How long output may come after a command's own end, from what it left behind.
DRAIN_S = 0.15
#: A log is read to its end to keep its newest part; no further than this.
DRAIN_MAX_BYTES = 64 * MIB
#: Of the error stream so much is kept, and so much endured.
STDERR_CAP = 16 * KIB
STDERR_MAX = 4 * MIB
#: How long the killed are waited for.
SWEEP_S = 0.25
MATCHES_MAX = 512
KERNELS_MAX = 12
#: Of what a CDI specification, a repository, a bus names, so much is looked at.
CDI_PATHS_MAX = 128
KEYRINGS_MAX = 32
BRIDGES_MAX = 64
PORTS_MAX = 32


def braces(text: str) -> "list[str]":
    """`a{b,c}d` as `abd`, `acd`; several groups multiply."""
    found = re.search(r"\{([^{}]*)\}", text)
    if not found:
        return [text]
    tail = braces(text[found.end():])
    return [text[:found.start()] + middle + end for middle in found.group(1).split(",") for end in tail]


def command_name(argv: "tuple[str, ...]") -> str:
    """A command's file name in the bundle, as `doctor.core.evidence.command_name` makes it.

    A tool asked for by its path keeps the path, so that the nvcc of two toolkits do not collide.
    """
    tool = argv[0].lstrip("/")
    words = [tool] + [word.lstrip("-") for word in argv[1:]]
    return re.sub(r"[^A-Za-z0-9._+@=,:-]+", "_", "-".join(word for word in words if word))[:180]


def printable(path: str) -> str:
    """A path as text for JSON: bytes that are not UTF-8 become escapes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


# --- the root that is looked at -------------------------------------------------------------------


class Root:
    """A directory taken as `/`: paths below it are opened by descriptor, links cannot lead out."""

    def __init__(self, top: str) -> None:
        self.top = top.rstrip("/") or "/"
        self.is_outer = self.top == "/"
        self._owners = {}  # type: dict[str, dict[int, str]]

    def open(self, path: str, follow: bool = True) -> int:
        """An O_PATH descriptor: no device is touched, no FIFO waited for. Raises OSError."""
        if self.is_outer:
            return os.open(path, os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
        return self._walk(path, follow)

    def _walk(self, path: str, follow: bool) -> int:
        fds = [os.open(self.top, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)]
        todo = path.split("/")[::-1]
        links = 0
        try:
            while todo:
                name = todo.pop()
                if name in ("", "."):
                    continue
                if name == "..":
                    if len(fds) > 1:
                        os.close(fds.pop())
                    continue
                fds.append(os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fds[-1]))
                if (todo or follow) and stat.S_ISLNK(os.fstat(fds[-1]).st_mode):
                    links += 1
                    if links > 40:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                    target = os.readlink("", dir_fd=fds[-1])
                    os.close(fds.pop())
                    while target.startswith("/") and len(fds) > 1:
                        os.close(fds.pop())
                    todo.extend(target.split("/")[::-1])
            return os.dup(fds[-1])
        finally:
            for fd in fds:
                os.close(fd)

    def open_file(self, path: str) -> int:
        """A readable descriptor of a regular file, the very one that was looked at. Raises OSError."""
        seen = self.open(path)
        try:
            kind = kind_of(os.fstat(seen).st_mode)
            if kind != "file":
                raise OSError(0, "not a regular file: {}".format(kind))
            return reopen(seen, os.O_NONBLOCK | os.O_NOCTTY)
        finally:
            os.close(seen)

    def names(self, path: str) -> "list[str]":
        """The names in a directory, sorted. Raises OSError."""
        seen = self.open(path)
        try:
            fd = reopen(seen, os.O_DIRECTORY)
        finally:
            os.close(seen)
        try:
            return sorted(os.listdir(fd))
        finally:
            os.close(fd)

    def real(self, path: str) -> str:
        """The outer, link-free path of a path below this root. Raises OSError."""
        fd = self.open(path)
        try:
            return os.readlink("/proc/self/fd/{}".format(fd))
        finally:
            os.close(fd)

    def read(self, path: str, cap: int = MIB) -> bytes:
        """The first `cap` bytes of a file. Raises OSError."""
        fd = self.open_file(path)
        try:
            return read_first(fd, cap)[0]
        finally:
            os.close(fd)

    def exists(self, path: str) -> bool:
        try:
            os.close(self.open(path))
        except OSError:
            return False
        return True

    def is_live(self) -> bool:
        """Whether questions to the running kernel make sense here."""
        return self.is_outer or self.exists("/proc/version")

    def owner(self, status: os.stat_result) -> str:
        """`USER:GROUP` from this root's own files: a name service could hang."""
        return "{}:{}".format(self._name("/etc/passwd", status.st_uid), self._name("/etc/group", status.st_gid))

    def _name(self, table: str, number: int) -> str:
        if number == 0:
            return "root"
        if table not in self._owners:
            try:
                lines = self.read(table).decode("utf-8", "replace").splitlines()
            except OSError:
                lines = []
            fields = [line.split(":") for line in lines]
            self._owners[table] = {int(f[2]): f[0] for f in fields if len(f) > 2 and f[2].isdigit()}
        return self._owners[table].get(number, str(number))

    def distrust(self, path: str) -> str:
        """Why a program or library at `path` must not be run; empty when it may. Raises OSError.

        The file, every directory that leads to it and every link's target are looked at. A sticky
        directory (`/tmp`) is no danger to the entries of others in it.
        """
        reason = "" if self.is_outer else Root("/").distrust(os.path.realpath(self.top))
        return reason or self._distrust_below(path)

    def distrust_folder(self, path: str) -> str:
        """Why nothing may be searched for in a folder: what others put there would be found as well.

        A sticky one keeps others from replacing a file, not from adding one beside it.
        """
        status = os.stat(self.real(path))
        groups = (0,) if os.geteuid() == 0 else (0, os.getegid())
        if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and status.st_gid not in groups):
            return "{} is writable by others".format(path)
        return self.distrust(path)

    def _distrust_below(self, path: str) -> str:
        base = "" if self.is_outer else os.path.realpath(self.top)
        here, todo, links = [], path.split("/")[::-1], 0  # type: list[str], list[str], int
        reason = refuse(base or "/", os.lstat(base or "/"))
        while todo and not reason:
            name = todo.pop()
            if name in ("", "."):
                continue
            if name == "..":
                del here[-1:]
                continue
            place = "/".join([base] + here + [name])
            status = os.lstat(place)
            reason = refuse(place, status)
            if not stat.S_ISLNK(status.st_mode):
                here.append(name)
                continue
            links += 1
            if links > 40:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            target = os.readlink(place)
            here = [] if target.startswith("/") else here
            todo.extend(target.split("/")[::-1])
        return reason


def reopen(seen: int, flags: int) -> int:
    """A readable descriptor of what an O_PATH descriptor stands for. Raises OSError."""
    try:
        return os.open("/proc/self/fd/{}".format(seen), os.O_RDONLY | os.O_CLOEXEC | flags)
    except FileNotFoundError:
        if os.path.exists("/proc/self/fd"):
            raise
        raise OSError(0, "cannot be read where /proc is not mounted")


def refuse(path: str, status: os.stat_result) -> str:
    """Why this one entry could be changed by somebody we need not trust; empty when it could not."""
    me = os.geteuid()
    if status.st_uid not in (0, me):
        return "{} is owned by uid {}".format(path, status.st_uid)
    if stat.S_ISLNK(status.st_mode) or (stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX):
        return ""
    groups = (0,) if me == 0 else (0, os.getegid())
    if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and status.st_gid not in groups):
        return "{} is writable by others".format(path)
    return ""


def kind_of(mode: int) -> str:
    for name, test in (
        ("file", stat.S_ISREG), ("dir", stat.S_ISDIR), ("link", stat.S_ISLNK), ("char", stat.S_ISCHR),
        ("block", stat.S_ISBLK), ("fifo", stat.S_ISFIFO), ("socket", stat.S_ISSOCK),
    ):
        if test(mode):
            return name
    return "unknown"


def read_first(fd: int, cap: int) -> "tuple[bytes, bool]":
    """The first `cap` bytes, and whether there are more."""
    parts, left = [], cap + 1
    while left > 0:
        part = os.read(fd, min(left, 256 * KIB))
        if not part:
            break
        parts.append(part)
        left -= len(part)
    data = b"".join(parts)
    return data[:cap], len(data) > cap


def read_file(root: Root, path: str, cap: int, keep: str) -> "tuple[bytes, bool]":
    """A file's first or newest `cap` bytes, and whether that is less than all. Raises OSError."""
    fd = root.open_file(path)
    try:
        size = os.fstat(fd).st_size
        is_cut = keep == "last" and size > cap
        if is_cut:
            os.lseek(fd, size - cap, os.SEEK_SET)
        data, has_more = read_first(fd, cap)
        return data, is_cut or has_more
    finally:
        os.close(fd)


def failure(exc: OSError) -> "tuple[str, str]":
    """Item status and detail for what the system said."""
    if exc.errno in (errno.ENOENT, errno.ENOTDIR):
        return "missing", str(exc.strerror)
    if exc.errno in (errno.EACCES, errno.EPERM):
        return "denied", str(exc.strerror)
    return "error", exc.strerror or str(exc)


# --- the caller's directories ---------------------------------------------------------------------


class Caller:
    """The environment of whoever asked: recorded, and used only where it passes the ownership rule."""

    def __init__(self, environment: "dict[str, str]", environments: "list[str]", only_named: bool = False) -> None:
        self.values = environment
        self.environments = environments
        self.only_named = only_named

    def _directories(self, variable: str, known: "tuple[str, ...]") -> "list[str]":
        named = [d.rstrip("/") or "/" for d in self.values.get(variable, "").split(":") if d.startswith("/")]
        return [d for i, d in enumerate(named) if d not in known and d not in named[:i]][:32]

    def command_dirs(self) -> "list[str]":
        return self._directories("PATH", COMMAND_DIRS)

    def library_dirs(self) -> "list[str]":
        return self._directories("LD_LIBRARY_PATH", ())

    def all_dirs(self) -> "list[str]":
        return self.command_dirs() + [d for d in self.library_dirs() if d not in LIBRARY_DIRS]


def loader_would_find(root: Root, soname: str) -> "list[str]":
    """Paths at which the loader would look for a library: its cache, then its built-in directories."""
    found = []  # type: list[str]
    try:
        cache = root.read("/etc/ld.so.cache", 16 * MIB)
    except OSError:
        cache = b""
    for match in re.finditer(rb"\0(/[^\0]+/" + re.escape(soname.encode()) + rb")(?=\0)", cache):
        found.append(os.fsdecode(match.group(1)))
    candidates = found + [d + "/" + soname for d in (DEFAULT_LIBRARY_DIRS if root.is_outer else LIBRARY_DIRS)]
    return [path for i, path in enumerate(candidates) if path not in candidates[:i] and root.exists(path)]


def library_of(root: Root, soname: str, dirs: "list[str]") -> "tuple[str, str, str]":
    """(what to load, note, why not): a soname for the loader's own search, else an absolute path.

    `dirs` are the caller's; they serve only where the loader itself finds nothing, and after them the
    directory that NixOS writes into its programs.
    """
    own = loader_would_find(root, soname)
    for path in own:
        reason = root.distrust(path)
        if reason:
            return "", "", "not loaded: " + reason
    if own:
        return (soname if root.is_outer else root.real(own[0])), "", ""
    refused = ""
    for directory in dirs + [NIX_LIBRARY_DIR]:
        path = directory + "/" + soname
        if not root.exists(path):
            continue
        refused = root.distrust(path) or root.distrust_folder(directory)
        if not refused:
            place = path if root.is_outer else root.real(path)
            note = "found in " if directory == NIX_LIBRARY_DIR else "found through the caller's LD_LIBRARY_PATH: "
            return place, note + directory, ""
    return "", "", "not loaded: " + refused if refused else ""


# --- what a child does ----------------------------------------------------------------------------


def send(fd: int, head: "dict[str, object]", body: bytes = b"") -> None:
    """One frame to the parent: lengths, JSON, bytes."""
    text = json.dumps(head).encode()
    data = memoryview(struct.pack(">II", len(text), len(body)) + text + body)
    while data:
        data = data[os.write(fd, data):]


def now_ms(since: float) -> float:
    return round((time.monotonic() - since) * 1000, 2)


class Asker:
    """Puts the rows of one lane, one by one, and says before each step what it is about to touch."""

    def __init__(self, fd: int, root: Root, caller: Caller, start: float, skip: "set[str]") -> None:
        self.fd = fd
        self.root = root
        self.caller = caller
        self.start = start
        self.skip = skip
        self.is_live = True
        self._listed = {}  # type: dict[str, list[str]]
        self._members = {}  # type: dict[str, list[str]]
        self._there = {}  # type: dict[str, bool]

    def begin(self, key: str, timeout_s: float = 5.0) -> bool:
        """Tells the parent what comes; false when that was answered before, or is stuck elsewhere."""
        if key in self.skip:
            return False
        if not key.startswith(("peek:", "list:")):
            self.skip.add(key)
        send(self.fd, {"at": key, "timeout_s": timeout_s})
        return True

    def is_there(self, path: str) -> bool:
        """Whether a row's condition holds; the answer is an item, too."""
        if path not in self._there:
            self.entry(printable(path), path, Row("stat:" + path, ""))
            self._there[path] = self.begin("peek:" + printable(path)) and self.root.exists(path)
        return self._there[path]

    def ask(self, index: int, row: Row) -> None:
        for pattern in braces(row.text) if not row.needs or self.is_there(row.needs) else []:
            kind, path = pattern.split(":", 1)
            for found in self.expand(path):
                if kind == "file":
                    self.file(printable(found), found, row)
                else:
                    self.entry(printable(found), found, row)
        send(self.fd, {"row": index})

    def file(self, name: str, path: str, row: Row) -> None:
        if not self.begin("file:" + name, row.timeout_s):
            return
        began = time.monotonic()
        item = {"key": "file:" + name, "status": "ok"}  # type: dict[str, object]
        data = b""
        try:
            data, is_cut = read_file(self.root, path, row.cap, row.keep)
            if row.lines:
                data = b"".join(line for line in data.splitlines(True) if row.lines in line)
            item.update(path="files" + name, bytes=len(data))
            if is_cut and row.keep != "part":
                item.update(status="truncated", detail="{} {} bytes kept".format(row.keep, row.cap))
        except OSError as exc:
            item["status"], item["detail"] = failure(exc)
        self.report(item, began, path, data)

    def entry(self, name: str, path: str, row: Row) -> None:
        if not self.begin("stat:" + name, row.timeout_s):
            return
        began = time.monotonic()
        item = {"key": "stat:" + name, "status": "ok"}  # type: dict[str, object]
        try:
            fd = self.root.open(path, follow=False)
        except OSError as exc:
            item["status"], item["detail"] = failure(exc)
            if item["status"] == "missing":
                item["exists"] = False
        else:
            try:
                self._describe(item, fd)
            finally:
                os.close(fd)
            if path in self.caller.all_dirs():
                reason = self.root.distrust(path)
                item.update({"detail": "not used: " + reason} if reason else {})
        if row.finds and item["status"] == "ok":
            item["finds"] = row.finds
        self.report(item, began, path)

    def _describe(self, item: "dict[str, object]", fd: int) -> None:
        status = os.fstat(fd)
        item.update(exists=True, kind=kind_of(status.st_mode), mode="{:04o}".format(stat.S_IMODE(status.st_mode)))
        item["owner"] = self.root.owner(status)
        if item["kind"] == "link":
            item["link"] = printable(os.readlink("", dir_fd=fd))

    def report(self, item: "dict[str, object]", began: float, path: str, data: bytes = b"") -> None:
        # A mounted disk has no /proc of its own: that nothing is there says nothing.
        is_kernel_view = path.startswith(("/proc/", "/sys/", "/dev/", "/run/"))
        if item["status"] == "missing" and is_kernel_view and not self.is_live:
            send(self.fd, {"nothing": item["key"]})
            return
        item.update(start_ms=round((began - self.start) * 1000, 2), ms=now_ms(began))
        send(self.fd, {"item": item}, data)

    def listing(self, path: str) -> "list[str]":
        """The names in a directory; the listing itself is the item `stat:` of the directory."""
        if path in self._listed:
            return self._listed[path]
        names = self._listed[path] = []
        key = "stat:" + printable(path)
        is_new = key not in self.skip
        if is_new:
            self.begin(key)
        elif not self.begin("list:" + printable(path)):
            return names
        began = time.monotonic()
        item = {"key": key, "status": "ok", "exists": True, "kind": "dir"}  # type: dict[str, object]
        try:
            fd = self.root.open(path)
            try:
                self._describe(item, fd)
            finally:
                os.close(fd)
            names.extend(self.root.names(path))
        except OSError as exc:
            item = {"key": key}
            item["status"], item["detail"] = failure(exc)
            if item["status"] == "missing":
                item["exists"] = False
        if is_new:
            self.report(item, began, path)
        return names

    def expand(self, pattern: str) -> "list[str]":
        """The paths a pattern stands for; one without `*` and `<set>` stands for itself."""
        placeholder = re.search(r"<(\w+)>", pattern)
        if placeholder:
            found = []  # type: list[str]
            for member in self.members(placeholder.group(1)):
                if "*" not in member and "<" not in member:
                    found += self.expand(pattern.replace(placeholder.group(0), member, 1))
            return found[:MATCHES_MAX]
        if "*" not in pattern:
            return [pattern]
        head, star, tail = pattern.partition("*")
        directory, prefix = head.rsplit("/", 1)
        suffix, slash, rest = tail.partition("/")
        matches = re.compile(re.escape(prefix) + ".*" + ".*".join(map(re.escape, suffix.split("*"))) + r"\Z", re.S).match
        names = [n for n in self.listing(directory or "/") if n.startswith(prefix) and matches(n)]
        if not slash:
            return [directory + "/" + name for name in names[:MATCHES_MAX]]
        return [p for n in names for p in self.expand(directory + "/" + n + "/" + rest)][:MATCHES_MAX]

    def members(self, name: str) -> "list[str]":
        if name not in self._members:
            self._members[name] = MEMBERS[name](self)
        return self._members[name]

    def link(self, path: str) -> str:
        """Where a link leads, as written; empty when it is none."""
        if not self.begin("list:" + printable(path)):
            return ""
        try:
            fd = self.root.open(path, follow=False)
        except OSError:
            return ""
        try:
            return str(os.readlink("", dir_fd=fd))
        except OSError:
            return ""
        finally:
            os.close(fd)

    def peek(self, path: str, cap: int = MIB) -> bytes:
        """A file read only to find out what else to ask; empty when it cannot be."""
        if not self.begin("peek:" + printable(path)):
            return b""
        try:
            return self.root.read(path, cap)
        except OSError:
            return b""


def pci_addresses(asker: Asker) -> "list[str]":
    """Every function of the vendor, and displays of others."""
    found = []
    for address in asker.listing("/sys/bus/pci/devices"):
        place = "/sys/bus/pci/devices/{}/".format(address)
        is_ours = asker.peek(place + "vendor", 64).strip() == b"0x10de"
        if is_ours or asker.peek(place + "class", 64).startswith(b"0x03"):
            found.append(address)
    return found[:64]


def gpu_addresses(asker: Asker) -> "list[str]":
    """The vendor's displays; functions of other kinds (audio, USB, NVSwitch) are none."""
    place = "/sys/bus/pci/devices/{}/{}"
    ours = [a for a in asker.members("pci") if asker.peek(place.format(a, "vendor"), 64).strip() == b"0x10de"]
    return [a for a in ours if asker.peek(place.format(a, "class"), 64).startswith(b"0x03")]


def bridges(asker: Asker) -> "list[str]":
    """The functions above GPUs, from the link of each; they matter only where there are several GPUs.

    Reading the space of a bridge wakes it: on a laptop with one GPU nothing is touched.
    """
    gpus = [a for a in asker.members("gpu") if a.endswith(".0")]
    found = []  # type: list[str]
    for address in gpus if len(gpus) > 1 else []:
        above = asker.link("/sys/bus/pci/devices/" + address).split("/")[:-1]
        found += [part for part in above if re.match(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z", part)]
    return sorted(set(found))[:BRIDGES_MAX]


def infiniband(asker: Asker) -> "list[str]":
    return asker.listing("/sys/class/infiniband")[:PORTS_MAX]


def cgroups(asker: Asker) -> "list[str]":
    """This process's own group and those above it (version 2): the least of their limits counts."""
    found = re.search(rb"^0::(/.*)$", asker.peek("/proc/self/cgroup", 4 * KIB), re.M)
    if not found or not asker.is_there("/sys/fs/cgroup/cgroup.controllers"):
        return []
    parts = os.fsdecode(found.group(1)).rstrip("/").split("/")[1:9]
    tops = ["/sys/fs/cgroup/" + "/".join(parts[:depth]) for depth in range(len(parts) + 1)]
    return [top.rstrip("/") for top in tops if ".." not in parts]


def cdi_paths(asker: Asker) -> "list[str]":
    """Host paths that CDI specifications name, those with a version (driver libraries) first."""
    named = []  # type: list[bytes]
    for directory in ("/etc/cdi", "/run/cdi"):
        for name in asker.listing(directory)[:16]:
            text = asker.peek(directory + "/" + name, MIB)
            named += re.findall(rb"\b(?:hostPath|path)[\"']?:\s*[\"']?(/[^\s\"',}]{1,400})", text)
    paths = sorted({os.fsdecode(path) for path in named}, key=lambda p: (not re.search(r"\.so\.\d+\.\d", p), p))
    return [path for path in paths if "*" not in path and "<" not in path][:CDI_PATHS_MAX]


def keyrings(asker: Asker) -> "list[str]":
    """Key files that the entries of apt and dnf name."""
    named = []  # type: list[bytes]
    sources = ["/etc/apt/sources.list"] + asker.expand("/etc/apt/sources.list.d/*.list")
    sources += asker.expand("/etc/apt/sources.list.d/*.sources") + asker.expand("/etc/yum.repos.d/*.repo")
    for path in sources[:64]:
        text = asker.peek(path, MIB)
        named += re.findall(rb"(?i)\bsigned-by\s*[:=]\s*(/[^\s\],]{1,400})", text)
        named += re.findall(rb"file://(/etc/pki/[^\s,]{1,400})", text)
    paths = sorted({os.fsdecode(path) for path in named})
    return [path for path in paths if not re.search(r"[*<$]", path)][:KEYRINGS_MAX]


def kernels(asker: Asker) -> "list[str]":
    return asker.listing("/lib/modules")[-KERNELS_MAX:]


def modules(asker: Asker) -> "list[str]":
    """NVIDIA module files: those depmod knows, and those in the places where packages put them."""
    found = []  # type: list[str]
    for kernel in asker.members("kernel"):
        top = "/lib/modules/{}/".format(kernel)
        listed = asker.peek(top + "modules.dep", 8 * MIB)
        for match in re.finditer(rb"^([^:\n]*/)?nvidia[^/:\n]*\.ko[^:\n]*(?=:)", listed, re.M):
            found.append(top + os.fsdecode(match.group(0)))
        for place in ("updates/dkms", "updates", "extra", "extra/nvidia", "weak-updates", "weak-updates/nvidia"):
            found += [top + place + "/" + n for n in asker.listing(top + place) if re.match(r"nvidia.*\.ko", n)]
    return [path for i, path in enumerate(found) if path not in found[:i]][:MATCHES_MAX]


def library_directories(asker: Asker) -> "list[str]":
    """Where driver libraries may lie: the loader's directories, toolkits' compat, the caller's."""
    dirs = list(LIBRARY_DIRS)
    for path in ["/etc/ld.so.conf"] + asker.expand("/etc/ld.so.conf.d/*.conf"):
        lines = asker.peek(path, 64 * KIB).decode("utf-8", "replace").split("\n")
        dirs += [line.strip().rstrip("/") for line in lines if line.strip().startswith("/")][:16]
    dirs += [d + "/compat" for d in asker.expand("/usr/local/cuda-*")] + asker.caller.library_dirs()
    return [d for i, d in enumerate(dirs) if d not in dirs[:i]][:48]


def container_directories(asker: Asker) -> "list[str]":
    return list(CONTAINER_LIBRARY_DIRS)


def caller_directories(asker: Asker) -> "list[str]":
    return asker.caller.all_dirs()


MEMBERS = {
    "pci": pci_addresses,
    "gpu": gpu_addresses,
    "bridge": bridges,
    "ib": infiniband,
    "cgroup": cgroups,
    "cdipath": cdi_paths,
    "keyring": keyrings,
    "kernel": kernels,
    "module": modules,
    "libdir": library_directories,
    "containerdir": container_directories,
    "callerdir": caller_directories,
}


def run_lane(asker: Asker, rows: "list[tuple[int, Row]]") -> None:
    """The whole life of a lane's child."""
    if not asker.root.is_outer:
        asker.is_live = False
        if asker.begin("peek:/proc/version"):
            asker.is_live = asker.root.is_live()
            send(asker.fd, {"live": asker.is_live})
    for index, row in rows:
        asker.ask(index, row)
    send(asker.fd, {"end": True})


def find_tool(root: Root, caller: Caller, tool: str) -> "tuple[str, str, str]":
    """(path below the root, note, why not) of a command. All empty: it is not installed."""
    if "/" in tool:
        places = [(tool, "")]
    else:
        places = [(d + "/" + tool, "") for d in COMMAND_DIRS]
        places += [(d + "/" + tool, "found through the caller's PATH: " + d) for d in caller.command_dirs()]
    refused = ""
    for path, note in places:
        try:
            fd = root.open(path)
        except OSError as exc:
            if exc.errno in (errno.EACCES, errno.EPERM):
                refused = refused or "{}: {}".format(path, exc.strerror)
            continue
        status = os.fstat(fd)
        os.close(fd)
        if not stat.S_ISREG(status.st_mode) or not status.st_mode & 0o111:
            continue
        reason = root.distrust(path)
        if not reason:
            return path, note, ""
        refused = refused or "not run: " + reason
    return "", "", refused


def absent_ones(root: Root, caller: Caller, tools: "list[str]", paths: "list[str]") -> "list[str]":
    """The tools that are not installed, and the paths that do not exist."""
    return [t for t in tools if find_tool(root, caller, t) == ("", "", "")] + [p for p in paths if not root.exists(p)]


def become(fd: int, root: Root, caller: Caller, argv: "tuple[str, ...]") -> None:
    """Turns this child into the command; returns only when it could not, having said why."""
    path, note, refused = find_tool(root, caller, argv[0])
    if not path:
        status = "missing" if not refused else "error" if refused.startswith("not run") else "denied"
        send(fd, {"status": status, "detail": refused or "not found"})
        return
    environment = dict(CLEAN_ENVIRONMENT)
    if argv[0] == "nvidia-smi" and not loader_would_find(root, "libnvidia-ml.so.1"):
        library, hint, _ = library_of(root, "libnvidia-ml.so.1", caller.library_dirs())
        if library:
            environment["LD_LIBRARY_PATH"] = os.path.dirname(library)
            note = "; ".join(filter(None, (note, hint)))
    real = path
    arguments = list(argv[1:]) + list(NEWEST_LINES if argv[0] == "journalctl" else ())
    if not root.is_outer:
        top = os.path.realpath(root.top)
        real = root.real(path)
        if argv[0] == "modinfo":
            arguments = [root.real(a) if a.startswith("/") else a for a in arguments]
        options = [option.format(top) for option in ROOT_OPTIONS.get(argv[0], ())]
        arguments = arguments + options if argv[0] == "dkms" else options + arguments
    send(fd, {"ran": path, "note": note})
    try:
        os.execve(real, [path] + arguments, environment)
    except OSError as exc:
        send(fd, {"status": "error", "detail": "{}: {}".format(path, exc.strerror)})


# --- processes ------------------------------------------------------------------------------------

#: Above any descriptor of this process: three a command, one a witness or lane.
OWN_FDS_MAX = 1024

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def open_pipes(count: int) -> "list[tuple[int, int]]":
    """Pipes, all of them or none. Raises OSError."""
    found = []  # type: list[tuple[int, int]]
    try:
        while len(found) < count:
            found.append(os.pipe())
    except OSError:
        for pair in found:
            os.close(pair[0])
            os.close(pair[1])
        raise
    return found


def prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def fork(work: "object", keep: "list[int]", stdout: int = -1, stderr: int = -1) -> int:
    """Runs `work()` in a child with a session, null streams and no descriptor but `keep`."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR)
        for target, source in ((0, null), (1, stdout if stdout >= 0 else null), (2, stderr if stderr >= 0 else null)):
            os.dup2(source, target)
        edges = [2] + sorted(keep) + [OWN_FDS_MAX]
        for low, high in zip(edges, edges[1:]):
            os.closerange(low + 1, high)
        work()  # type: ignore[operator]
    except BrokenPipeError:
        os._exit(0)
    except BaseException as exc:  # whatever it was, it ends here and is told on the only channel there is
        try:
            send(keep[0], {"crash": "{}: {}".format(type(exc).__name__, exc)})
        except OSError:
            os._exit(71)
        os._exit(70)
    os._exit(0)


def own_streams_only() -> None:
    """Lets go of every descriptor that was handed down, and makes sure that 0, 1 and 2 are open.

    A closed standard stream would become some child's pipe.
    """
    while os.open(os.devnull, os.O_RDWR) <= 2:
        continue
    inherited = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else range(OWN_FDS_MAX)
    for number in map(int, inherited):
        if number > 2:
            os.closerange(number, number + 1)


def process(pid: int) -> "tuple[str, str, int]":
    """(name, state letter, parent) of a process; empty when it is gone. Reads nothing that can block."""
    try:
        with open("/proc/{}/stat".format(pid), "rb") as handle:
            text = handle.read(4096).decode("utf-8", "replace")
    except OSError:
        return "", "", 0
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return name, fields[0], int(fields[1])


def wait_channel(pid: int) -> str:
    try:
        with open("/proc/{}/wchan".format(pid), "rb") as handle:
            text = handle.read(256).decode("utf-8", "replace").strip()
    except OSError:
        return ""
    return "" if text == "0" else text


def descendants(pid: int) -> "list[int]":
    """Every process below `pid`, parents first. Costs a walk over /proc; for bad cases only."""
    below = {}  # type: dict[int, list[int]]
    for name in os.listdir("/proc"):
        if name.isdigit():
            below.setdefault(process(int(name))[2], []).append(int(name))
    found, todo = [], [pid]
    while todo:
        children = below.get(todo.pop(0), [])
        found += children
        todo += children
    return found


def is_alive(pid: int) -> bool:
    return process(pid)[1] not in ("", "Z", "X")


def stuck(pids: "list[int]") -> "dict[str, object]":
    """pid, state, wait channel and name of the process that keeps the first of `pids` from ending."""
    alive = [p for p in pids if is_alive(p)]
    uninterruptible = [p for p in alive if process(p)[1] == "D"]
    culprit = (uninterruptible or alive or pids[:1])[-1]
    name, state, _ = process(culprit)
    return {"pid": culprit, "state": state, "wchan": wait_channel(culprit), "name": name}


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return


# --- what the parent keeps of a child -------------------------------------------------------------


class Frames:
    """The frames that arrive on one pipe."""

    def __init__(self, fd: int, cap: int) -> None:
        self.fd = fd
        self.cap = cap
        self._buffer = bytearray()

    def feed(self, data: bytes) -> "list[tuple[dict[str, object], bytes]]":
        """The frames completed by this data. Raises ValueError on nonsense or excess."""
        self._buffer += data
        found = []
        while len(self._buffer) >= 8:
            head, body = struct.unpack(">II", bytes(self._buffer[:8]))
            if head + body > self.cap:
                raise ValueError("a child's answer exceeds {} bytes".format(self.cap))
            if len(self._buffer) < 8 + head + body:
                break
            text = bytes(self._buffer[8:8 + head])
            found.append((json.loads(text.decode()), bytes(self._buffer[8 + head:8 + head + body])))
            del self._buffer[:8 + head + body]
        return found


class Sink:
    """Output of a command, no more than `cap` bytes of it: the first ones or the newest."""

    def __init__(self, cap: int, keep: str) -> None:
        self.cap = cap
        self.keep = keep
        self.total = 0
        self._data = bytearray()

    def feed(self, data: bytes) -> bool:
        """Takes data; true when reading on is of no use."""
        self.total += len(data)
        self._data += data
        if self.keep == "last":
            if len(self._data) > 2 * self.cap:
                del self._data[:-self.cap]
            return self.total > DRAIN_MAX_BYTES
        del self._data[self.cap:]
        return self.total > self.cap

    @property
    def is_cut(self) -> bool:
        return self.total > self.cap

    def value(self) -> bytes:
        return bytes(self._data[-self.cap:])


class Child:
    """A forked child: its process, its pipes, its deadline. Subclasses say what its words mean."""

    may_have_children = True

    def __init__(self, collection: "Collection", deadline: float) -> None:
        self.collection = collection
        self.started = time.monotonic()
        self.deadline = deadline
        self.pid = 0
        self.rc = None  # type: int | None
        self.exited = 0.0
        self.fds = set()  # type: set[int]

    def start(self, work: "object", pipes: "list[tuple[int, int]]", cap: int) -> None:
        """Forks; `pipes` are (read, write) pairs: frames, and for commands stdout and stderr."""
        writers = [w for _, w in pipes]
        try:
            self._fork(work, writers)
        except OSError:
            for fd in writers + [r for r, _ in pipes]:
                os.close(fd)
            raise
        self.frames = Frames(pipes[0][0], cap)
        for reader, writer in pipes:
            os.close(writer)
            os.set_blocking(reader, False)
            self.fds.add(reader)
            self.collection.watch(reader, self)
        self.collection.children[self.pid] = self

    def _fork(self, work: "object", writers: "list[int]") -> None:
        extra = {"stdout": writers[1], "stderr": writers[2]} if len(writers) == 3 else {}
        self.pid = fork(work, writers[:1], **extra)

    def readable(self, fd: int) -> None:
        try:
            data = os.read(fd, 256 * KIB)
        except BlockingIOError:
            return
        if data:
            self.heard(fd, data)
        else:
            self.close(fd)

    def heard(self, fd: int, data: bytes) -> None:
        try:
            frames = self.frames.feed(data)
        except ValueError as exc:
            self.frame({"crash": str(exc)}, b"")
            self.stop()
            return
        for head, body in frames:
            if self.fds:
                self.frame(head, body)

    def frame(self, head: "dict[str, object]", body: bytes) -> None:
        raise NotImplementedError

    def close(self, fd: int) -> None:
        if fd in self.fds:
            self.fds.discard(fd)
            self.collection.unwatch(fd)
            os.close(fd)

    def family(self) -> "list[int]":
        """Its process and those below it."""
        return [self.pid] + descendants(self.pid) if self.may_have_children else [self.pid]

    def stop(self) -> None:
        """No more is wanted of it: kill it, and what it started, and let go of its pipes.

        Those that are born or orphaned meanwhile come to the collector and are found by its sweep.
        """
        if self.rc is None:
            for pid in self.family():
                kill(pid)
        for fd in list(self.fds):
            self.close(fd)
        self.collection.running.discard(self)

    def next_wake(self) -> float:
        return self.deadline

    def tick(self, now: float) -> None:
        """Something may be over: its deadline, or itself."""
        if self.rc is not None and not self.fds:
            self.collection.running.discard(self)
            self.over()
        elif now >= self.deadline:
            self.timeout()

    def over(self) -> None:
        raise NotImplementedError

    def timeout(self) -> None:
        raise NotImplementedError


def times_out(item: "dict[str, object]", pids: "list[int]", waited_s: float) -> None:
    """Marks an item as stuck, naming the process and where it waits."""
    culprit = stuck(pids)
    name = culprit.pop("name")
    item.update(culprit)
    item["status"] = "timeout"
    item["detail"] = "no answer within {:.1f} s: {} ({}), state {}, waits in {}".format(
        waited_s, name, item["pid"], item["state"] or "gone", item["wchan"] or "?"
    )


class LaneChild(Child):
    """One child of a lane; the newest goes through the rows, older ones are late with one item."""

    may_have_children = False

    def __init__(self, collection: "Collection", lane: "Lane") -> None:
        Child.__init__(self, collection, float("inf"))
        self.lane = lane
        self.at = ""
        self.since = self.started
        self.is_late = False
        self.has_ended = False

    def frame(self, head: "dict[str, object]", body: bytes) -> None:
        if "live" in head:
            self.collection.learn_live(bool(head["live"]))
        elif self.is_late and "item" not in head:
            self.stop()  # the step it was late with gave no item; the rest is done by others
        elif "at" in head:
            self.at, self.since = str(head["at"]), time.monotonic()
            self.deadline = self.since + float(head["timeout_s"])  # type: ignore[arg-type]
        elif "item" in head:
            self.lane.take(head["item"], body)  # type: ignore[arg-type]
            self.at, self.deadline = "", float("inf")
            if self.is_late:
                self.stop()
        elif "row" in head:
            self.lane.finished_row(int(head["row"]))  # type: ignore[call-overload]
        elif "end" in head:
            self.has_ended = True
            self.lane.ended()
        elif "crash" in head:
            self.lane.lost(self, str(head["crash"]))

    def next_wake(self) -> float:
        if self.at and not self.is_late and self.lane.may_overtake():
            return min(self.deadline, self.since + OVERTAKE_S)
        return self.deadline

    def tick(self, now: float) -> None:
        if self.at and not self.is_late and now >= self.since + OVERTAKE_S and self.lane.may_overtake():
            self.is_late = True
            self.lane.go_on(without=self.at)
        Child.tick(self, now)

    def over(self) -> None:
        if not self.has_ended:
            self.lane.lost(self, "its reader ended: " + ending(self.rc))

    def timeout(self) -> None:
        item = {"key": item_key(self.at), "status": "timeout"}  # type: dict[str, object]
        times_out(item, self.family(), time.monotonic() - self.since)
        item.update(start_ms=round((self.since - self.collection.began) * 1000, 2), ms=now_ms(self.since))
        self.collection.add(item)
        self.stop()
        if not self.is_late:
            self.lane.go_on(without=self.at)


def item_key(step: str) -> str:
    """The item that a step belongs to: looking into a directory or a file is a step, too."""
    kind, _, path = step.partition(":")
    return {"list": "stat:", "peek": "file:"}.get(kind, kind + ":") + path


def ending(rc: "int | None") -> str:
    return "signal {}".format(-rc) if rc is not None and rc < 0 else "exit status {}".format(rc)


class Lane:
    """Rows of files that share a child, as long as none of them is slow."""

    def __init__(self, collection: "Collection", rows: "list[tuple[int, Row]]") -> None:
        self.collection = collection
        self.rows = rows
        self.skip = set()  # type: set[str]
        self.is_over = False
        self.found = {}  # type: dict[str, list[str]]
        self._losses = 0

    def go_on(self, without: str = "") -> None:
        """A new child for the rows that are left; what is answered, or stuck, is not asked again."""
        if without:
            self.skip.add(without)
        if self.is_over or time.monotonic() >= self.collection.end:
            return
        child = LaneChild(self.collection, self)
        root, caller, began = self.collection.root, self.collection.caller, self.collection.began
        rows, skip = list(self.rows), set(self.skip)
        try:
            pipe = os.pipe()
            child.start(lambda: run_lane(Asker(pipe[1], root, caller, began, skip), rows), [pipe], 16 * MIB)
        except OSError as exc:
            self.give_up("error", "cannot be asked: {}".format(exc.strerror))

    def may_overtake(self) -> bool:
        mine = [c for c in self.collection.running if isinstance(c, LaneChild) and c.lane is self and c.is_late]
        return len(mine) < LATE_MAX

    def take(self, item: "dict[str, object]", body: bytes) -> None:
        finds = item.pop("finds", None)
        if finds and item.get("kind") in ("file", "dir"):
            self.found.setdefault(str(finds), []).append(str(item["key"]).partition(":")[2])
        self.skip.add(str(item["key"]))
        self.collection.add(item, body)

    def finished_row(self, index: int) -> None:
        self.rows = [row for row in self.rows if row[0] != index]

    def ended(self) -> None:
        self.is_over = True
        self.rows = []

    def lost(self, child: LaneChild, why: str) -> None:
        """A child died or lost its mind: its step is an error, another goes on."""
        self._losses += 1
        if child.at:
            self.collection.add({"key": item_key(child.at), "status": "error", "detail": why})
        child.stop()
        if not child.is_late and self._losses < 5:
            self.go_on(without=child.at)

    def give_up(self, status: str = "timeout", detail: str = "not reached within the budget") -> None:
        """What was not reached is named, a pattern by its first directory."""
        for _, row in self.rows:
            for pattern in braces(row.text):
                kind, path = pattern.split(":", 1)
                head = re.split(r"[*<]", path)[0]
                key = kind + ":" + path if head == path else "stat:" + (head.rsplit("/", 1)[0] or "/")
                if key not in self.skip:
                    self.skip.add(key)
                    self.collection.add({"key": key, "status": status, "detail": detail})
        self.ended()


class Command(Child):
    """A command: looked up and executed in a child of its own."""

    def __init__(self, collection: "Collection", row: Row, argv: "tuple[str, ...]") -> None:
        Child.__init__(self, collection, min(time.monotonic() + row.timeout_s, collection.end))
        self.row = row
        self.item = {"key": "command:" + command_name(argv), "status": "ok", "argv": list(argv)}  # type: dict[str, object]
        self.out, self.err = Sink(row.cap, row.keep), Sink(STDERR_CAP, "first")
        pipes = open_pipes(3)
        self.sinks = {pipes[1][0]: self.out, pipes[2][0]: self.err}
        root, caller, channel = collection.root, collection.caller, pipes[0][1]
        self.start(lambda: become(channel, root, caller, argv), pipes, MIB)

    def heard(self, fd: int, data: bytes) -> None:
        if fd not in self.sinks:
            Child.heard(self, fd, data)
            return
        is_flood = self.sinks[fd].feed(data)
        if is_flood and fd in self.fds and (self.sinks[fd] is self.out or self.err.total > STDERR_MAX):
            if self.row.keep == "last" and self.sinks[fd] is self.out:
                self.item.update(status="truncated", detail="killed after {} bytes: the newest are not here".format(self.out.total))
            if self.sinks[fd] is self.err:
                self.item.update(status="error", detail="killed: {} bytes on its error stream".format(self.err.total))
            self.stop()
            self.finish()

    def frame(self, head: "dict[str, object]", body: bytes) -> None:
        if "ran" in head:
            self.item["argv"] = [head["ran"]] + self.item["argv"][1:]  # type: ignore[index]
            if head["note"]:
                self.item["detail"] = head["note"]
        else:
            self.item.update(status=head.get("status", "error"), detail=head.get("detail", head.get("crash", "")))

    def next_wake(self) -> float:
        return min(self.deadline, self.exited + DRAIN_S) if self.exited else self.deadline

    def tick(self, now: float) -> None:
        if self.exited and self.fds and now >= self.exited + DRAIN_S:
            self.item.setdefault("detail", "left a process behind that holds its output")
            self.stop()
            self.finish()
        else:
            Child.tick(self, now)

    def over(self) -> None:
        self.finish()

    def finish(self) -> None:
        item = self.item
        if self.rc is not None and item["status"] == "ok":
            item["rc"] = self.rc
            if self.rc < 0:
                item.update(status="error", detail=ending(self.rc))
        if item["status"] == "ok" and self.row.root and item.get("rc") and re.search(
            rb"not permitted|[Pp]ermission", self.err.value()
        ):
            item.update(status="denied", detail=self.err.value().decode("utf-8", "replace").strip()[:200])
        if self.out.is_cut and item["status"] in ("ok", "error"):
            item.update(status="truncated", detail="{} {} bytes kept".format(self.row.keep, self.row.cap))
        self.keep()

    def keep(self) -> None:
        item = self.item
        item.update(start_ms=round((self.started - self.collection.began) * 1000, 2), ms=now_ms(self.started))
        blobs = {}
        if item["status"] not in ("missing",) and (self.out.total or self.err.total or "rc" in item):
            item.update(path="commands/" + str(item["key"]).partition(":")[2], bytes=len(self.out.value()))
            blobs[""] = self.out.value()
            if self.err.total:
                blobs[".err"] = self.err.value()
        self.collection.add(item)
        for suffix, data in blobs.items():
            self.collection.blobs[str(item["path"]) + suffix] = data

    def timeout(self) -> None:
        times_out(self.item, self.family(), time.monotonic() - self.started)
        self.stop()
        self.keep()


class Witness(Child):
    """A library asked in a child of its own; its words arrive piece by piece and are put together.

    Several may take turns in one child, where they share costly imports; one that hangs or dies
    leaves the others to another child.
    """

    def __init__(self, collection: "Collection", *rows: Row) -> None:
        Child.__init__(self, collection, collection.end)
        self.left = list(rows)
        self._begin()
        pipe = os.pipe()
        root, caller, sites = collection.root, collection.caller, collection.sites
        self.start(lambda: testify(pipe[1], rows, Where(root, caller), sites), [pipe], self.row.cap)

    def _begin(self) -> None:
        self.row = self.left.pop(0)
        self.since = time.monotonic()
        self.deadline = min(self.since + self.row.timeout_s, self.collection.end)
        self.item = {"key": self.row.text, "status": "ok"}  # type: dict[str, object]
        self.document = {}  # type: dict[str, object]
        self.gpus = {}  # type: dict[int, dict[str, object]]
        self.is_wanted = True

    def frame(self, head: "dict[str, object]", body: bytes) -> None:
        if "crash" in head:
            self.item.update(status="error", detail=head["crash"])
        self.item.update(head.get("item", {}))  # type: ignore[call-overload]
        self.is_wanted = self.is_wanted and not head.get("unwanted", False)
        merge(self.document, head.get("say", {}))  # type: ignore[arg-type]
        if "gpu" in head:
            merge(self.gpus.setdefault(int(head["gpu"]), {}), head["about"])  # type: ignore[arg-type, call-overload]

        if "next" in head:
            self.document.pop("at", None)
            self.keep()
            self._begin()
        elif "done" in head:
            self.finished()

    def finished(self) -> None:
        """It has said all and goes. Leaving takes the driver 60 ms after cuInit (H200, 580.159.04): not waited for."""
        self.document.pop("at", None)
        for fd in list(self.fds):
            self.close(fd)
        self.collection.running.discard(self)
        self.collection.leaving.add(self.pid)
        self.keep()

    def over(self) -> None:
        if self.rc and self.item["status"] == "ok":
            at = self.document.get("at")
            self.item.update(status="error", detail=ending(self.rc) + (" in {}".format(at) if at else ""))
        else:
            self.document.pop("at", None)
        self.keep()
        self.collection.testify(self.left)

    def timeout(self) -> None:
        times_out(self.item, self.family(), time.monotonic() - self.since)
        if "at" in self.document:
            self.item["detail"] = "{}, in {}".format(self.item["detail"], self.document["at"])
        self.stop()
        self.keep()
        self.collection.testify(self.left)

    def keep(self) -> None:
        if not self.is_wanted:
            return
        item = self.item
        item.update(start_ms=round((self.since - self.collection.began) * 1000, 2), ms=now_ms(self.since))
        if self.gpus:
            self.document["gpus"] = [self.gpus[index] for index in sorted(self.gpus)]
        data = json.dumps(self.document, indent=1, sort_keys=True).encode() if self.document else b""
        if data:
            item.update(path=self.row.text + ".json", bytes=len(data))
        self.collection.add(item, data)


def merge(into: "dict[str, object]", more: "dict[str, object]") -> None:
    """Adds pieces to a document; dictionaries grow, anything else is replaced."""
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)  # type: ignore[arg-type]
        else:
            into[key] = value


class Where:
    """What a witness may know: the root it looks at, the library to load, the one the loader would take."""

    def __init__(self, root: Root, caller: Caller) -> None:
        self.root = root
        self.caller = caller

    def find(self, soname: str) -> "tuple[str, str, str]":
        return library_of(self.root, soname, self.caller.library_dirs())

    def default_file(self, soname: str) -> str:
        """The file the loader takes by itself: found without running any of its code."""
        own = loader_would_find(self.root, soname)
        return self.root.real(own[0]) if own else ""


def testify(fd: int, rows: "tuple[Row, ...]", where: Where, sites: "list[str]") -> None:
    """The whole life of a witness's child: finds its module beside this file and lets it speak."""
    sys.path[:] = [p for p in sys.path if p] + [os.path.dirname(os.path.abspath(__file__))] + sites
    for row in rows:
        if row is not rows[0]:
            send(fd, {"next": row.text})
        try:
            module = __import__("witness_" + row.lane)
        except ImportError as exc:
            send(fd, {"item": {"status": "error", "detail": "{}; it belongs beside collector.py".format(exc)}})
            continue
        module.testify(row.text, lambda **head: send(fd, head), where)
    send(fd, {"done": True})


# --- the collection -------------------------------------------------------------------------------


class Collection:
    """Everything that is asked, on its way to a bundle."""

    def __init__(self, options: "dict[str, object]") -> None:
        self.began = time.monotonic()
        self.budget_s = float(options["budget"])  # type: ignore[arg-type]
        self.end = self.began + self.budget_s
        self.tool = str(options["tool"])
        self.root = Root(str(options["sysroot"]))
        self.sites = list(options["site"])  # type: ignore[call-overload]
        is_narrow = options["ask"] == "environments"
        self.caller = Caller(options["caller"], list(options["env"]), is_narrow)  # type: ignore[arg-type, call-overload]
        self.items = {}  # type: dict[str, dict[str, object]]
        self.blobs = {}  # type: dict[str, bytes]
        self.children = {}  # type: dict[int, Child]
        self.running = set()  # type: set[Child]
        self.leaving = set()  # type: set[int]
        self.lanes = {}  # type: dict[str, Lane]
        self.is_live = None  # type: bool | None
        self._is_look_done = False
        self._is_look_late = False
        self._followed = set()  # type: set[tuple[str, ...]]
        self._absent = None  # type: set[str] | None
        self._poll = select.poll()
        self._by_fd = {}  # type: dict[int, Child]
        self._wake = os.pipe()

    # children and their pipes

    def watch(self, fd: int, child: Child) -> None:
        self._by_fd[fd] = child
        self.running.add(child)
        self._poll.register(fd, select.POLLIN)

    def unwatch(self, fd: int) -> None:
        del self._by_fd[fd]
        self._poll.unregister(fd)

    def watch_reader(self, fd: int) -> None:
        """Notices when nobody reads any more: a pipe without reader says POLLERR unasked."""
        self._poll.register(fd, 0)

    def add(self, item: "dict[str, object]", data: bytes = b"") -> None:
        """Keeps an item; the first word counts."""
        key = str(item["key"])
        if key in self.items:
            return
        item["scope"] = "host"
        self.items[key] = item
        if item.get("path"):
            self.blobs[str(item["path"])] = data

    # what is asked when

    def run(self) -> None:
        """Asks everything and returns when all is answered or the budget is spent."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for fd in self._wake:
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wake[1])
        self._poll.register(self._wake[0], select.POLLIN)
        if self.caller.only_named:
            self._run_narrow()
            return
        if self.root.is_outer:
            self.learn_live(True)  # the GPU's own witnesses take longest: they start first
        rows = list(enumerate(TABLE))
        for name in ("look", "files", "pci", "driver"):
            self.lanes[name] = Lane(self, [(i, r) for i, r in rows if r.lane == name and not r.argv])
            self.lanes[name].go_on()
        self._launch(live=False)
        while self._is_waiting():
            self._step()
        self._close_books()

    def _run_narrow(self) -> None:
        """Nothing but the environments that were named: for a question about another machine."""
        self.is_live = self._is_look_done = self._is_look_late = True
        self.lanes["look"] = Lane(self, [])
        self._look_for_environments()
        while self._is_waiting():
            self._step()
        self._close_books()

    def _is_waiting(self) -> bool:
        return time.monotonic() < self.end and (bool(self.running) or not self._is_look_done)

    def _launch(self, live: bool) -> None:
        # As sd_booted(3) tells it. A planted or mounted root is asked as it is.
        has_systemd = not self.root.is_outer or os.path.isdir("/run/systemd/system")
        for row in sorted(TABLE, key=lambda row: row.lane != "gpu"):
            if row.live != live:
                continue
            if row.systemd and not has_systemd:
                self.add({
                    "key": "command:" + command_name(row.argv), "argv": list(row.argv), "status": "missing",
                    "detail": "not asked: systemd does not run here",
                })
            elif row.argv and not any("<" in word for word in row.argv):
                self._ask(row, row.argv)
            elif row.lane == "gpu" and (row.text != "cuinit-caller" or self.caller.library_dirs()):
                self.testify([row])
        if not live:
            self.testify([r for r in TABLE if r.lane == "host" and (self.root.is_outer or r.text not in OUTER_ONLY)])
            self._look_for_environments()

    def _look_for_environments(self) -> None:
        self.testify([row for row in TABLE if row.lane == "env"])

    def testify(self, rows: "list[Row]") -> None:
        """A child for these witnesses, one after the other; at the end of the budget they are named."""
        if rows and time.monotonic() < self.end:
            self._start(rows[0].text, Witness, *rows)
        else:
            for row in rows:
                self.add({"key": row.text, "status": "timeout", "detail": "not reached within the budget"})

    def _start(self, key: str, kind: "Callable[..., Child]", *what: object) -> None:
        """A child, or an item that says why there could be none: no process or descriptor is left."""
        try:
            kind(self, *what)
        except OSError as exc:
            self.add({"key": key, "status": "error", "detail": "cannot be asked: {}".format(exc.strerror)})

    def learn_live(self, is_live: bool) -> None:
        """Whether this root has a running kernel: only then the live rows are asked."""
        was_known = self.is_live is not None
        self.is_live = is_live if not was_known else self.is_live
        if was_known or not is_live:
            return
        for name in CALLER_VARIABLES:
            value = self.caller.values.get(name)
            item = {"key": "env:" + name, "status": "missing" if value is None else "ok"}  # type: dict[str, object]
            if value is not None:
                item["value"] = printable(value)
            self.add(item)
        self._launch(live=True)

    def _follow(self) -> None:
        """Commands about what lane `look` has found by now; each of them once."""
        found = self.lanes["look"].found
        libraries = found.get("library", [])[:24]
        modules = [p for p in found.get("module", []) if re.match(r"nvidia\.ko", p.rsplit("/", 1)[-1])]
        for row in TABLE:
            if "<libraries>" in row.argv and libraries:
                self._follow_up(row, row.argv[:-1] + tuple(libraries))
            for word, members in (("<toolkit>", found.get("toolkit", [])), ("<module>", modules)):
                if any(word in part for part in row.argv):
                    for member in members[:KERNELS_MAX]:
                        self._follow_up(row, tuple(part.replace(word, member) for part in row.argv))

    def _follow_up(self, row: Row, argv: "tuple[str, ...]") -> None:
        if argv not in self._followed:
            self._followed.add(argv)
            self._ask(row, argv)

    def _ask(self, row: Row, argv: "tuple[str, ...]") -> None:
        """A command in a child of its own, unless it is known not to be installed."""
        key = "command:" + command_name(argv)
        absent = self._absent_tools() if row.lane != "gpu" else set()
        if argv[0] in absent or row.needs in absent:
            detail = "not found" if argv[0] in absent else "not asked: {} is not there".format(row.needs)
            self.add({"key": key, "argv": list(argv), "status": "missing", "detail": detail})
        else:
            self._start(key, Command, row, argv)

    def _absent_tools(self) -> "set[str]":
        """Tools that are not installed, looked up in one child: a fork for each would cost 2 ms.

        When that child does not answer soon, nothing is known, and each command finds out by itself.
        """
        if self._absent is None:
            self._absent = set()
            try:
                ((reader, writer),) = open_pipes(1)
            except OSError:
                return self._absent
            tools = sorted({row.argv[0] for row in TABLE if row.argv and "<" not in row.argv[0]})
            needed = sorted({row.needs for row in TABLE if row.argv and row.needs})
            root, caller = self.root, self.caller
            try:
                fork(lambda: send(writer, {"absent": absent_ones(root, caller, tools, needed)}), [writer])
            except OSError:
                tools = []
            os.close(writer)
            poll = select.poll()
            poll.register(reader, select.POLLIN)
            frames = Frames(reader, MIB).feed(os.read(reader, 64 * KIB)) if tools and poll.poll(TOOLS_WAIT_S * 1000) else []
            os.close(reader)
            self._absent.update(tool for head, _ in frames for tool in head.get("absent", []))  # type: ignore[attr-defined]
        return self._absent

    def _step(self) -> None:
        wakes = [child.next_wake() for child in self.running]
        if not self._is_look_late:
            wakes.append(self.began + LOOK_WAIT_S)
        wait_s = min([self.end] + wakes) - time.monotonic()
        for fd, _ in self._poll.poll(max(0, int(wait_s * 1000) + 1)):
            if fd == 1:
                # Whoever asked is gone (SIGKILL, a dropped link): nobody would read the report.
                self.sweep()
                os._exit(141)
            elif fd == self._wake[0]:
                os.read(fd, 4096)
            elif fd in self._by_fd:
                self._by_fd[fd].readable(fd)
        self._reap()
        now = time.monotonic()
        for child in list(self.running):
            if child in self.running:
                child.tick(now)
        if self.lanes["look"].is_over and not self._is_look_done:
            self._is_look_done = self._is_look_late = True
            self._follow()
        elif now >= self.began + LOOK_WAIT_S and not self._is_look_late:
            self._is_look_late = True
            self._follow()

    def _reap(self) -> bool:
        """Collects the dead; false when there is no child left at all, adopted ones included."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            child = self.children.get(pid)
            if child:
                child.rc = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                child.exited = time.monotonic()

    # the end

    def _close_books(self) -> None:
        for child in list(self.running):
            if child in self.running:
                child.timeout() if not isinstance(child, LaneChild) or child.at else child.stop()
        for lane in self.lanes.values():
            lane.give_up()
        if self.is_live is None:
            self._not_started()
        survivors = self.sweep(spare=self.leaving)
        for item in self.items.values():
            if item.get("pid") in survivors:
                item["detail"] = "{}; still there after SIGKILL".format(item["detail"])

    def _not_started(self) -> None:
        for row in TABLE:
            if row.live:
                name = "command:" + command_name(row.argv) if row.argv else row.text
                self.add({"key": name, "status": "timeout", "detail": "not asked: /proc/version did not answer"})

    def sweep(self, spare: "frozenset[int] | set[int]" = frozenset()) -> "set[int]":
        """Kills every descendant, adopted ones too, and returns those that do not die.

        `spare`: those that are leaving by themselves; a sweep after the report sees to them.
        """
        limit = time.monotonic() + SWEEP_S
        left = set()  # type: set[int]
        while self._reap():
            left = {p for p in descendants(os.getpid()) if is_alive(p)} - spare
            for pid in left:
                kill(pid)
            if not left and spare:
                return left
            if time.monotonic() > limit:
                return left
            time.sleep(0.004)
        return set()

    def meta(self) -> "dict[str, object]":
        boot_id = self.blobs.get("files/proc/sys/kernel/random/boot_id", b"").decode("ascii", "replace").strip()
        return {
            "schema": SCHEMA,
            "tool": self.tool,
            "collector": VERSION,
            "taken_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "boot_id": boot_id,
            "root": os.geteuid() == 0,
            "sysroot": None if self.root.is_outer else printable(self.root.top),
            "budget_s": self.budget_s,
            "elapsed_s": round(time.monotonic() - self.began, 3),
            "items": [{key: plain(value) for key, value in item.items()} for item in self.items.values()],
        }


def plain(value: object) -> object:
    """A value for JSON in which no text holds half a character (bytes of a name that are not UTF-8)."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return [plain(part) for part in value] if isinstance(value, list) else value


# --- output ---------------------------------------------------------------------------------------


def tar_header(name: bytes, size: int, kind: bytes, mtime: int) -> bytes:
    """A ustar header; `name` has at most 100 bytes."""
    fields = struct.pack(
        "100s8s8s8s12s12s8s1s100s8s247s", name, b"0000600", b"0000000", b"0000000", b"%011o" % size, b"%011o" % mtime,
        b" " * 8, kind, b"", b"ustar\00000", b"",
    )
    return fields[:148] + b"%06o\0 " % sum(fields) + fields[156:]


def tar_member(path: str, data: bytes, mtime: int, kind: bytes = b"0") -> bytes:
    """A file as a tar member; a longer name goes into a pax record before it."""
    name = path.encode("utf-8")
    before = tar_member("path", pax_record(b"path", name), mtime, b"x") if len(name) > 100 else b""
    return before + tar_header(name[:100], len(data), kind, mtime) + data + b"\0" * (-len(data) % 512)


def pax_record(key: bytes, value: bytes) -> bytes:
    """`LENGTH key=value\\n`, where LENGTH counts itself."""
    rest = b" " + key + b"=" + value + b"\n"
    size = len(rest)
    while size != len(b"%d" % size) + len(rest):
        size = len(b"%d" % size) + len(rest)
    return b"%d" % size + rest


def write_tar(fd: int, members: "dict[str, bytes]") -> None:
    mtime = int(time.time())
    parts = [tar_member(path, data, mtime) for path, data in members.items()] + [b"\0" * 1024]
    left = memoryview(b"".join(parts))
    while left:
        left = left[os.write(fd, left):]


def write_directory(top: str, members: "dict[str, bytes]") -> None:
    for path, data in members.items():
        place = os.path.join(top, path)
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        fd = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as handle:
            handle.write(data)


# --- the command line -----------------------------------------------------------------------------

USAGE = """usage: collector.py --output DIR|- [--budget SECONDS] [--sysroot DIR] [--site DIR]… [--tool TEXT]
                    [--env PATH]… [--ask environments]
       collector.py --list-items

  --output   an empty or new directory, or - for a tar stream on stdout
  --budget   limit of the whole collection (15)
  --sysroot  look below this directory instead of /
  --site     where the packages pynvml, distro and psutil lie; repeatable
  --env      a Python environment to look into besides those that are found; repeatable
  --ask      `environments`: those that --env names, and nothing else
"""


def list_items() -> str:
    """The table as text: what, cap, time, root, why."""
    lines = ["{:<10} {:>7}  {:<4} {}".format("cap", "limit", "root", "what")]
    for row in TABLE:
        cap = "{} {}".format(row.cap, row.keep if row.keep == "last" else "")
        need = "yes" if row.root else "no"
        lines.append("{:<10} {:>5.0f} s  {:<4} {}\n{:>25} {}".format(cap.strip(), row.timeout_s, need, row.text, "", row.why))
    return "\n".join(lines + ["env:" + name for name in CALLER_VARIABLES]) + "\n"


def parse(argv: "list[str]") -> "dict[str, object]":
    """The options. Raises ValueError with what is wrong."""
    options = {
        "output": "", "budget": "15", "sysroot": "/", "tool": "collector.py", "site": [], "env": [], "ask": "all",
    }  # type: dict[str, object]
    words = list(argv)
    while words:
        word, is_joined, value = words.pop(0).partition("=")
        name = word[2:]
        if not word.startswith("--") or name not in options:
            raise ValueError("unknown argument: {}".format(word))
        if not is_joined:
            if not words:
                raise ValueError("{} needs a value".format(word))
            value = words.pop(0)
        options[name] = options[name] + [value] if name in ("site", "env") else value  # type: ignore[operator]
    if not options["output"]:
        raise ValueError("--output is needed")
    if options["ask"] not in ("all", "environments"):
        raise ValueError("--ask takes `all` or `environments`")
    options["budget"] = float(options["budget"])  # type: ignore[arg-type]
    if not 0.2 <= options["budget"] <= 3600:  # type: ignore[operator]
        raise ValueError("--budget is a number of seconds between 0.2 and 3600")
    return options


def caller_environment(environment: "dict[str, str]") -> "dict[str, str]":
    """The caller's variables: handed over with a prefix, else those of this process."""
    prefix = CALLER_PREFIX if CALLER_PREFIX in environment else ""
    return {n: environment[prefix + n] for n in CALLER_VARIABLES if prefix + n in environment}


def start_clean(argv: "list[str]") -> None:
    """Starts this program again without the caller's LD_*; does nothing where there is none.

    The loader reads them once, when a process starts: taking them out of the environment later
    changes nothing (seen on a node whose LD_LIBRARY_PATH led to a CUDA compat directory).
    """
    if not any(name.startswith("LD_") for name in os.environ):
        return
    directory, name = os.path.split(os.path.abspath(__file__))
    start = "import sys; sys.path.append(sys.argv[1]); import {0}; {0}.program(sys.argv[2:])".format(name.partition(".")[0])
    environment = {CALLER_PREFIX + n: v for n, v in caller_environment(dict(os.environ)).items()}
    environment.update(CLEAN_ENVIRONMENT)
    environment[CALLER_PREFIX] = "1"
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", start, directory] + argv, environment)


def prepare_output(output: str) -> None:
    """Raises ValueError when the directory cannot take a bundle."""
    if output == "-":
        return
    try:
        os.makedirs(output, mode=0o700, exist_ok=True)
        if os.listdir(output):
            raise ValueError("--output {}: the directory is not empty".format(output))
    except OSError as exc:
        raise ValueError("--output {}: {}".format(output, exc.strerror))


def main(argv: "list[str]") -> int:
    if argv in (["--list-items"], ["--help"], ["-h"]):
        sys.stdout.write(list_items() if argv == ["--list-items"] else USAGE)
        sys.stdout.flush()
        return 0
    try:
        options = parse(argv)
        prepare_output(str(options["output"]))
    except ValueError as exc:
        sys.stderr.write("collector.py: {}\n{}".format(exc, USAGE))
        return 2
    own_streams_only()
    gc.disable()  # its passes would write to every page that the children share
    start_clean(argv)
    options["caller"] = caller_environment(dict(os.environ))
    os.environ.clear()
    os.environ.update(CLEAN_ENVIRONMENT)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    collection = Collection(options)
    if options["output"] == "-":
        collection.watch_reader(1)
    me = os.getpid()

    def interrupted(number: int, _frame: object) -> None:
        if os.getpid() == me:
            collection.sweep()
        os._exit(128 + number)

    for ending_signal in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(ending_signal, interrupted)
    collection.run()
    members = {"meta.json": json.dumps(collection.meta()).encode()}
    members.update(collection.blobs)
    if options["output"] == "-":
        write_tar(1, members)
        os.close(1)  # the reader goes on while the last witnesses leave
    else:
        write_directory(str(options["output"]), members)
    collection.sweep()
    return 0


def program(argv: "list[str]") -> None:
    """The whole program; it never returns, and waits for no child that does not die."""
    code = 70
    try:
        code = main(argv)
    except BrokenPipeError:
        code = 141
    except Exception as exc:  # the border of the program: the cause is told
        sys.stderr.write("collector.py: {}: {}\n".format(type(exc).__name__, exc))
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    program(sys.argv[1:])
