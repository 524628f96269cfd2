"""Toolkit, cgroups, links of devices, SELinux and Kubernetes, as facts."""

from __future__ import annotations

import pytest

from doctor.core.host import NOT_COLLECTED, Known, Package, Packages, Unit
from doctor.core.host_container import Containers
from doctor.facts.containers import read_containers
from tests.facts.evidence import evidence

CONFIG = """disable-require = false
#swarm-resource = "DOCKER_RESOURCE_GPU"

[nvidia-container-cli]
#debug = "/var/log/nvidia-container-toolkit.log"
environment = []
ldconfig = "@/sbin/ldconfig.real"
load-kmods = true
no-cgroups = true

[nvidia-container-runtime]
debug = "/var/log/nvidia-container-runtime.log"
mode = "auto"
runtimes = ["runc", "crun"]

[nvidia-container-runtime.modes.cdi]
default-kind = "nvidia.com/gpu"
"""
PATH = "/etc/nvidia-container-runtime/config.toml"
NODES = {"/dev/nvidiactl": {"kind": "char"}, "/dev/nvidia0": {"kind": "char"}}
AVC = (
    'type=AVC msg=audit(1732968000.123:412): avc:  denied  { read write } for  pid=4242 comm="nvidia-smi" '
    'path="/dev/nvidiactl" dev="devtmpfs" ino=512 scontext=system_u:system_r:container_t:s0:c1,c2 '
    "tcontext=system_u:object_r:xserver_misc_device_t:s0 tclass=chr_file permissive=0"
)
OTHER_AVC = (
    AVC.replace("nvidia-smi", "httpd")
    .replace("/dev/nvidiactl", "/srv/x")
    .replace("xserver_misc_device_t", "var_t")
)


def read(
    files=None, commands=None, stats=None, *, packages=NOT_COLLECTED, units=NOT_COLLECTED, **kwargs
) -> Containers:
    inside = kwargs.pop("in_container", False)
    return read_containers(evidence(files, commands, stats, **kwargs), packages, units, in_container=inside)


def installed(name: str, version: str) -> Known[Packages]:
    rows = (Package(name=name, version=version),)
    return Known(value=Packages(manager="dpkg", installed=rows), origin="command:dpkg-query")


# --- NVIDIA Container Toolkit ---------------------------------------------------------------------


def test_the_toolkits_configuration():
    config = read({PATH: CONFIG}).toolkit_config.value
    assert (config.path, config.mode, config.no_cgroups, config.fault) == (PATH, "auto", True, "")
    assert (config.ldconfig, config.root, config.swarm_resource) == ("@/sbin/ldconfig.real", None, None)
    assert config.debug == "/var/log/nvidia-container-runtime.log"


REAL, PLAIN = "/sbin/ldconfig.real", "/sbin/ldconfig"


@pytest.mark.parametrize(
    ("stats", "there"),
    [
        ({PLAIN: {}, REAL: None}, (PLAIN,)),
        ({PLAIN: {}, REAL: {}}, (PLAIN, REAL)),
        ({PLAIN: None, REAL: None}, ()),
        ({PLAIN: {}}, None),
        ({}, None),
    ],
)
def test_the_ldconfig_that_it_names_is_looked_for_by_both_names(stats, there):
    assert read({PATH: CONFIG}, stats=stats).toolkit_config.value.ldconfig_there == there


def test_an_ldconfig_of_the_image_is_looked_for_nowhere():
    text = CONFIG.replace("@/sbin/ldconfig.real", PLAIN)
    text += "\n[features]\nallow-ldconfig-from-container = true\n"
    config = read({PATH: text}, stats={PLAIN: {}, REAL: None}).toolkit_config.value
    assert (config.ldconfig_there, config.allows_ldconfig_of_image) == (None, True)


def test_the_configuration_that_the_operator_brings():
    path = "/usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml"
    text = '[nvidia-container-cli]\nroot = "/run/nvidia/driver"\n[nvidia-container-runtime]\nmode = "cdi"\n'
    config = read({path: text}, absent={f"file:{PATH}": "missing"}).toolkit_config.value
    assert (config.path, config.root, config.mode) == (path, "/run/nvidia/driver", "cdi")
    assert read(absent={f"file:{PATH}": "missing"}).toolkit_config.reason == "not_installed"


def test_a_broken_configuration_is_named():
    config = read({PATH: CONFIG.replace('"auto"', "auto")}).toolkit_config.value
    assert config.fault == "line 13: `auto` is no value: a text needs quotes"
    assert config.no_cgroups is True


def test_the_toolkits_version():
    said = "NVIDIA Container Toolkit CLI version 1.17.8\ncommit: f202b80a9b9d0db00d9b1d73c0128c8962c55f4d\n"
    ran = {("nvidia-ctk", "--version"): (0, said)}
    assert str(read(commands=ran).toolkit_version.value) == "1.17.8"
    owned = read(commands=ran, packages=installed("nvidia-container-toolkit", "1.18.1-1")).toolkit_version
    assert (str(owned.value), owned.origin) == ("1.18.1", "command:dpkg-query")
    assert read(absent={"command:nvidia-ctk-version": "missing"}).toolkit_version.reason == "not_installed"
    assert read(packages=installed("nvidia-driver-580", "580")).toolkit_version.reason == "not_collected"
    assert read(commands={("nvidia-ctk", "--version"): (1, "oops")}).toolkit_version.reason == "unreadable"


def test_is_its_runtime_on_disk():
    both = {"/usr/bin/nvidia-container-runtime": None, "/usr/bin/nvidia-container-runtime-hook": None}
    assert read(stats=both).runtime_hook_present.value is False
    assert (
        read(stats={**both, "/usr/bin/nvidia-container-runtime-hook": {}}).runtime_hook_present.value is True
    )
    half = {"/usr/bin/nvidia-container-runtime": None}
    assert read(stats=half).runtime_hook_present.reason == "not_installed"
    assert read().runtime_hook_present.reason == "not_collected"


# --- the kernel's side ----------------------------------------------------------------------------


def test_cgroups():
    path = "/sys/fs/cgroup/cgroup.controllers"
    assert read(stats={path: {}}).cgroup_version.value == 2
    assert read(stats={path: None}).cgroup_version.value == 1
    assert read(documents={"docker": {"CgroupVersion": "2"}}).cgroup_version.value == 2
    assert read().cgroup_version.reason == "not_collected"


def test_links_below_dev_char():
    linked = {**NODES, "/dev/char": {"kind": "dir"}, "/dev/char/195:0": "../nvidia0"}
    assert read(stats=linked).char_links.value is True
    unlinked = {**NODES, "/dev/char": {"kind": "dir"}}
    assert read(stats=unlinked).char_links.value is False
    nowhere = {"/dev/nvidiactl": None, "/dev/nvidia0": None, "/dev/char": {"kind": "dir"}}
    assert read(stats=nowhere).char_links.reason == "not_installed"
    assert read(stats=NODES).char_links.reason == "not_collected"


@pytest.mark.parametrize(("word", "mode"), [("1", "enforcing"), ("0", "permissive")])
def test_selinux_of_the_running_kernel(word, mode):
    assert read({"/sys/fs/selinux/enforce": word}).selinux.value == mode


def test_a_kernel_without_selinux():
    gone = {"/sys/fs/selinux": None}
    assert read(stats=gone).selinux.value == "disabled"
    assert read(stats=gone).selinux_use_devices.reason == "not_installed"
    assert read(stats=gone).selinux_denials.reason == "not_installed"
    # A container does not see it; the host's kernel may well have it.
    assert read(stats=gone, in_container=True).selinux.reason == "not_collected"
    # What the configuration asks for is not what runs.
    assert read({"/etc/selinux/config": "SELINUX=enforcing\n"}).selinux.reason == "not_collected"
    assert read(commands={("getenforce",): (0, "Permissive\n")}).selinux.value == "permissive"


def test_the_boolean_for_devices():
    path = "/sys/fs/selinux/booleans/container_use_devices"
    assert read({path: "1 1"}).selinux_use_devices.value is True
    assert read({path: "0 1"}).selinux_use_devices.value is False
    said = {("getsebool", "container_use_devices"): (0, "container_use_devices --> on\n")}
    assert read(commands=said).selinux_use_devices.value is True
    assert read(absent={f"file:{path}": "denied"}).selinux_use_devices.reason == "denied"


def test_denials_that_are_about_gpus():
    log = "/var/log/audit/audit.log"
    enforcing = {"/sys/fs/selinux/enforce": "1"}
    assert read({**enforcing, log: f"{AVC}\n{OTHER_AVC}\n"}).selinux_denials.value == (AVC,)
    assert read({**enforcing, log: OTHER_AVC}).selinux_denials.value == ()
    kernel = f"[   12.5] audit: {AVC.partition(' ')[2]}\n"
    in_ring = read(enforcing, {("dmesg",): (0, kernel)}, absent={f"file:{log}": "missing"})
    assert len(in_ring.selinux_denials.value) == 1
    silent = read(enforcing, {("dmesg",): (0, "[ 1.0] x\n")}, absent={f"file:{log}": "missing"})
    assert silent.selinux_denials.value == ()
    # The kernel's log alone proves nothing while auditd may keep them elsewhere.
    assert (
        read(enforcing, {("dmesg",): (0, "x")}, absent={f"file:{log}": "denied"}).selinux_denials.reason
        == "denied"
    )
    assert read(enforcing, {("dmesg",): (0, "x")}).selinux_denials.reason == "not_collected"


# --- Kubernetes -----------------------------------------------------------------------------------

NO_KUBERNETES = dict.fromkeys(
    [
        "/usr/local/bin/rke2",
        "/opt/rke2/bin/rke2",
        "/usr/local/bin/k3s",
        "/snap/microk8s/current",
        "/usr/bin/kubelet",
    ]
)
NO_OPERATOR = dict.fromkeys(["/run/nvidia/driver", "/run/nvidia/validations"])


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/usr/bin/kubelet", "kubelet"),
        ("/usr/local/bin/k3s", "k3s"),
        ("/opt/rke2/bin/rke2", "rke2"),
        ("/snap/microk8s/current", "microk8s"),
    ],
)
def test_distributions(path, name):
    found = read(stats={**NO_KUBERNETES, **NO_OPERATOR, path: {}}).kubernetes.value
    assert (found.distribution, found.has_nvidia_operator) == (name, False)


def test_a_unit_is_a_mark_too():
    units = Known(
        value=(Unit(name="kubelet.service", load="loaded", active="active"),), origin="command:systemctl"
    )
    assert read(units=units).kubernetes.value.distribution == "kubelet"


def test_operator_and_device_plugin():
    plugins = "/var/lib/kubelet/device-plugins"
    stats = {
        "/run/nvidia/driver": {"kind": "dir"},
        plugins: {"kind": "dir"},
        f"{plugins}/nvidia-gpu.sock": {"kind": "socket"},
    }
    found = read(stats=stats).kubernetes.value
    assert (found.distribution, found.has_nvidia_operator, found.has_device_plugin_socket) == ("", True, True)
    without = read(stats={"/usr/bin/kubelet": {}, **NO_OPERATOR, plugins: {"kind": "dir"}}).kubernetes.value
    assert (without.has_nvidia_operator, without.has_device_plugin_socket) == (False, False)
    untold = read(stats={"/usr/bin/kubelet": {}}).kubernetes.value
    assert (untold.has_nvidia_operator, untold.has_device_plugin_socket) == (None, None)


def test_no_kubernetes():
    assert read(stats={**NO_KUBERNETES, **NO_OPERATOR}).kubernetes.reason == "not_installed"
    assert read().kubernetes.reason == "not_collected"
