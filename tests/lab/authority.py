"""Keys of the lab: one signing key a vendor, and a certificate authority for the vendors' host names."""

from __future__ import annotations

import os
import shutil
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.base import digest_of, once, run
from tests.lab.places import CACHE

__all__ = ["VENDORS", "Authority", "ensure_authority"]

#: Who signs: the name that a repository's row goes by, and the fingerprint that the true key has in packages.yaml.
VENDORS = {
    "cuda": (
        "EB693B3035CD5710E231E123A4B469963BF863CC",
        "610C7B14E068A878070DA4E99CD0A493D42D0685",
        "CDF6BA43",
    ),
    "container-toolkit": ("C95B321B61E88C1809C4F759DDCAE044F796ECB0",),
    "epel": (
        "94E279EB8D8F25B21810ADF121EA45AB2F86D6A1",
        "FF8AD1344597106ECE813B918A3872BF3228467C",
        "7D8D15CBFC4E62688591FB2633D98517E37ED158",
    ),
    "system": (
        "7051C470A929F454CEBE37B715AF5DAC6D745A60",
        "21CB256AE16FC54C6E652949702D426D350D275D",
        "FC226859C0860BF0DDB95B085B106C736FEDFC85",
    ),
    "stranger": (),
}

HOST_NAMES = (
    "developer.download.nvidia.com",
    "nvidia.github.io",
    "archive.ubuntu.com",
    "security.ubuntu.com",
    "dl.rockylinux.org",
    "dl.fedoraproject.org",
    "mirror.example.test",
)


class Authority:
    """The keys in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = folder / "ca.pem"

    def public_key(self, vendor: str) -> Path:
        """Armoured, as a vendor serves it."""
        return self.folder / f"{vendor}.asc"

    def fingerprint(self, vendor: str) -> str:
        return (self.folder / f"{vendor}.fingerprint").read_text().strip()

    def replacements(self) -> dict[str, str]:
        """The lab's fingerprint for each true one: nobody but the vendor can sign with the true key."""
        return {true: self.fingerprint(vendor) for vendor, known in VENDORS.items() for true in known}

    @contextmanager
    def signing(self) -> Iterator[dict[str, str]]:
        """An environment in which gpg has the secret keys. A socket's path must be short: it lies in /tmp."""
        with tempfile.TemporaryDirectory(prefix="mlg-", dir="/tmp") as home:
            shutil.copytree(self.folder / "gnupg", home, dirs_exist_ok=True)
            environment = {**os.environ, "GNUPGHOME": home}
            try:
                yield environment
            finally:
                run("gpgconf", "--kill", "all", env=environment, check=False)

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "tls.pem", self.folder / "tls.key")
        return context


def user_id(vendor: str) -> str:
    return f"Lab {vendor} <{vendor}@example.invalid>"


def ensure_authority() -> Authority:
    """Made once a machine: seconds of CPU for keys that protect nothing."""
    target = CACHE / f"authority-{digest_of(Path(__file__))}"
    with once(target) as part:
        if part is not None:
            _make_keys(part)
            _make_certificates(part)
    return Authority(target)


def _make_keys(part: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="mlg-", dir="/tmp") as home:
        environment = {**os.environ, "GNUPGHOME": home}
        for vendor in VENDORS:
            name = user_id(vendor)
            run(
                "gpg",
                "--batch",
                "--quiet",
                "--passphrase",
                "",
                "--quick-gen-key",
                name,
                "rsa2048",
                "sign",
                "never",
                env=environment,
            )
            (part / f"{vendor}.asc").write_text(
                run("gpg", "--armor", "--export", name, env=environment).stdout
            )
            listing = run("gpg", "--with-colons", "--list-keys", name, env=environment).stdout
            fingerprint = next(line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr:"))
            (part / f"{vendor}.fingerprint").write_text(fingerprint + "\n")
        run("gpgconf", "--kill", "all", env=environment, check=False)
        shutil.copytree(home, part / "gnupg", ignore=shutil.ignore_patterns("S.*"))
    (part / "gnupg").chmod(0o700)


def _make_certificates(part: Path) -> None:
    # Python 3.13 verifies strictly: an authority must say what its key is for.
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650", "-subj", "/CN=Lab CA",
        "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-keyout", part / "ca.key", "-out", part / "ca.pem")  # fmt: skip
    run("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={HOST_NAMES[0]}",
        "-keyout", part / "tls.key", "-out", part / "tls.csr")  # fmt: skip
    extensions = part / "extensions"
    extensions.write_text(
        f"subjectAltName={','.join(f'DNS:{n}' for n in HOST_NAMES)}\nextendedKeyUsage=serverAuth\n"
        "authorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n"
    )
    run("openssl", "x509", "-req", "-in", part / "tls.csr", "-CA", part / "ca.pem", "-CAkey", part / "ca.key", "-days", "3650",
        "-CAcreateserial", "-extfile", extensions, "-out", part / "tls.pem")  # fmt: skip
