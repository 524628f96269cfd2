"""The recipes of CONTRIBUTING, done: what is new is added by data alone, and the commands know it.

Each YAML block of a recipe is read out of the page and applied to a copy of `matrices/`; nothing else is.
"""

import json
import re
import shutil
import signal
from pathlib import Path

import pytest
import yaml

from doctor import cli
from doctor.edition.source import compile_edition

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "CONTRIBUTING.md"

#: libyaml where PyYAML has it: 5 s for the matrix become 1 s.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
H200 = ROOT / "tests" / "hosts" / "h200-ubuntu-24.04"

pytestmark = pytest.mark.skipif(
    not PAGE.is_file(), reason="the page is that of the tree, not of an installation"
)


def recipes():
    """The YAML blocks of each section of the page: title to file to what the block says."""
    found = {}
    text = PAGE.read_text(encoding="utf-8")
    title = ""
    for match in re.finditer(r"(?m)^### (.+)$|^ *```yaml\n *# matrices/(\S+)\n((?:.*\n)*?) *```$", text):
        if match.group(1):
            title = match.group(1)
        else:
            found.setdefault(title, {})[match.group(2)] = _loaded(_dedented(match.group(3)))
    return found


def _dedented(block):
    margin = min(len(line) - len(line.lstrip()) for line in block.splitlines() if line.strip())
    return "".join(f"{line[margin:]}\n" for line in block.splitlines())


#: What a row of a section is known by.
KEYS = {
    "branches": ("branch",),
    "releases": ("version",),
    "advisories": ("id",),
    "gpus": ("pci_device_id", "name"),
    "products": ("product",),
    "package_versions": ("id",),
}


def applied(document, block):
    """What a file says once a block is in it: new rows behind the others, fields of known rows replaced."""
    for section, wanted in block.items():
        if section == "sources":
            assert not document["sources"].keys() & wanted.keys(), "the example's sources are its own"
            document["sources"] |= wanted
            continue
        for row in wanted:
            known = [one for one in document[section] if _key(section, one) == _key(section, row)]
            assert len(known) < 2
            if known:
                known[0] |= {name: _whole(known[0].get(name), value) for name, value in row.items()}
            else:
                document[section].append(row)
    return document


def _key(section, row):
    return tuple(row.get(field) for field in KEYS[section])


def _whole(before, value):
    """A list in which `...` stands for what was there."""
    if isinstance(value, list) and value[:1] == ["..."]:
        return [*before, *value[1:]]
    return value


def sources_with(*titles):
    """The matrix sources as bytes, with the recipes of these titles, and the edition's new date."""
    files = {path.name: path.read_bytes() for path in (ROOT / "matrices").glob("*.yaml")}
    parts = recipes()
    for title in titles:
        for name, block in parts[title].items():
            files[name] = _dumped(applied(_loaded(files[name]), block))
    head = _loaded(files["edition.yaml"])
    files["edition.yaml"] = _dumped(
        max(head, parts["With every change"]["edition.yaml"], key=lambda one: one["as_of"])
    )
    return files


def _loaded(text):
    return yaml.load(text, Loader=_LOADER)


def _dumped(document):
    return yaml.dump(document, Dumper=_DUMPER, sort_keys=False, allow_unicode=True).encode()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A function: a data folder with these recipes done. Made once for each set."""
    made = {}

    def folder(*titles):
        if titles not in made:
            place = tmp_path_factory.mktemp("data")
            (place / "matrices").mkdir()
            for name, content in sources_with(*titles).items():
                (place / "matrices" / name).write_bytes(content)
            (place / "pyproject.toml").write_text(
                ""
            )  # a tree that people edit: compiled at the first command
            made[titles] = place
        return made[titles]

    return folder


@pytest.fixture
def ask(capfd, monkeypatch, data):
    """A function: the command line over a matrix with recipes done; with `--json` the document."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.delenv("MOPT_OVERLAY", raising=False)

    def one(*argv, recipes=()):
        monkeypatch.setenv("MOPT_DATA", str(data(*recipes)))
        try:
            code = cli.main([str(word) for word in argv])
        except SystemExit as end:
            code = end.code or 0
        out, err = capfd.readouterr()
        assert code != 2, err
        assert code != 70, err
        return code, json.loads(out) if "--json" in argv else out

    yield one
    signal.signal(signal.SIGTERM, before)


DRIVER, VLLM, BULLETIN, GPU = ("A driver release", "A vLLM release", "A security bulletin", "A GPU")
HERE = ("--os", "ubuntu-24.04", "--kernel", "6.8")


def test_the_page_has_the_recipes():
    assert recipes().keys() == {DRIVER, VLLM, BULLETIN, GPU, "With every change"}


@pytest.mark.parametrize(
    "titles", [(DRIVER,), (VLLM,), (DRIVER, BULLETIN), (DRIVER, GPU), (DRIVER, VLLM, BULLETIN, GPU)]
)
def test_every_recipe_is_valid(titles):
    """All that `matrix validate` judges; `compile_edition` is what it runs."""
    compile_edition(sources_with(*titles))


# --- a driver release -----------------------------------------------------------------------------

IN_BRANCH = (
    "matrix",
    "pick",
    "--gpu",
    "H200",
    *HERE,
    "--goal",
    "vllm==0.33.0,driver>=580,driver<581",
    "--json",
)


def test_the_new_driver_is_picked(ask):
    before, after = (ask(*IN_BRANCH, recipes=done)[1] for done in ((), (DRIVER,)))
    assert before["components"]["driver"] != "580.999.01"
    assert (after["compatible"], after["components"]["driver"]) == ("yes", "580.999.01")
    assert ask("matrix", "show", "driver", "580.999.01")[0] == 1
    assert ask("matrix", "show", "driver", "580.999.01", recipes=(DRIVER,))[0] == 0


def test_the_new_driver_is_judged(ask):
    """`why` knew nothing of it before, and does not call it unsupported."""
    question = ("matrix", "why", "driver==580.999.01", "vllm==0.33.0", "--gpu", "H200", *HERE, "--json")
    assert ask(*question)[1]["compatible"] == "unknown"
    assert ask(*question, recipes=(DRIVER,))[1]["compatible"] == "yes"


def test_the_new_driver_is_planned(ask):
    """Its packages, and the fabric manager's, are named at the version that the index has."""
    question = ("plan", "--gpu", "H100x8", *HERE, "--goal", "driver==580.999.01")
    code, text = ask(*question, recipes=(DRIVER,))
    assert code == 0
    for line in (
        "nvidia-driver-pinning-580.999.01 ? -> 580.999.01-1",
        "nvidia-fabricmanager ? -> 580.999.01-1",
    ):
        assert line in text
    assert "nvidia-headless-580-open ? -> 580.999.01-1ubuntu1" in text


# --- a vLLM release -------------------------------------------------------------------------------


def test_the_new_vllm_is_picked_with_what_it_needs(ask):
    question = ("matrix", "pick", "--gpu", "H200", *HERE, "--goal", "vllm>0", "--json")
    assert ask(*question)[1]["components"]["vllm"] != "0.99.0"
    report = ask(*question, recipes=(VLLM,))[1]
    wanted = {"vllm": "0.99.0", "torch": "2.14.1", "flashinfer": "0.7.4", "xgrammar": "0.2.8", "cuda": "13.0"}
    assert {name: report["components"][name] for name in wanted} == wanted
    assert "transformers" in report["also"]


def test_the_new_vllm_is_refused_where_it_cannot_run(ask):
    question = ("matrix", "why", "vllm==0.99.0", "--gpu", "H200", *HERE, "--json")
    assert ask(*question, "--have", "driver==570.133.20")[1]["compatible"] == "unknown"
    report = ask(*question, "--have", "driver==570.133.20", recipes=(VLLM,))[1]
    assert report["compatible"] == "no"
    assert any("CUDA 13.0" in link["text"] for link in report["because"])
    assert any(
        "build-0.99" not in text and "0.99.0" in text for link in report["because"] for text in link["source"]
    )


# --- a security bulletin --------------------------------------------------------------------------

STAYS = ("matrix", "pick", "--gpu", "H200", *HERE, "--have", "driver==580.178.04", "--json")


def test_the_bulletin_turns_a_clean_driver_into_a_warned_one(ask):
    question = (*STAYS, "--hold", "driver", "--goal", "vllm==0.33.0")
    before = ask(*question, recipes=(DRIVER,))[1]
    after = ask(*question, recipes=(DRIVER, BULLETIN))[1]
    assert before["components"]["driver"] == after["components"]["driver"] == "580.178.04"
    assert not [text for text in before["advice"] if "9999" in text]
    assert [text for text in after["advice"] if "580.178.04 has open bulletins" in text and "9999" in text]


def test_the_floor_rises(ask):
    """A policy that puts bulletins first leaves the old driver for the first one that answers them."""
    question = (*STAYS, "--goal", "vllm==0.33.0,driver>=580,driver<581,policy=harden")
    assert ask(*question, recipes=(DRIVER,))[1]["components"]["driver"] == "580.178.04"
    assert ask(*question, recipes=(DRIVER, BULLETIN))[1]["components"]["driver"] == "580.999.01"
    shown = ask("matrix", "show", "driver", "580.178.04", recipes=(DRIVER, BULLETIN))[1]
    assert "older than its security floor 580.999.01" in shown


# --- a GPU ----------------------------------------------------------------------------------------


@pytest.fixture
def host(tmp_path):
    """The recorded H200 node, with the id of the new card: what the machine says of itself stays."""
    place = tmp_path / "host"
    shutil.copytree(H200, place)
    for path in place.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            path.write_bytes(data.replace(b"0x2335", b"0x2fff").replace(b"233510DE", b"2FFF10DE"))
    return place


def test_the_new_gpu_is_shown_with_its_capability(ask):
    assert ask("matrix", "show", "gpu", "10de:2fff", "--json")[0] == 1
    code, report = ask("matrix", "show", "gpu", "10de:2fff", "--json", recipes=(DRIVER, GPU))
    row = next(row for row in report["rows"] if row["table"] == "gpus")
    assert (code, row["architecture"], row["compute_capability"]) == (0, "blackwell", "10.0")


def test_the_new_gpu_is_picked_for(ask):
    """By id and by the name it is sold under; its drivers begin with the one that lists it."""
    for name in ("10de:2fff", "B250"):
        question = ("matrix", "pick", "--gpu", name, *HERE, "--goal", "vllm==0.33.0", "--json")
        report = ask(*question, recipes=(DRIVER, GPU))[1]
        assert (report["compatible"], report["components"]["vllm"]) == ("yes", "0.33.0"), name
        assert report["target"]["gpus"][0]["compute_capability"] == "10.0"
    code, report = ask(*("matrix", "pick", "--gpu", "10de:2fff", *HERE, "--goal", "vllm==0.33.0", "--json"))
    assert (code, report["compatible"]) == (3, "unknown")


def test_check_knows_the_new_gpu(ask, host):
    """The findings that an unknown id leaves open are decided once it has a row."""
    asked = ("gpu.in_matrix", "driver.branch")

    def statuses(*done):
        report = ask("check", "--from", host, "--json", recipes=done)[1]
        return {one["id"]: one["status"] for one in report["findings"] if one["id"] in asked}

    before, after = statuses(), statuses(DRIVER, GPU)
    assert "pass" not in before.values()
    assert before["driver.branch"] == "unknown"
    assert after == dict.fromkeys(asked, "pass")
