"""Runs a command beside a mount whose files hang, fail or answer: `hanging_mount.py DIR -- COMMAND…`.

A FUSE server of a few lines: the kernel's own way to have reads that no signal ends. Names starting
with `host` are never answered, with `taint` answered by EIO, with `os` answered; anything else is
not there. Needs root and /dev/fuse, and to be run under `unshare -m`. The command's output passes
through; when it has ended, what still hangs is freed by the kernel.
"""

import ctypes
import errno
import os
import struct
import subprocess
import sys
import threading

LOOKUP, GETATTR, OPEN, READ, INIT = 1, 3, 14, 15, 26
RELEASE, FLUSH, OPENDIR = 18, 25, 27
CONTENT = b"6.8.0-45-generic\n"
NODES = {b"osrelease": 2, b"hostname": 3, b"tainted": 4}


def attributes(node):
    mode, size = (0o40755, 0) if node == 1 else (0o100444, 4096)
    return struct.pack("<QQQQQQIIIIIIIIII", node, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(opcode, node, body):
    """(errno, reply) of a request; None for one that is never answered."""
    if opcode == INIT:
        return 0, struct.pack("<IIIIHHIIHH", 7, 31, 65536, 0, 8, 8, 65536, 1, 0, 0) + bytes(28)
    if opcode == LOOKUP:
        child = NODES.get(body.rstrip(b"\0"))
        entry = struct.pack("<QQQQII", child or 0, 0, 0, 0, 0, 0)
        return (0, entry + attributes(child)) if child else (errno.ENOENT, b"")
    if opcode == GETATTR:
        return 0, struct.pack("<QII", 0, 0, 0) + attributes(node)
    if opcode in (OPEN, OPENDIR):
        return 0, struct.pack("<QII", 0, 1, 0)
    if opcode == READ:
        offset = struct.unpack_from("<QQ", body)[1]
        return {2: (0, CONTENT[offset:]), 3: None, 4: (errno.EIO, b"")}[node]
    return (0, b"") if opcode in (RELEASE, FLUSH) else (errno.ENOSYS, b"")


def serve(fd):
    while True:
        try:
            request = os.read(fd, 1 << 17)
        except OSError:
            return
        _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
        reply = answer(opcode, node, request[40:])
        if reply is not None and opcode not in (2, 36, 42):  # forget and interrupt want no answer
            os.write(fd, struct.pack("<IiQ", 16 + len(reply[1]), -reply[0], unique) + reply[1])


def main():
    directory, command = sys.argv[1], sys.argv[3:]
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"hang", directory.encode(), b"fuse", 0, options.encode()):
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    threading.Thread(target=serve, args=(fd,), daemon=True).start()
    sys.exit(subprocess.run(command, check=False).returncode)


if __name__ == "__main__":
    main()
