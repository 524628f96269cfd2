# ruff: noqa: E501 - playbooks as text
"""A site of small playbooks: the parts and stages of the real ones, with files in a folder for a host.

`world/done-STAGE` says that a stage holds; `world/fail-STAGE`, `slow-STAGE`, `reboot-STAGE`, `hurt-STAGE` make it
fail, take its time, want a restart, or fail half-way; `world/log` tells what ran.
"""

from __future__ import annotations

import sys
from pathlib import Path

from msgspec.structs import replace

from doctor.apply.order import Order, write_order
from doctor.core.plan import Plan, Promise
from doctor.core.run import Act
from doctor.edition.load import load_edition
from tests.core.plans import plan

ROOT = Path(__file__).resolve().parent.parent.parent
DRIVER = Path(__file__).with_name("driver.py")
STAGES = ("repositories", "driver")

_PENDING = """
import os
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule(argument_spec={"world": {"type": "path"}, "stages": {"type": "list"}}, supports_check_mode=True)
world = module.params["world"]
left = [one["id"] for one in module.params["stages"] if not os.path.exists(os.path.join(world, "done-" + one["id"]))]
if os.path.exists(os.path.join(world, "dumb")):
    module.exit_json(changed=False)
module.exit_json(changed=False, acting=left, stages=left, disruptive="driver" in left)
"""

_TRANSACTION = """
import os
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule(argument_spec={"world": {"type": "path"}, "stage": {"type": "str"}}, supports_check_mode=True)
if os.path.exists(os.path.join(module.params["world"], "hurt-" + module.params["stage"])):
    module.fail_json(msg="prov.packages_half_configured: the transaction ended half-way", outcome="half-way")
module.exit_json(changed=False)
"""

_SITE = """
- hosts: "{{ mopt_hosts | default('all') }}"
  gather_facts: false
  become: false
  vars:
    mopt_parts: [begin, stages, finish]
    mopt_only: "{{ mopt_stages | map(attribute='id') }}"
  tasks:
    - name: Preflight
      ansible.builtin.command: {argv: [sh, -c, "echo begin >> WORLD/log; test ! -e WORLD/fail-begin"]}
      changed_when: false
      when: "'begin' in mopt_parts and not ansible_check_mode"
    - name: See what is left to do
      mopt_pending: {world: WORLD, stages: "{{ mopt_stages }}"}
      register: mopt_pending
      check_mode: false
    - name: Stages
      ansible.builtin.include_tasks: stage.yml
      loop: "{{ mopt_stages }}"
      loop_control: {loop_var: mopt_stage, label: "{{ mopt_stage.id }}"}
      when: "mopt_stage.id in mopt_pending.acting | default([]) and mopt_stage.id in mopt_only and 'stages' in mopt_parts"
    - name: Close
      ansible.builtin.command: {argv: [sh, -c, "echo finish {{ mopt_drained | default('') }} >> WORLD/log"]}
      changed_when: false
      when: "'finish' in mopt_parts and not ansible_check_mode"
"""

_STAGE = """
- name: "Repositories of {{ mopt_stage.id }}"
  ansible.builtin.command: {argv: [sh, -c, "echo {{ mopt_stage.id }} >> WORLD/log; test ! -e WORLD/fail-{{ mopt_stage.id }} || { echo sorry >&2; exit 1; }"]}
  changed_when: false
- name: "Transactions of {{ mopt_stage.id }}"
  mopt_transaction: {world: WORLD, stage: "{{ mopt_stage.id }}"}
- name: "Packages of {{ mopt_stage.id }}"
  ansible.builtin.command: {argv: [touch, "WORLD/done-{{ mopt_stage.id }}"], creates: "WORLD/done-{{ mopt_stage.id }}"}
- name: "Work of {{ mopt_stage.id }}"
  ansible.builtin.command: {argv: [sh, -c, "test ! -e WORLD/slow-{{ mopt_stage.id }} || { touch WORLD/at-work; while test -e WORLD/slow-{{ mopt_stage.id }}; do sleep 0.2; done; }"]}
  changed_when: false
- name: "Late of {{ mopt_stage.id }}"
  ansible.builtin.fail: {msg: "prov.late: `{{ mopt_stage.id }}` failed after its packages"}
  when: "lookup('fileglob', 'WORLD/late-' + mopt_stage.id) | length > 0"
- name: Say that a reboot is due and not allowed
  ansible.builtin.fail: {msg: "A reboot is due: the module is another. `kernel_reboot_allowed` is false. Reboot the host and run the playbook again."}
  when: "not kernel_reboot_allowed | default(true) and lookup('fileglob', 'WORLD/reboot-' + mopt_stage.id) | length > 0"
"""

_ROLLBACK = """
- hosts: all
  gather_facts: false
  tasks:
    - name: Compute the way back
      ansible.builtin.command: {argv: [sh, -c, "echo back >> WORLD/log; test ! -e WORLD/fail-rehearsal"]}
      changed_when: false
      check_mode: false
    - name: One transaction back
      ansible.builtin.command: {argv: [sh, -c, "test ! -e WORLD/fail-rollback && rm -f WORLD/done-*"]}
"""

_REBOOT = """
- hosts: all
  gather_facts: false
  tasks:
    - name: Unit
      ansible.builtin.copy:
        dest: "WORLD/unit-{{ reboot_unit_state }}"
        content: "{{ reboot_argv | join(' ') }}"
        mode: "0600"
    - name: What the journal says at this moment
      ansible.builtin.command: {argv: [cp, "{{ reboot_argv | last }}/journal.jsonl", "WORLD/journal-at-reboot"]}
      when: reboot_unit_state == 'present'
    - name: No restart here
      ansible.builtin.command: {argv: [sh, -c, "test ! -e WORLD/fail-unit"]}
      changed_when: false
"""


class Site:
    """A data folder, a host, and the folder of a run."""

    def __init__(self, place: Path) -> None:
        self.place, self.world, self.data = place, place / "world", place / "data"
        self.state = place / "state"
        self.folder = self.state / "mopt-doctor/journals/r1"
        self.world.mkdir()
        self.folder.mkdir(mode=0o700, parents=True)
        self.folder.parent.chmod(0o700)
        (self.data / "matrices").mkdir(parents=True)
        load_edition(ROOT / "matrices")  # a tree whose YAML was edited compiles it first
        (self.data / "matrices/edition.json").write_bytes((ROOT / "matrices/edition.json").read_bytes())
        self.write("library/mopt_pending.py", _PENDING)
        self.write("library/mopt_transaction.py", _TRANSACTION)
        self.write("site.yml", _SITE)
        self.write("stage.yml", _STAGE)
        self.write("rollback.yml", _ROLLBACK)
        self.write("reboot.yml", _REBOOT)

    def write(self, name: str, text: str) -> Path:
        path = self.data / "playbooks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("WORLD", str(self.world)))
        return path

    def set(self, *names: str) -> None:
        for name in names:
            (self.world / name).touch()

    def unset(self, *names: str) -> None:
        for name in names:
            (self.world / name).unlink()

    @property
    def log(self) -> list[str]:
        path = self.world / "log"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    @property
    def done(self) -> set[str]:
        return {path.name.removeprefix("done-") for path in self.world.glob("done-*")}

    def order(self, act: Act = "apply", **more: object) -> Order:
        order = Order(run=self.folder.name, act=act, plan=small_plan(), **more)  # type: ignore[arg-type]
        write_order(self.folder, order)
        return order

    @property
    def argv(self) -> tuple[str, ...]:
        """`mopt-doctor` whose state and locks lie in this site."""
        return (sys.executable, "-I", str(DRIVER), str(self.state))


def small_plan(*promised: Promise, on_failure: str = "stop") -> Plan:
    """A true plan of which two stages are left."""
    whole = plan()
    stages = tuple(stage for stage in whole.variables.mopt_stages if stage.id in STAGES)
    assert len(stages) == len(STAGES)
    return replace(
        whole,
        promises=promised,
        asked=replace(whole.asked, on_failure=on_failure),
        variables=replace(whole.variables, mopt_stages=stages),
    )
