"""The answer of `check` as a local fact of Ansible: write it to `/etc/ansible/facts.d/mopt.fact`."""

from __future__ import annotations

import msgspec

from doctor.core.finding import CheckReport
from doctor.report.machine import printable

__all__ = ["to_ansible_facts"]


def to_ansible_facts(report: CheckReport) -> bytes:
    """Flat words and lists, as `when:` conditions read them: `ansible_local.mopt.verdict == 'ready'`."""
    host = report.host
    wrong = [f for f in report.findings if f.status in ("fail", "warn")]
    facts = {
        "schema": report.schema,
        "verdict": report.verdict,
        "is_ready": report.verdict == "ready",
        "exit_code": report.exit_code,
        "goal": report.goal,
        "scopes": {s.scope: s.verdict for s in report.scopes},
        "causes": [c.id for c in report.causes],
        "advice": [c.id for c in report.advice],
        "failed": sorted({f.id for f in wrong if f.status == "fail"}),
        "warned": sorted({f.id for f in wrong if f.status == "warn"}),
        "needs_reboot": any(c.remedy is not None and c.remedy.cost == "reboot" for c in report.causes),
        "os": host.os.get("id") or "",
        "os_version": host.os.get("version") or "",
        "kernel": host.kernel.get("release") or "",
        "driver_version": host.driver.get("version") or "",
        "driver_flavour": host.driver.get("flavour") or "",
        "cuda_driver_version": host.cuda_driver_version or "",
        "virtualisation": host.virtualisation or "",
        "gpus": [
            {k: gpu.get(k) or "" for k in ("address", "name", "compute_capability")} for gpu in host.gpus
        ],
        "gpu_count": len(host.gpus),
        "matrix_edition": report.matrix_edition,
        "taken_at": report.taken_at,
    }
    return printable(msgspec.json.encode(facts))
