"""Packages, units, histories and kernel logs of a host."""

from __future__ import annotations

import time

from tests.cases.driver import BUILT, title_of
from tests.cases.params import BOOTED, Cards, Described, Items, filled, is_rpm, kernels

__all__ = ["add_logs", "add_software"]


def add_software(items: Items, machine: Described, driver: Described) -> None:
    packages = {filled(k, machine): v for k, v in (machine.get("packages") or {}).items() if v}
    items.packages = {
        name: filled(value, machine)
        if isinstance(value, str)
        else {k: filled(str(v), machine) for k, v in value.items()}
        for name, value in packages.items()
        if (driver["version"] and driver["source"] != "runfile")
        or not ("nvidia" in name and driver["branch"] in name)
    }
    for release, told in kernels(machine).items():
        for name, version in (machine["kernel"].get("packages") or {}).items():
            is_headers = "headers" in name or "devel" in name
            if (told.get("headers", True) if is_headers else told.get("bootable", True)) and version:
                number = release.rsplit(".", 1)[0] if is_rpm(machine) else told.get("version", version)
                items.packages[name.replace("{kernel}", release)] = number.replace("{kernel}", release)
    items.units = dict(machine.get("units") or {})
    if machine.get("history"):
        path = "/var/log/dnf.rpm.log" if is_rpm(machine) else "/var/log/apt/history.log"
        items.files[path] = machine["history"]


def add_logs(items: Items, machine: Described, driver: Described, gpus: Cards) -> None:
    running, built = machine["kernel"]["running"], machine["kernel"]["built"]
    secure = machine.get("secure_boot", False)
    lines = [f"[    0.000000] Linux version {running} {built}"]
    lines += ["[    0.000000] " + str(items.files["/proc/cmdline"]).strip().join(("Command line: ", ""))]
    if secure is not None:
        lines += [f"[    0.000000] secureboot: Secure boot {'enabled' if secure else 'disabled'}"]
    lines += [
        f"[    1.4{i:05}] pci {g['at']}: [10de:{g['device']}] type 00 class 0x030200"
        for i, g in enumerate(gpus)
    ]
    lines += ["[    5.100000] systemd[1]: Inserted module 'autofs4'"]
    if driver["loaded"]:
        lines += _driver_lines(driver, gpus)
    lines += [
        line if line.startswith("[") else f"[  {60 + i}.000000] {line}"
        for i, line in enumerate(machine.get("log") or ())
    ]
    items.command("dmesg", "".join(f"{line}\n" for line in lines))
    items.command("journalctl -k -b 0", "".join(_journal(line, BOOTED) for line in lines))
    before = machine.get("log_before")
    if before:
        items.command(
            "journalctl -k -b -1",
            "".join(_journal(f"[ {90 + i}.0] {x}", BOOTED - 86400) for i, x in enumerate(before)),
        )
    else:
        absent = "Data from the specified boot (-1) is not available: No such boot ID in journal\n"
        items.command("journalctl -k -b -1", "", rc=1, err=absent)


def _driver_lines(driver: Described, gpus: Cards) -> list[str]:
    lines = ["nvidia: loading out-of-tree module taints kernel."]
    if not driver.get("signer"):
        lines += [
            "nvidia: module verification failed: signature and/or required key missing - tainting kernel"
        ]
    lines += ["nvidia-nvlink: Nvlink Core is being initialized, major device number 234"]
    lines += [f"nvidia {gpu['at']}: enabling device (0000 -> 0002)" for gpu in gpus[:8]]
    lines += [f"NVRM: loading {title_of(driver)}  {driver['loaded']}  {BUILT}"]
    if driver["uvm"]:
        lines += ["nvidia-uvm: Loaded the UVM driver, major device number 508."]
    return [f"[    8.{20 + i}0000] {line}" for i, line in enumerate(lines)]


def _journal(line: str, booted: int) -> str:
    stamp, _, text = line.partition("] ")
    at = time.gmtime(booted + float(stamp.strip("[ ")))
    return f"{time.strftime('%b %d %H:%M:%S', at)} node kernel: {text}\n"
