"""What may not stand in `playbooks/`, and what every role has."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from doctor.core.rows.install import PackageSet
from doctor.edition.load import load_matrix
from tests.playbooks.conftest import PLAYBOOKS

YAML = sorted(p for p in PLAYBOOKS.rglob("*.yml") if "plugins" not in p.parts)
TASKS = [p for p in YAML if "tasks" in p.parts or p.parent == PLAYBOOKS]
ROLES = sorted(p for p in (PLAYBOOKS / "roles").iterdir() if p.is_dir())
TEMPLATES = sorted(PLAYBOOKS.rglob("*.j2"))
MODULES = sorted((PLAYBOOKS / "plugins").rglob("*.py"))
WORDS = {
    "name",
    "when",
    "register",
    "loop",
    "loop_control",
    "vars",
    "check_mode",
    "changed_when",
    "failed_when",
    "delegate_to",
    "become",
    "environment",
    "block",
    "rescue",
    "always",
    "hosts",
    "tasks",
    "serial",
    "gather_facts",
    "any_errors_fatal",
    "no_log",
}


def text_of(path: Path) -> str:
    """Without comments: they may say what is not done."""
    return "\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith("#"))


def tasks_of(path: Path) -> list[dict[str, Any]]:
    """Every task, those of blocks and plays too."""
    found: list[dict[str, Any]] = []

    def walk(rows: Any) -> None:
        for row in rows or ():
            inner = [key for key in ("block", "rescue", "always", "tasks") if key in row]
            for key in inner:
                walk(row[key])
            if not inner:
                found.append(row)

    walk(yaml.safe_load(path.read_text()))
    return found


def action_of(task: dict[str, Any]) -> str:
    [action] = [key for key in task if key not in WORDS]
    return action


def ids(paths: list[Path]) -> list[str]:
    return [str(p.relative_to(PLAYBOOKS)) for p in paths]


@pytest.mark.parametrize("path", YAML + TEMPLATES, ids=ids(YAML + TEMPLATES))
def test_no_version_is_compared(path):
    """Versions are the matrix's business: roles loop over what was decided."""
    assert not re.search(
        r"\bis\s+(?:not\s+)?version\b|\|\s*version\b|version_compare|distribution_major_version",
        text_of(path),
    )


def _names() -> set[str]:
    """Plain package names of the matrix, and stems of those with a branch in them."""
    names = set()
    for row in load_matrix().edition.package_sets:
        assert isinstance(row, PackageSet)
        names.update(re.sub(r"-?\{.*", "", name) for name in row.packages)
    # A unit or a module may be called as its package is; `nvidia` and the like are no package's name.
    return {n for n in names if len(n) > 6} - {
        "nvidia-persistenced",
        "nvidia-fabricmanager",
        "nvidia-imex",
        "dkms",
        "kernel-devel",
    }


@pytest.mark.parametrize("path", YAML + TEMPLATES, ids=ids(YAML + TEMPLATES))
def test_no_package_is_named(path):
    names = _names()
    assert {"nvidia-container-toolkit", "libnccl2", "nvidia-driver-cuda"} <= names
    words = set(re.findall(r"[a-z][a-z0-9+-]{3,}", text_of(path)))
    assert not words & names


@pytest.mark.parametrize("path", YAML + TEMPLATES + MODULES, ids=ids(YAML + TEMPLATES + MODULES))
def test_no_security_feature_is_switched_off(path):
    bad = (
        r"setenforce|state:\s*permissive|SELINUX=(?:permissive|disabled)|allow[_-]unauthenticated|AllowUnauthenticated|AllowInsecure"
        r"|trusted=yes|validate_certs:\s*(?:false|no)|sslverify|disable_gpg_check|--nogpgcheck|mokutil[^\n]*--disable|allow_unsigned"
        r"|rm[^\n]{0,20}lock-frontend|--force-all|--nodeps|--no-gpg"
    )
    assert not re.search(bad, text_of(path), re.IGNORECASE)


@pytest.mark.parametrize("path", YAML, ids=ids(YAML))
def test_nobody_is_killed_and_nothing_is_forced(path):
    assert not re.search(r"\bp?kill(?:all)?\b|fuser\s+-k|rmmod\s+-f|state:\s*latest", text_of(path))


@pytest.mark.parametrize("path", TASKS, ids=ids(TASKS))
def test_every_action_is_a_full_name_or_our_own_module(path):
    own = {p.stem for p in (PLAYBOOKS / "plugins/modules").glob("*.py")}
    for task in tasks_of(path):
        action = action_of(task)
        assert action in own or re.fullmatch(r"ansible\.builtin\.[a-z0-9_]+", action), (
            f"{task['name']}: {action}"
        )
        assert action != "ansible.builtin.shell"


@pytest.mark.parametrize("path", TASKS, ids=ids(TASKS))
def test_a_command_is_an_argument_list(path):
    for task in tasks_of(path):
        if action_of(task) == "ansible.builtin.command":
            assert set(task["ansible.builtin.command"]) == {"argv"}, task["name"]
            assert "changed_when" in task, task["name"]


@pytest.mark.parametrize("role", ROLES, ids=[r.name for r in ROLES])
def test_a_role_says_what_it_takes_and_its_defaults_agree(role):
    specs = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]
    defaults = yaml.safe_load((role / "defaults/main.yml").read_text()) or {}
    assert "main" in specs
    for entry, spec in specs.items():
        assert (role / f"tasks/{entry}.yml").is_file()
        for name, option in spec["options"].items():
            assert name.startswith(f"{role.name}_")
            assert option.get("description")
            assert option.get("required") or name in defaults, f"{name} has no default"
            if "default" in option:
                assert option["default"] == defaults[name], name
    told = {name for spec in specs.values() for name in spec["options"]}
    assert set(defaults) <= told, "a default that the specification does not know"


@pytest.mark.parametrize("role", ROLES, ids=[r.name for r in ROLES])
def test_a_role_reads_no_variable_of_the_document(role):
    """Roles get what they need by their own variables, so that they can be used without the document."""
    for path in (role / "tasks").glob("*.yml"):
        assert not re.search(
            r"\bmopt_(?!transaction|capsule|file|keyring|stream|hold|users|kernel|pending|verify|runtime|environment|preflight)\w+",
            text_of(path),
        )


@pytest.mark.parametrize("path", MODULES, ids=ids(MODULES))
def test_a_module_has_the_syntax_of_python_3_6(path):
    tree = ast.parse(path.read_text(), str(path), feature_version=(3, 6))
    for node in ast.walk(tree):
        assert not isinstance(node, ast.NamedExpr)
        if isinstance(node, ast.ImportFrom):
            assert node.module != "__future__" or all(n.name != "annotations" for n in node.names)
        if isinstance(node, ast.Call):
            told = {word.arg for word in node.keywords}
            assert not told & {"capture_output", "shell"}, f"line {node.lineno}: newer than 3.6, or a shell"
            assert not (told & {"text"} and getattr(node.func, "attr", "") in {"run", "Popen"}), (
                f"line {node.lineno}"
            )


@pytest.mark.parametrize("path", MODULES, ids=ids(MODULES))
def test_functions_are_short(path):
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 80, node.name


MODULE_FILES = sorted((PLAYBOOKS / "plugins/modules").glob("*.py"))


@pytest.mark.parametrize("path", MODULE_FILES, ids=ids(MODULE_FILES))
def test_a_module_documents_the_arguments_that_it_takes(path):
    text = path.read_text()
    blocks = {
        name: re.search(rf'^{name} = r"""\n(.*?)"""', text, re.MULTILINE | re.DOTALL)
        for name in ("DOCUMENTATION", "EXAMPLES", "RETURN")
    }
    assert all(blocks.values())
    told = yaml.safe_load(blocks["DOCUMENTATION"].group(1))
    assert told["module"] == path.stem
    taken = set(re.findall(r'^        "(\w+)": \{"type"', text, re.MULTILINE)) | set(
        re.findall(r"^    spec(?: =|\.update).*", text, re.MULTILINE) and _spec_names(text)
    )
    assert set(told.get("options") or {}) == taken
    assert yaml.safe_load(blocks["EXAMPLES"].group(1))
    assert yaml.safe_load(blocks["RETURN"].group(1))


def _spec_names(text: str) -> set[str]:
    """Names in comprehensions and updates of a specification."""
    head = text[text.index("def main()") :].split("AnsibleModule(", maxsplit=1)[0]
    loops = [m for part in re.findall(r"for name in \(([^)]*)\)", head) for m in re.findall(r'"(\w+)"', part)]
    literal = re.findall(r'(?:\{|, )"(\w+)": \{"type"', head)
    return {*loops, *literal, *re.findall(r'(\w+)=\{"type"', head)}


def test_stages_run_in_the_order_of_the_contract():
    """`tasks/stage.yml` does every act that a stage can have, and units start after the reboot."""
    from doctor.core.stages import Stage

    text = (PLAYBOOKS / "tasks/stage.yml").read_text()
    for field in msgspec.structs.fields(Stage):
        if field.name != "why":
            assert f"mopt_stage.{field.name}" in text, field.name
    order = [
        "name: repositories",
        "tasks_from: stop",
        "name: files",
        "name: packages",
        "name: kernel",
        "services_start",
        "name: lock",
        "name: verify",
    ]
    places = [text.rindex(word) for word in order]
    assert all(a < b for a, b in pairwise(places))


@pytest.mark.parametrize("link", ["library", "module_utils"])
def test_plain_ansible_playbook_finds_the_modules(link):
    """Folders beside a playbook are searched without any setting."""
    assert (PLAYBOOKS / link).resolve() == PLAYBOOKS / "plugins" / {"library": "modules"}.get(link, link)


#: In Python a cause is a string of its own; in YAML its colon follows. A variable follows a dot, or has none.
CAUSES_NAMED = {".py": r'"((?:LAYERS)\.[a-z_]+)"', ".yml": r"(?<![\w.])((?:LAYERS)\.[a-z_]+): "}


def causes_named_in(path: Path, layers: str) -> set[str]:
    return set(re.findall(CAUSES_NAMED[path.suffix].replace("LAYERS", layers), text_of(path)))


def test_every_cause_that_a_role_or_a_module_names_has_a_row():
    """`explain` takes up a failure where the playbook left it: a name without a row would lead nowhere."""
    known = {row.id for row in load_matrix().edition.causes}
    layers = "|".join(sorted({cause.partition(".")[0] for cause in known}))
    named = {path: causes_named_in(path, layers) for path in [*MODULES, *TASKS]}
    assert len(set().union(*named.values())) >= 18
    unknown = {str(p.relative_to(PLAYBOOKS)): sorted(c - known) for p, c in named.items() if c - known}
    assert unknown == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.py", 'module.fail_json(msg="…", cause="prov.nowhere")'),
        ("x.yml", "    msg: >-\n      prov.nowhere: text"),
        ("x.yml", '    msg: "prov.nowhere: text"'),
    ],
)
def test_a_cause_is_seen_where_it_stands(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert causes_named_in(tmp_path / name, "prov|kernel") == {"prov.nowhere"}


def test_a_variable_is_no_cause(tmp_path):
    (tmp_path / "x.yml").write_text("when: mopt_stage.kernel.load | length > 0\nmsg: '{{ kernel.load }}: x'")
    (tmp_path / "x.py").write_text('kernel.get("module_version")')
    assert not any(causes_named_in(tmp_path / name, "prov|kernel") for name in ("x.yml", "x.py"))


@pytest.mark.parametrize("path", MODULE_FILES, ids=ids(MODULE_FILES))
def test_what_is_put_into_place_has_the_label_of_its_place(path):
    """`atomic_move` sets it; what comes otherwise is our own state, or relabelled by `restorecon`."""
    text = text_of(path)
    others = re.findall(r"\b(?:shutil\.(?:move|copy|copy2|copytree)|os\.replace)\(", text)
    assert not others or "restorecon" in text
    if path.stem in ("mopt_file", "mopt_runtime", "mopt_capsule"):
        assert "atomic_move(" in text
    if path.stem == "mopt_environment":
        assert "restorecon" in text
