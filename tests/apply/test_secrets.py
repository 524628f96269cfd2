"""No secret in anything that a run keeps, in its folder while it lasts, or on a command line."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from doctor.apply.ansible import find_playbook_program
from doctor.apply.scrub import Scrub, secrets_in
from tests.apply.site import ROOT, Site

#: Where each is: variables of a site's file, one that is encrypted, password files, the caller's environment.
IN_FILE = {
    "proxy_password": "proxy-pw-Xk29dLq",
    "registry_token": "registry-tok-77ahQ",
    "apt_auth_secret": "apt-auth-9fjW2k",
    "hook_api_key": "hook-key-Pq81mz",
    "ldap_bind_passwd": "ldap-pw-3hTr6v",
    "db_credential": "db-cred-0sKe5n",
    "bot_auth": "bot-auth-Zt4c8y",
    "session_cookie": "cookie-Lm2x7w",
    "tls_passphrase": "tls-phrase-Gb6u1q",
    "quoted_secret": "quoted secret with spaces",
}
IN_VAULT = {"vaulted_password": "vaulted-Jd93nBx", "vaulted_url": "http://vu:vaulted-url-5pQz@proxy:3128/"}
IN_ADDRESS = {
    "http_proxy": "http://proxyuser:addr-pw-8xN3@proxy.example:3128",
    "https_proxy": "http://addr-token-4kV7@proxy.example:3128",
    "pip_index": "https://reader:addr-pip-1rC9@index.example/simple",
}
IN_ENVIRONMENT = {
    "HF_TOKEN": "hf_envTokenAbCdEfGh1234",
    "GITHUB_TOKEN": "ghp_envTokenAbCdEfGhIjKlMnOp1234",
    "AWS_SECRET_ACCESS_KEY": "envAwsSecret/7Hq2mK9",
    "ANSIBLE_BECOME_PASS": "env-become-2wXz8Q",
    "HTTPS_PROXY": "http://envuser:env-proxy-6tY1@proxy:3128",
    "NGC_API_KEY": "nvapi-envKeyAbCdEfGhIjKl",
    "MY_OWN_THING": "env-own-9mR4vJ",
}
VAULT_PASSWORD, BECOME_PASSWORD = "vault-master-5nK8sD", "become-master-7bH2fL"
SAID = {
    "bearer": "Authorization: Bearer said-bearer-3gT6yU9",
    "query": "GET https://mirror.example/f?access_token=said-query-1zX5cV8 failed",
    "token": "said glpat-saidTokenAbCdEfGh1234",
    "jwt": "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
}
SECRETS = (
    *IN_FILE.values(), "vaulted-Jd93nBx", "vaulted-url-5pQz", "addr-pw-8xN3", "addr-token-4kV7",
    "addr-pip-1rC9", *IN_ENVIRONMENT.values(), VAULT_PASSWORD, BECOME_PASSWORD,
    "said-bearer-3gT6yU9", "said-query-1zX5cV8",
    "glpat-saidTokenAbCdEfGh1234", "eyJhbGciOiJI.eyJzdWIiOiIx", "no-log-word-8fE3aP",
)  # fmt: skip

_BOOK = """
- hosts: all
  gather_facts: false
  tasks:
    - name: See what is left to do
      mopt_pending: {world: WORLD, stages: "{{ mopt_stages }}"}
      check_mode: false
    - name: argument
      command: {argv: [echo, "{{ registry_token }}", "{{ vaulted_password }}", "{{ pip_index }}"]}
    - name: shown
      debug: {msg: "{{ apt_auth_secret }} {{ vaulted_url }} {{ https_proxy }}"}
    - name: kept in a fact
      set_fact: {kept: "{{ hook_api_key }}{{ db_credential }}"}
    - name: "named after {{ ldap_bind_passwd }}"
      command: {argv: ["true"]}
    - name: hidden
      command: {argv: [echo, no-log-word-8fE3aP]}
      no_log: true
    - name: hidden and failed
      fail: {msg: no-log-word-8fE3aP}
      no_log: true
      ignore_errors: true
    - name: takes a moment
      command: {argv: [sleep, "1"]}
      changed_when: false
    - name: told
      fail: {msg: "{{ item }}"}
      loop: SAID
"""


@pytest.fixture
def files(site: Site) -> dict[str, Path]:
    """What an administrator has: files of variables, one of them encrypted, and files of passwords."""
    plain, vault = site.place / "site.yml", site.place / "vault.yml"
    rows = [*IN_FILE.items(), *IN_ADDRESS.items()]
    plain.write_text("".join(f'{name}: "{value}"\n' for name, value in rows))
    vault.write_text("".join(f'{name}: "{value}"\n' for name, value in IN_VAULT.items()))
    passwords = {"vault": site.place / "vault-password", "become": site.place / "become-password"}
    passwords["vault"].write_text(VAULT_PASSWORD + "\n")
    passwords["become"].write_text(BECOME_PASSWORD + "\n")
    for path in (plain, vault, *passwords.values()):
        path.chmod(0o600)
    program = Path(find_playbook_program()).with_name("ansible-vault")
    subprocess.run(
        [program, "encrypt", "--vault-password-file", passwords["vault"], vault],
        check=True, capture_output=True, timeout=60,
        env={"PATH": os.environ["PATH"], "HOME": str(site.place)},
    )  # fmt: skip
    assert vault.read_text().startswith("$ANSIBLE_VAULT")
    return {"plain": plain, "vault": vault, **{f"{name}_password": path for name, path in passwords.items()}}


class _Spy(threading.Thread):
    """Looks again and again at every file of a folder, and at every command line."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder, self.found, self.looks, self.over = folder, set[str](), 0, threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            self.look()
            time.sleep(0.01)

    def look(self) -> None:
        self.looks += 1
        for path in (*self.folder.rglob("*"), *Path("/proc").glob("[0-9]*/cmdline")):
            try:
                data = path.read_bytes().decode("utf-8", "replace")
            except OSError:
                continue
            self.found |= {f"{path}: {secret}" for secret in SECRETS if secret in data}


def _lines(said: dict[str, str]) -> Iterator[str]:
    for text in (*said.values(), *IN_FILE, *IN_ADDRESS, *IN_VAULT):
        yield f'        - "{text}"' if text in said.values() else f'        - "it was {{{{ {text} }}}}"'


@pytest.mark.slow
def test_no_secret_is_kept_shown_or_lying_about(site: Site, files: dict[str, Path]) -> None:
    assert len(SECRETS) >= 20
    site.write("site.yml", _BOOK.replace("loop: SAID", "loop:\n" + "\n".join(_lines(SAID))))
    site.order(variable_files=(str(files["plain"]), str(files["vault"])))
    environment = os.environ | IN_ENVIRONMENT
    environment["ANSIBLE_VAULT_PASSWORD_FILE"] = str(files["vault_password"])
    environment["ANSIBLE_BECOME_PASSWORD_FILE"] = str(files["become_password"])
    spy = _Spy(site.folder)
    spy.start()
    done = subprocess.run(
        [*site.argv, "work", str(site.folder)], env=environment, capture_output=True, check=False, timeout=120
    )
    spy.over.set()
    spy.join()
    spy.look()
    journal = (site.folder / "journal.jsonl").read_text()
    assert done.returncode == 4, done.stderr
    assert '"task":"told","state":"failed"' in journal, journal[-3000:]
    assert journal.count("***") > 10
    assert "it was " in journal, "the rest of a message is kept"
    # Its own command line names what the test passes to `echo`: that is the playbook's doing, and it is seen.
    echoed = {IN_FILE["registry_token"], "vaulted-Jd93nBx", "addr-pip-1rC9", "no-log-word-8fE3aP"}
    kept = {one for one in spy.found if not (one.startswith("/proc/") and one.rpartition(": ")[2] in echoed)}
    assert sorted(kept) == []
    assert spy.looks > 20
    said = done.stdout + done.stderr
    assert not [secret for secret in SECRETS if secret.encode() in said]
    assert not list(Path("/dev/shm").glob("mopt-ansible-r1-*"))


# --- the scrubber ---------------------------------------------------------------------------------

FORMS = {
    "a password in an address": (
        "Cannot reach http://me:pw@proxy:3128/x",
        "Cannot reach http://***@proxy:3128/x",
    ),
    "a token in an address": ("https://ghp@host/a.git", "https://***@host/a.git"),
    "a user and a port are no address": ("root@node1:22 refused", "root@node1:22 refused"),
    "an assignment": ("api_key=abcdef123 rejected", "api_key=*** rejected"),
    "a header": ("Authorization: Bearer abcdef.123", "Authorization: Bearer ***"),
    "a token by its form": ("hf_abcdefghijklmnopqrst was refused", "*** was refused"),
    "versions and paths stay": (
        "nvidia-open 580.126.20-1 at /usr/lib",
        "nvidia-open 580.126.20-1 at /usr/lib",
    ),
    "a query": ("https://m/f?token=abcdef1&x=2", "https://m/f?token=***&x=2"),
}


@pytest.mark.parametrize("name", FORMS)
def test_what_has_the_form_of_a_secret_goes(name: str) -> None:
    text, wanted = FORMS[name]
    assert Scrub()(text) == wanted


def test_known_secrets_go_wherever_they_stand_the_longer_first() -> None:
    scrub = Scrub(["hunter2hunter2", "hunter2hunter2-more", "short", ""])
    assert scrub("xhunter2hunter2-morey short hunter2hunter2") == "x***y short ***"


def test_secrets_are_found_in_files_of_either_form(tmp_path: Path) -> None:
    yaml, json = tmp_path / "a.yml", tmp_path / "b.json"
    yaml.write_text("# of the site\nproxy_password: 'pw one two'\nmode: compute\nurl: http://u:pw-three@p/\n")
    json.write_text('{"api_token":"tok-four-four","plain":"word-word","nested":{"SECRET": "sec-five-five"}}')
    found = secrets_in([yaml, json, tmp_path / "none"], {})
    assert found >= {"pw one two", "pw-three", "tok-four-four", "sec-five-five"}
    assert not {"compute", "word-word"} & found


def test_our_roles_put_nothing_into_the_environment_of_a_module() -> None:
    """Ansible writes `environment` into the shell's command line on the host, where everybody reads it."""
    books = [*(ROOT / "playbooks").rglob("*.yml")]
    assert len(books) > 20
    assert [
        str(path) for path in books if re.search(r"^\s*environment:", path.read_text(), re.MULTILINE)
    ] == []


@pytest.mark.slow
def test_a_single_value_in_a_vault_is_known_too(files: dict[str, Path], site: Site) -> None:
    program = Path(find_playbook_program()).with_name("ansible-vault")
    environment = {"PATH": os.environ["PATH"], "HOME": str(site.place)}
    done = subprocess.run(
        [
            program, "encrypt_string", "--vault-password-file", files["vault_password"],
            "inline-vault-9Qw", "-n", "mode",
        ],
        check=True, capture_output=True, timeout=60, env=environment,
    )  # fmt: skip
    mixed = site.place / "mixed.yml"
    mixed.write_text(f"plain: word\n{done.stdout.decode()}\nother: value\n")
    environment["ANSIBLE_VAULT_PASSWORD_FILE"] = str(files["vault_password"])
    assert {"inline-vault-9Qw", VAULT_PASSWORD} <= secrets_in([mixed], environment)
    assert secrets_in([mixed], {"PATH": os.environ["PATH"], "HOME": str(site.place)}) == set()


def test_a_password_program_is_not_read_as_a_password(tmp_path: Path) -> None:
    program, file = tmp_path / "program", tmp_path / "file"
    program.write_text("#!/bin/sh\necho word\n")
    program.chmod(0o700)
    file.write_text("the-password\n")
    names = {"ANSIBLE_VAULT_PASSWORD_FILE": str(program), "ANSIBLE_BECOME_PASSWORD_FILE": str(file)}
    assert secrets_in([], names) == {"the-password"}


def test_a_hostile_text_costs_no_time() -> None:
    began = time.monotonic()
    for text in ("://" + "a" * 200_000, "password" * 30_000, "a=" * 100_000, "x:" * 100_000 + "@"):
        Scrub(["secret-secret"])(text)
    assert time.monotonic() - began < 5
