"""Just enough of Ansible to call a module's `main` here; the lab runs them under the real one."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any, ClassVar

PLUGINS = Path(__file__).resolve().parents[2] / "playbooks" / "plugins"


class Ended(BaseException):
    """What `exit_json` and `fail_json` do: nothing behind them runs."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(answer)
        self.answer = answer


class AnsibleModule:
    parameters: ClassVar[dict[str, Any]] = {}
    dry = False

    def __init__(
        self, argument_spec: dict[str, Any], *, supports_check_mode: bool = False, required_one_of: Any = None
    ) -> None:
        unknown = set(self.parameters) - set(argument_spec)
        assert not unknown, f"no such parameters: {unknown}"
        missing = [n for n, s in argument_spec.items() if s.get("required") and n not in self.parameters]
        assert not missing, f"missing parameters: {missing}"
        self.params = {n: self.parameters.get(n, s.get("default")) for n, s in argument_spec.items()}
        self.check_mode = self.dry
        assert supports_check_mode
        assert not required_one_of or any(self.params[n] for n in required_one_of[0])
        self.tmpdir = tempfile.mkdtemp()

    def exit_json(self, **answer: Any) -> None:
        json.dumps(answer)
        raise Ended({"failed": False} | answer)

    def fail_json(self, **answer: Any) -> None:
        json.dumps(answer)
        raise Ended({"failed": True, "changed": False} | answer)

    def atomic_move(self, source: str, target: str) -> None:
        shutil.move(source, target)

    def set_mode_if_different(self, path: str, mode: int, changed: bool) -> bool:
        if stat.S_IMODE(Path(path).stat().st_mode) == mode:
            return changed
        if not self.check_mode:
            Path(path).chmod(mode)
        return True

    def run_command(
        self, argv: list[str], *, check_rc: bool = False, environ_update: Any = None
    ) -> tuple[int, str, str]:
        environment = {**os.environ, **(environ_update or {})}
        done = subprocess.run(argv, check=check_rc, capture_output=True, text=True, env=environment)
        return done.returncode, done.stdout, done.stderr


def stand_in() -> None:
    """Puts the package where imports find it; module_utils are the playbooks' own."""
    utils = types.ModuleType("ansible.module_utils")
    utils.__path__ = [str(PLUGINS / "module_utils")]
    basic = types.ModuleType("ansible.module_utils.basic")
    basic.AnsibleModule = AnsibleModule  # type: ignore[attr-defined]
    urls = types.ModuleType("ansible.module_utils.urls")
    urls.fetch_url = None  # type: ignore[attr-defined]
    converters = types.ModuleType("ansible.module_utils.common.text.converters")
    converters.to_bytes = lambda text, errors="strict": text.encode("utf-8", errors)  # type: ignore[attr-defined]
    converters.to_text = lambda data, errors="strict": data.decode("utf-8", errors)  # type: ignore[attr-defined]
    sys.modules.update(
        {
            "ansible": types.ModuleType("ansible"),
            "ansible.module_utils": utils,
            "ansible.module_utils.basic": basic,
            "ansible.module_utils.urls": urls,
            "ansible.module_utils.common": types.ModuleType("ansible.module_utils.common"),
            "ansible.module_utils.common.text": types.ModuleType("ansible.module_utils.common.text"),
            "ansible.module_utils.common.text.converters": converters,
        }
    )
    if str(PLUGINS / "modules") not in sys.path:
        sys.path.insert(0, str(PLUGINS / "modules"))


def module(name: str) -> Any:
    """A module of `playbooks/plugins/modules`, imported."""
    if "ansible.module_utils.basic" not in sys.modules:
        stand_in()
    return importlib.import_module(name)


def call(name: str, /, *, check: bool = False, **parameters: Any) -> dict[str, Any]:
    """What a module answers to these parameters."""
    imported = module(name)
    AnsibleModule.parameters, AnsibleModule.dry = parameters, check
    try:
        imported.main()
    except Ended as end:
        return end.answer
    raise AssertionError(f"{name} ended without an answer")
