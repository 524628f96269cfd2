"""The modules of `playbooks/` without Ansible: module_utils load as they do on a host that has none."""

from __future__ import annotations

import sys
from pathlib import Path

UTILS = Path(__file__).resolve().parents[2] / "playbooks" / "plugins" / "module_utils"
sys.path.insert(0, str(UTILS))
