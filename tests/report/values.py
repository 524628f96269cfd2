"""Reports made by hand, one a shape that the renderers have to get right."""

from doctor.core import explain as explained
from doctor.core import host as facts
from doctor.core.finding import Cause, CheckReport, Finding, HostSummary, Remedy, ScopeVerdict
from doctor.core.versions import Dotted

RELOAD = Remedy(
    summary="Boot into the installed driver",
    commands=(("systemctl", "reboot"),),
    cost="reboot",
    undo="none needed: no package changes",
    blast_radius="everything that runs on the host stops",
)


def gpu(index, name="NVIDIA H200", pci_id="10de:2335"):
    return {
        "pci_id": pci_id,
        "address": f"0000:{0x18 + index:02x}:00.0",
        "name": name,
        "uuid": f"GPU-00000000-0000-0000-0000-{index + 1:012d}",
        "compute_capability": "9.0",
        "memory_bytes": 150754820096,
    }


def host(*, gpus=8, driver="580.159.04", userspace="580.159.04", name="gpu-node-07"):
    return HostSummary(
        os={"id": "ubuntu", "version": "24.04", "pretty_name": "Ubuntu 24.04.3 LTS"},
        kernel={"release": "6.8.0-124-generic"},
        driver={
            "version": driver,
            "flavour": "open" if driver else None,
            "userspace_version": userspace,
        },
        gpus=tuple(gpu(i) for i in range(gpus)),
        virtualisation="bare_metal",
        cuda_driver_version="13.0" if driver else None,
        hostname=name,
    )


def check(verdict, exit_code, **parts):
    values = {
        "tool": "mopt-doctor 0.1.0",
        "verdict": verdict,
        "exit_code": exit_code,
        "scopes": (ScopeVerdict(scope="host", verdict=verdict),),
        "host": host(),
        "goal": "present",
        "matrix_edition": "2026.11",
        "matrix_digest": "0" * 64,
        "findings": (),
        "causes": (),
        "advice": (),
        "taken_at": "2026-11-30T08:01:41Z",
        "root": True,
        "timings": {"collect": 412.4, "judge": 3.1},
    }
    return CheckReport(**{**values, **parts})


def finding(finding_id, status, title, **parts):
    return Finding(id=finding_id, area=finding_id.split(".")[0], status=status, title=title, **parts)


def passed(*pairs):
    return tuple(finding(i, "pass", title) for i, title in pairs)


HEALTHY = check(
    "ready",
    0,
    findings=(
        *passed(
            ("kernel.release", "kernel known to the matrix"),
            ("driver.loaded", "module loaded"),
            ("cuda.init", "CUDA starts"),
        ),
        finding(
            "cuda.compat",
            "pass",
            "forward-compatibility libraries unused",
            found="`cuda-compat-13-0` 580.95.05 is installed, and the loader does not use it",
            why=(
                "the driver 580.159.04 is newer than the compat package's 580.95.05, which would do nothing",
            ),
            evidence=("command:ldconfig-p", "command:dpkg-query-W"),
        ),
        finding("fabric.manager", "skip", "fabric manager runs", why=("the host has no NVSwitch",)),
    ),
)

MISMATCH = check(
    "not_ready",
    1,
    host=host(driver="580.95.05", userspace="580.105.08"),
    root=False,
    findings=(
        finding("kernel.release", "pass", "kernel known to the matrix"),
        finding(
            "driver.match",
            "fail",
            "kernel module and user space are of one release",
            wanted="580.95.05 on both sides",
            found="module 580.95.05, libraries 580.105.08",
            why=("libraries refuse to work with a module of another release",),
            cause="driver.userspace_kernel_mismatch",
            evidence=("file:/proc/driver/nvidia/version", "command:ldconfig-p"),
            is_critical=True,
        ),
        *(
            finding(
                "gpu.nvml",
                "fail",
                "NVML sees the GPU",
                subject=f"0000:{0x18 + i:02x}:00.0",
                found="Driver/library version mismatch",
                cause="driver.userspace_kernel_mismatch",
                evidence=("nvml",),
            )
            for i in range(8)
        ),
        finding(
            "kernel.log",
            "unknown",
            "kernel log without Xid",
            found="`dmesg` needs root",
            cause="",
        ),
        finding(
            "driver.fenced",
            "warn",
            "unattended upgrades leave the driver alone",
            wanted="a hold or an exclusion for `nvidia-*`",
            found="unattended-upgrades is on, no hold, no exclusion",
            cause="driver.unfenced",
            remedy=None,
        ),
    ),
    causes=(
        Cause(
            id="driver.userspace_kernel_mismatch",
            title="The loaded kernel module is 580.95.05, but the installed user space is 580.105.08.",
            findings=("driver.match", *(f"gpu.nvml@0000:{0x18 + i:02x}:00.0" for i in range(8))),
            refined_by=("driver.reboot_pending",),
            because=(
                "`/proc/driver/nvidia/version` says 580.95.05",
                "`libnvidia-ml.so.1` leads to 580.105.08",
                "unattended-upgrades installed 580.105.08 on 2026-11-29",
            ),
            remedy=RELOAD,
        ),
    ),
    advice=(
        Cause(
            id="driver.unfenced",
            title="The next unattended upgrade may break the driver again.",
            findings=("driver.fenced",),
            remedy=Remedy(
                summary="Hold the driver packages",
                commands=(("apt-mark", "hold", "nvidia-driver-580-open", "libnvidia-compute-580"),),
                undo="`apt-mark unhold` with the same names",
            ),
        ),
    ),
)

NO_GPU = check(
    "not_ready",
    1,
    host=HostSummary(
        os={"id": "rocky", "version": "9.6", "pretty_name": "Rocky Linux 9.6 (Blue Onyx)"},
        kernel={"release": "5.14.0-570.12.1.el9_6.x86_64"},
        driver={"version": None, "flavour": None, "userspace_version": None},
        gpus=(),
        virtualisation="kvm",
        hostname=None,
    ),
    findings=(
        finding(
            "gpu.present",
            "fail",
            "an NVIDIA GPU is on the PCI bus",
            wanted="a display controller of vendor 10de",
            found="no function of vendor 10de among 12 PCI functions",
            cause="system.no_nvidia_gpu",
            is_critical=True,
        ),
        finding("driver.loaded", "skip", "module loaded"),
        finding("cuda.init", "skip", "CUDA starts"),
    ),
    causes=(
        Cause(
            id="system.no_nvidia_gpu",
            title="This host has no NVIDIA GPU",
            findings=("gpu.present",),
            because=("the PCI bus was read, and holds no device of vendor 10de",),
            deciding_facts=(),
        ),
    ),
)

STUCK = check(
    "unknown",
    3,
    host=host(gpus=2, driver="570.133.20", userspace="570.133.20"),
    root=False,
    findings=(
        finding("driver.loaded", "pass", "module loaded"),
        finding(
            "gpu.nvml",
            "unknown",
            "NVML sees the GPUs",
            found="`nvml` gave no answer in 10 s; pid 4211 waits in `nv_open_device`, state D",
            cause="gpu.wedged",
            is_critical=True,
        ),
        finding(
            "gpu.xid",
            "unknown",
            "no Xid in this boot",
            found="the kernel log was not readable: Operation not permitted",
            is_critical=True,
            why=("`dmesg` needs root here (kernel.dmesg_restrict)",),
        ),
        finding(
            "internal.check_crashed",
            "unknown",
            "every check ran to its end",
            subject="cuda.toolkit",
            found="ValueError: `x` is not a dotted version: it has no leading number",
        ),
    ),
    causes=(
        Cause(
            id="gpu.wedged",
            title="A GPU does not answer the driver",
            findings=("gpu.nvml",),
            is_certain=False,
            tied_with=("driver.hung",),
            because=("`nvml` was stuck in state D",),
            deciding_facts=("Xid 79 or 119 in the kernel log of this boot", "whether `lspci` shows `rev ff`"),
            remedy=Remedy(
                summary="Read the kernel log as root, then power-cycle the node",
                commands=(("dmesg", "--level=err,warn"), ("systemctl", "poweroff")),
                cost="hardware",
                blast_radius="the whole node",
            ),
        ),
    ),
)

ALL = {"healthy-h200": HEALTHY, "mismatch": MISMATCH, "no-gpu": NO_GPU, "could-not-tell": STUCK}


def known(value, origin="hand"):
    return facts.Known(value=value, origin=origin)


#: After a real node read on 2026-11-30: one H200 in a virtual machine, no systemd, no EFI.
H200 = facts.Host(
    collection=facts.Collection(
        taken_at="2026-11-30T08:01:41Z",
        boot_id="00000000-0000-0000-0000-000000000001",
        root=True,
        tool="mopt-doctor 0.1.0",
    ),
    system=facts.System(
        os=known(
            facts.Os(id="ubuntu", version="24.04", pretty_name="Ubuntu 24.04.3 LTS", id_like=("debian",))
        ),
        architecture=known("x86_64", "command:uname-a"),
        virtualisation=known(facts.Virtualisation(kind="vm", name="kvm")),
        resources=known(
            facts.Resources(
                memory_bytes=200 * 1024**3,
                memory_available_bytes=190 * 1024**3,
                cpu_count=16,
                filesystems=(facts.Filesystem(path="/", total_bytes=10**11, free_bytes=10**10, kind="ext4"),),
                limits=(facts.Limit(name="memlock", soft=-1, hard=-1),),
            )
        ),
        hostname=known("vm"),
        environment={"LD_LIBRARY_PATH": "/opt/driver/lib"},
    ),
    kernel=facts.Kernel(
        release=known("6.18.44-gpu"),
        secure_boot=known("unsupported"),
        lockdown=facts.Absent(reason="not_installed"),
        modules=known((facts.LoadedModule(name="nvidia", refcount=2, version=Dotted("580.159.04")),)),
        logs=known((facts.BootLog(index=0, messages=(facts.KernelMessage(kind="loading", text="NVRM"),)),)),
    ),
    pci=known(
        (
            facts.PciDevice(
                address="0000:00:06.0", device_id="10de:2335", class_code="030200", driver="nvidia"
            ),
        )
    ),
    driver=facts.Driver(
        kernel_version=known(Dotted("580.159.04"), "file:/proc/driver/nvidia/version"),
        flavour=known("open"),
        parameters=known({"EnableMSI": "1"}),
        userspace_version=known(Dotted("580.159.04")),
        nvml=known(
            facts.GpuReport(
                driver_version=Dotted("580.159.04"),
                cuda_driver_version=Dotted("13.0"),
                gpus=(
                    facts.Gpu(
                        index=0,
                        pci_address="0000:00:06.0",
                        name="NVIDIA H200",
                        uuid="GPU-00000000-0000-0000-0000-000000000001",
                        compute_capability="9.0",
                        memory_bytes=150754820096,
                        temperature_c=31,
                    ),
                ),
            )
        ),
    ),
    cuda=facts.Cuda(
        probe=known(
            facts.CudaProbe(result=0, name="CUDA_SUCCESS", driver_version=Dotted("13.0"), device_count=1)
        ),
        toolkits=known(
            (facts.Toolkit(path="/usr/local/cuda-13.0", version=Dotted("13.0.2"), is_default=True),)
        ),
    ),
    packages=known(
        facts.Packages(
            manager="dpkg",
            installed=(facts.Package(name="libcudnn9-cuda-13", version="9.14.0.64-1", origin="nvidia.com"),),
            holds=known(("libnccl2",)),
        )
    ),
)

MISMATCH_HOST = facts.Host(
    collection=facts.Collection(
        taken_at="2026-11-30T08:01:41Z",
        root=False,
        stuck=(
            facts.StuckItem(key="nvml", pid=4211, state="D", wchan="nv_open_device", waited_s=10.0),
            facts.StuckItem(key="command:nvidia-smi-q-x"),
        ),
        denied=(
            "command:dmesg",
            "file:/sys/firmware/efi/x",
            "command:mokutil-sb-state",
            "command:a",
            "command:b",
        ),
        errors=("command:dkms-status: exit status 3",),
    ),
    system=facts.System(resources=facts.Absent(reason="failed", detail="`/proc/meminfo` is empty")),
    kernel=facts.Kernel(release=known("6.8.0-124-generic"), lockdown=known("none")),
    pci=known(()),
    driver=facts.Driver(
        kernel_version=facts.Absent(reason="not_installed", origin="file:/proc/driver/nvidia/version"),
        userspace_version=known(Dotted("580.105.08")),
        nvml=known(facts.GpuReport(error="Driver/library version mismatch", error_code=18)),
        smi=facts.Absent(reason="timeout", detail="10 s"),
    ),
    cuda=facts.Cuda(
        probe=known(facts.CudaProbe(error="libcuda.so.1: cannot open shared object file")), toolkits=known(())
    ),
)

NOTHING = facts.Host()

EXPLAINED = explained.ExplainReport(
    tool="mopt-doctor",
    exit_code=0,
    source="pasted.txt",
    decided_by="host",
    host="node.tar.gz",
    lines=12,
    causes=(
        explained.Named(
            id="driver.userspace_kernel_mismatch",
            title="the loaded module and the driver libraries have different versions",
            confidence="strong",
            score=0.97,
            layer="driver",
            refined_by=("driver.reboot_pending",),
            matched=(
                explained.Matched(
                    line=3, text="Driver/library version mismatch", signature="driver.nvml_mismatch"
                ),
                explained.Matched(
                    line=7, text="API mismatch: the client", signature="kernel.api_mismatch", count=4
                ),
            ),
            because=("loaded module is 580.159.03, user-space libraries are 580.173.02",),
            remedy=Remedy(summary="drain, then reboot", commands=(("systemctl", "reboot"),), cost="reboot"),
        ),
        explained.Named(
            id="driver.mixed_install_sources",
            title="parts of the driver come from several sources",
            confidence="possible",
            score=0.4,
            layer="driver",
            matched=(
                explained.Matched(
                    line=3, text="Driver/library version mismatch", signature="driver.nvml_mismatch"
                ),
            ),
            deciding_facts=("states of the driver packages",),
        ),
        explained.Named(
            id="healthy",
            title="such lines stand in the logs of hosts that are well",
            confidence="likely",
            score=0.6,
            is_harmless=True,
            matched=(
                explained.Matched(
                    line=9, text="taints kernel.", signature="kernel.taints", note="every such driver says so"
                ),
            ),
        ),
    ),
    ruled_out=(
        explained.RuledOut(
            id="gpu.fallen_off_bus",
            title="a GPU has fallen off the PCIe bus",
            because=("not so: gpu fallen",),
        ),
    ),
    facts=(explained.TextFact(name="client", value="580.173.02"),),
    matrix_edition="2026.11",
)
