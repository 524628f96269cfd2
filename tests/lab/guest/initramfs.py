"""What a rebuilt boot image holds, for update-initramfs and dracut: the blacklists and modules of this moment.

Each build is counted in /var/log/lab/initramfs, so that a test can tell a needless one.
"""

import glob
import json
import os


def build(image, kernel):
    """Write the image of one kernel."""
    lists = []
    for pattern in ("/etc/modprobe.d/*.conf", "/usr/lib/modprobe.d/*.conf"):
        for path in sorted(glob.glob(pattern)):
            with open(path) as handle:
                lists += [
                    line.split()[1]
                    for line in handle
                    if line.split()[:1] == ["blacklist"] and line.split()[1:]
                ]
    modules = [p for p in glob.glob(f"/lib/modules/{kernel}/updates/dkms/*.ko")]
    with open(image + ".new", "w") as handle:
        json.dump({"kernel": kernel, "blacklist": sorted(set(lists)), "modules": sorted(modules)}, handle)
    os.replace(image + ".new", image)
    os.makedirs("/var/log/lab", exist_ok=True)
    with open("/var/log/lab/initramfs", "a") as handle:
        handle.write(kernel + "\n")


def kernels():
    """Every kernel whose image lies in /boot."""
    return sorted(p[len("/boot/vmlinuz-") :] for p in glob.glob("/boot/vmlinuz-*"))
