# ruff: noqa: E501 - a problem is one line, however long
"""Every way to spoil the matrix source, and what is said about it: file, line, field, advice."""

import pytest

from doctor.edition.source import compile_edition
from doctor.errors import MatrixError
from doctor.timeouts import MATRIX_DEPTH_MAX, MATRIX_FILE_BYTES_MAX, MATRIX_NODES_MAX

# name, file, place, what stands there instead, problems
FAULTS = [
    (
        "unknown field",
        "gpus",
        "  fp8: true\n",
        "  fp88: true\n",
        ["gpus.yaml:13: architectures[hopper].fp88: unknown field (did you mean `fp8`?)"],
    ),
    (
        "unknown nested field",
        "cuda",
        '{version: "13.0.2"}',
        '{versoin: "13.0.2"}',
        [
            "cuda.yaml:8: toolkits[13.0].updates[1]: `version` is missing",
            "cuda.yaml:8: toolkits[13.0].updates[1].versoin: unknown field (did you mean `version`?)",
        ],
    ),
    (
        "unknown section",
        "drivers",
        "rules:\n",
        "rulez:\n",
        [
            "drivers.yaml:1: `rules` is missing",
            "drivers.yaml:17: rulez: unknown section (did you mean `rules`?)",
        ],
    ),
    (
        "duplicate key",
        "gpus",
        "  ecc: true\n",
        "  ecc: true\n  ecc: false\n",
        ["gpus.yaml:30: products[H200 SXM]: `ecc` stands here twice"],
    ),
    (
        "duplicate section",
        "cuda",
        "rules:\n",
        "toolkits:\n",
        ["cuda.yaml:1: `rules` is missing", "cuda.yaml:12: `toolkits` stands here twice"],
    ),
    (
        "float as version",
        "cuda",
        'cuda: "13.0"',
        "cuda: 13.0",
        ["cuda.yaml:3: toolkits[13.0].cuda: `13.0` reads as a number here: put it in quotes"],
    ),
    (
        "int as version",
        "cuda",
        'driver_floor: "580.65.06"',
        "driver_floor: 580",
        ["cuda.yaml:5: toolkits[13.0].driver_floor: `580` reads as a number here: put it in quotes"],
    ),
    (
        "float as capability",
        "gpus",
        'compute_capability: "9.0"',
        "compute_capability: 9.0",
        [
            "gpus.yaml:27: products[H200 SXM].compute_capability: `9.0` reads as a number here: put it in quotes"
        ],
    ),
    (
        "octal-looking id",
        "pci_ids",
        '"10de:2335"',
        '"10DE:2335"',
        [
            "pci_ids.yaml:17: gpus[10DE:2335].pci_device_id: `10DE:2335` is not a PCI id such as `10de:2335`, in lower case"
        ],
    ),
    (
        "bad version text",
        "drivers",
        'security_floor: "580.178.04"',
        'security_floor: "580.178.04 (May)"',
        [
            "drivers.yaml:10: branches[R580].security_floor: `580.178.04 (May)` is not a version such as `580.126.09`"
        ],
    ),
    (
        "text as number",
        "gpus",
        "memory_gb: 141",
        "memory_gb: 141 GB",
        ["gpus.yaml:28: products[H200 SXM].memory_gb: a number is wanted, not `141 GB`"],
    ),
    (
        "negative number",
        "gpus",
        "memory_gb: 141",
        "memory_gb: -141",
        ["gpus.yaml:28: products[H200 SXM].memory_gb: a number is wanted, not `-141`"],
    ),
    (
        "YAML 1.1 yes",
        "gpus",
        "ecc: true",
        "ecc: yes",
        ["gpus.yaml:29: products[H200 SXM].ecc: true or false is wanted, not `yes`"],
    ),
    (
        "text as list",
        "gpus",
        "unverified: [ecc]",
        "unverified: ecc",
        ["gpus.yaml:32: products[H200 SXM].unverified: a list is wanted, not text"],
    ),
    (
        "list as text",
        "drivers",
        "kind: LTSB",
        "kind: [LTSB]",
        ["drivers.yaml:5: branches[R580].kind: text is wanted, not a list"],
    ),
    (
        "null",
        "drivers",
        "kind: LTSB",
        "kind:",
        ["drivers.yaml:5: branches[R580].kind: nothing is written here: leave the field out"],
    ),
    (
        "empty text",
        "drivers",
        "kind: LTSB",
        'kind: "  "',
        ["drivers.yaml:5: branches[R580].kind: empty text says nothing: leave the field out"],
    ),
    (
        "closed set",
        "drivers",
        "status: supported",
        "status: suported",
        [
            "drivers.yaml:6: branches[R580].status: `suported` is none of `supported`, `ended`, `superseded` (did you mean `supported`?)"
        ],
    ),
    (
        "bad date",
        "drivers",
        'review_by: "2027-02-28"',
        'review_by: "28.02.2027"',
        ["drivers.yaml:1: defaults.review_by: `28.02.2027` is not a date such as `2026-11-30`"],
    ),
    (
        "no such day",
        "drivers",
        'review_by: "2027-02-28"',
        'review_by: "2027-02-30"',
        [
            "drivers.yaml:3: branches[R580].review_by: `2027-02-30` is not a day of the calendar",
            "drivers.yaml:18: rules[backward-compat].review_by: `2027-02-30` is not a day of the calendar",
        ],
    ),
    (
        "bad month",
        "drivers",
        'ends: "2028-06"',
        'ends: "2028-13"',
        ["drivers.yaml:7: branches[R580].ends: `2028-13` is not a month such as `2028-06`"],
    ),
    (
        "review before reading",
        "cuda",
        'review_by: "2027-11-30"',
        'review_by: "2026-11-30"',
        [
            "cuda.yaml:3: toolkits[13.0].review_by: `2026-11-30` is not later than `as_of`",
            "cuda.yaml:13: rules[floor-not-exact].review_by: `2026-11-30` is not later than `as_of`",
        ],
    ),
    (
        "read after the edition",
        "cuda",
        'as_of: "2026-11-30"',
        'as_of: "2026-12-01"',
        [
            "cuda.yaml:3: toolkits[13.0].as_of: `2026-12-01` is later than the edition's `2026-11-30`",
            "cuda.yaml:13: rules[floor-not-exact].as_of: `2026-12-01` is later than the edition's `2026-11-30`",
        ],
    ),
    (
        "missing source",
        "pci_ids",
        '  min_driver: "550.40.65"\n  source: [ids]\n',
        '  min_driver: "550.40.65"\n',
        ["pci_ids.yaml:17: gpus[10de:2335]: `source` is missing"],
    ),
    (
        "empty source",
        "pci_ids",
        'source: ["a text of its own, no key"]',
        "source: []",
        ["pci_ids.yaml:38: gpus[10de:1db6].source: an empty list says nothing: leave the field out"],
    ),
    (
        "unknown source key",
        "gpus",
        "source: [page, board]",
        "source: [page, bord]",
        ["gpus.yaml:33: products[H200 SXM].source: `bord` is no key of `sources` (did you mean `board`?)"],
    ),
    (
        "unused source",
        "gpus",
        '  board: "a board table"\n',
        '  board: "a board table"\n  spare: "nobody"\n',
        ["gpus.yaml:4: sources.spare: no row of this file uses it"],
    ),
    (
        "missing field",
        "drivers",
        "  major: 580\n",
        "",
        ["drivers.yaml:3: branches[R580]: `major` is missing"],
    ),
    (
        "unknown architecture",
        "pci_ids",
        "  architecture: volta\n",
        "  architecture: vlta\n",
        [
            "pci_ids.yaml:13: chips[GV100].architecture: the architecture `vlta` is not in `architectures` (did you mean `volta`?)"
        ],
    ),
    (
        "unknown architecture in last_for",
        "drivers",
        "last_for: [volta]",
        "last_for: [voltaire]",
        [
            "drivers.yaml:9: branches[R580].last_for: the architecture `voltaire` is not in `architectures` (did you mean `volta`?)"
        ],
    ),
    (
        "unknown chip",
        "pci_ids",
        '  chip: GV100\n  source: ["a',
        '  chip: GV1000\n  source: ["a',
        [
            "pci_ids.yaml:37: gpus[10de:1db6].chip: the chip `GV1000` is not in `chips` (did you mean `GV100`?)"
        ],
    ),
    (
        "capability of another architecture",
        "pci_ids",
        '  compute_capability: "7.0"\n',
        '  compute_capability: "7.5"\n',
        ["pci_ids.yaml:14: chips[GV100].compute_capability: `7.5` is no capability of `volta`"],
    ),
    (
        "PCI id twice",
        "pci_ids",
        '"10de:1db6"',
        '"10de:2335"',
        [
            "pci_ids.yaml:35: gpus[10de:2335].pci_device_id: `10de:2335` has a row already, at pci_ids.yaml:17",
            "pci_ids.yaml:37: gpus[10de:2335].chip: another row gives this id the chip `GH100`",
        ],
    ),
    (
        "board twice",
        "pci_ids",
        '["10de:1809"]',
        '["10de:16eb"]',
        [
            "pci_ids.yaml:32: gpus[10de:2342].subsystem_ids: `10de:2342 10de:16eb` has a row already, at pci_ids.yaml:22"
        ],
    ),
    (
        "product id without a row",
        "gpus",
        '["10de:2335"]',
        '["10de:2336"]',
        ["gpus.yaml:25: products[H200 SXM].pci_device_ids: `10de:2336` has no row in pci_ids.yaml"],
    ),
    (
        "release outside its branch",
        "drivers",
        '"580.65.06", ',
        '"570.65.06", ',
        ["drivers.yaml:14: branches[R580].releases: `570.65.06` is not a release of `R580`"],
    ),
    (
        "releases out of order",
        "drivers",
        '"580.65.06", "580.126.09"',
        '"580.126.09", "580.65.06"',
        [
            "drivers.yaml:14: branches[R580].releases: `580.65.06` follows `580.126.09`: releases stand in ascending order, each once"
        ],
    ),
    (
        "latest is not latest",
        "drivers",
        'latest_known: "580.178.04"',
        'latest_known: "580.126.09"',
        ["drivers.yaml:11: branches[R580].latest_known: `580.126.09` is not the latest of `releases`"],
    ),
    (
        "branch and number differ",
        "drivers",
        "major: 580",
        "major: 581",
        ["drivers.yaml:4: branches[R580].major: `581` is not the number of `R580`"],
    ),
    (
        "no kind of module",
        "drivers",
        "  open_module: true\n  proprietary_module: true",
        "  open_module: false\n  proprietary_module: false",
        [
            "drivers.yaml:13: branches[R580].proprietary_module: a branch has one kind of kernel module at least"
        ],
    ),
    (
        "update of another toolkit",
        "cuda",
        'version: "13.0.1"',
        'version: "13.1.1"',
        ["cuda.yaml:6: toolkits[13.0].updates: `13.1.1` is not an update of `13.0`"],
    ),
    (
        "rule id twice",
        "cuda",
        "id: floor-not-exact",
        "id: backward-compat",
        ["drivers.yaml:18: rules[backward-compat].id: `backward-compat` has a row already, at cuda.yaml:13"],
    ),
    (
        "unverified is no field",
        "gpus",
        "unverified: [ecc]",
        "unverified: [ecd]",
        ["gpus.yaml:32: products[H200 SXM].unverified: `ecd` is no field of this row (did you mean `ecc`?)"],
    ),
    (
        "cause refines nothing",
        "causes",
        "refines: driver.not_loaded",
        "refines: driver.not_load",
        [
            "causes.yaml:16: causes[driver.not_loaded.blocked].refines: there is no cause `driver.not_load` (did you mean `driver.not_loaded`?)"
        ],
    ),
    (
        "anchor",
        "gpus",
        'sm: ["90"]',
        'sm: &a ["90"]',
        ["gpus.yaml:10: anchors and aliases are not used here (`a`)"],
    ),
    ("alias", "gpus", 'sm: ["90"]', "sm: *a", ["gpus.yaml:10: anchors and aliases are not used here (`a`)"]),
    (
        "tag",
        "gpus",
        "id: trust-nvml",
        "id: !!python/name:os.system trust-nvml",
        ["gpus.yaml:35: tags are not used here (`tag:yaml.org,2002:python/name:os.system`)"],
    ),
    (
        "not YAML",
        "gpus",
        'sm: ["90"]',
        'sm: ["90"',
        ["gpus.yaml:11: not YAML: while parsing a flow sequence, did not find expected ',' or ']'"],
    ),
    (
        "tab",
        "gpus",
        '  sm: ["90"]',
        '\tsm: ["90"]',
        [
            "gpus.yaml:10: not YAML: while scanning for the next token, found character that cannot start any token"
        ],
    ),
    (
        "two documents",
        "edition",
        "as_of:",
        "---\nas_of:",
        ["edition.yaml:2: not YAML: expected a single document in the stream, but found another document"],
    ),
    (
        "a row that is text",
        "gpus",
        "- id: trust-nvml\n  fact: What NVML says outranks this table.\n  confidence: vendor\n  source: [page]",
        "- trust-nvml",
        ["gpus.yaml:35: rules[0]: a mapping is wanted, not text"],
    ),
    (
        "empty section",
        "gpus",
        "- id: trust-nvml\n  fact: What NVML says outranks this table.\n  confidence: vendor\n  source: [page]",
        "  []",
        ["gpus.yaml:35: rules: a list of rows is wanted, not an empty list"],
    ),
    (
        "default of a source",
        "cuda",
        "confidence: vendor}",
        "confidence: vendor, source: [x]}",
        ["cuda.yaml:1: defaults.source: unknown field"],
    ),
    (
        "row against its chip",
        "pci_ids",
        "  name: NVIDIA H200\n",
        "  name: NVIDIA H200\n  architecture: volta\n",
        [
            "gpus.yaml:26: products[H200 SXM].architecture: `10de:2335` is `volta` in pci_ids.yaml",
            "pci_ids.yaml:19: gpus[10de:2335].architecture: the chip `GH100` says `hopper`: leave the field out",
        ],
    ),
    (
        "boards listed and counted",
        "pci_ids",
        '  subsystem_ids: ["10de:16eb"]\n',
        '  subsystem_ids: ["10de:16eb"]\n  unlisted_subsystems: 3\n',
        [
            "pci_ids.yaml:26: gpus[10de:2342].unlisted_subsystems: the boards are listed: the count is of those that are not"
        ],
    ),
    (
        "product of another architecture",
        "gpus",
        '  architecture: hopper\n  compute_capability: "9.0"\n',
        '  architecture: volta\n  compute_capability: "7.0"\n',
        ["gpus.yaml:26: products[H200 SXM].architecture: `10de:2335` is `hopper` in pci_ids.yaml"],
    ),
    (
        "cuda row of an update",
        "cuda",
        'cuda: "13.0"',
        'cuda: "13.0.1"',
        [
            "cuda.yaml:3: toolkits[13.0.1].cuda: `13.0.1` is not a minor release such as `13.0`",
            "cuda.yaml:6: toolkits[13.0.1].updates: `13.0.1` is not an update of `13.0.1`",
            "cuda.yaml:6: toolkits[13.0.1].updates: `13.0.2` is not an update of `13.0.1`",
        ],
    ),
    (
        "cause id without a layer",
        "causes",
        "id: driver.not_loaded\n",
        "id: Not_Loaded\n",
        [
            "causes.yaml:3: causes[Not_Loaded].id: `Not_Loaded` is not an id such as `driver.userspace_kernel_mismatch`",
            "causes.yaml:16: causes[driver.not_loaded.blocked].refines: there is no cause `driver.not_loaded` (did you mean `driver.not_loaded.blocked`?)",
        ],
    ),
    (
        "source key with capitals",
        "gpus",
        '  board: "a board',
        '  Board: "a board',
        [
            "gpus.yaml:3: sources.Board: a key has lower-case letters, digits, `.`, `_` and `-`",
            "gpus.yaml:33: products[H200 SXM].source: `board` is no key of `sources`",
        ],
    ),
    (
        "source without text",
        "gpus",
        '  board: "a board table"',
        '  board: ""',
        [
            "gpus.yaml:3: sources.board: the text of a source is wanted",
            "gpus.yaml:33: products[H200 SXM].source: `board` is no key of `sources`",
        ],
    ),
]


def problems(sources):
    with pytest.raises(MatrixError) as caught:
        compile_edition(sources)
    return list(caught.value.problems)


@pytest.mark.parametrize(
    ("file", "old", "new", "wanted"), [pytest.param(*row[1:], id=row[0]) for row in FAULTS]
)
def test_fault(spoiled, file, old, new, wanted):
    assert problems(spoiled(file, old, new)) == wanted


def test_the_small_matrix_has_no_fault(sources):
    assert compile_edition(sources()).name == "2026.11"


def test_all_faults_of_all_files_are_told_at_once(spoiled):
    changed = spoiled("drivers", "status: supported", "status: alive")
    changed["cuda.yaml"] = changed["cuda.yaml"].replace(b'cuda: "13.0"', b"cuda: 13.0")
    changed["gpus.yaml"] = changed["gpus.yaml"].replace(b"ecc: true", b"ecc: perhaps")
    assert [line.partition(": ")[0] for line in problems(changed)] == [
        "cuda.yaml:3",
        "drivers.yaml:6",
        "gpus.yaml:29",
    ]
    with pytest.raises(MatrixError, match="has 3 faults"):
        compile_edition(changed)


@pytest.mark.parametrize("name", ["edition", "gpus", "pci_ids", "drivers", "cuda"])
def test_a_file_that_is_missing(sources, name):
    assert problems(sources(**{name: None})) == [f"{name}.yaml:1: the file is missing"]


def test_causes_may_be_missing(sources):
    assert compile_edition(sources(causes=None)).causes == ()


def test_a_file_of_no_known_name(sources):
    assert problems(sources(driver="x: 1")) == [
        "driver.yaml:1: no such part of a matrix (did you mean `drivers.yaml`?)"
    ]


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"", "gpus.yaml:1: the file is empty"),
        (b"# only a comment\n", "gpus.yaml:1: the file is empty"),
        (b"x: 1\ny: \xff\n", "gpus.yaml:2: not UTF-8"),
        (b"- a list\n", "gpus.yaml:1: a mapping is wanted, not a list"),
        (b"#" * (MATRIX_FILE_BYTES_MAX + 1), "bytes; a matrix file has"),
        (b"[" * (MATRIX_DEPTH_MAX + 1), f"gpus.yaml:1: more than {MATRIX_DEPTH_MAX} levels"),
        (b"a: [" + b"1," * MATRIX_NODES_MAX + b"]", f"or {MATRIX_NODES_MAX} values"),
    ],
    ids=["empty", "comment", "bytes", "list", "large", "deep", "flood"],
)
def test_a_file_that_is_no_table(sources, data, wanted):
    changed = sources()
    changed["gpus.yaml"] = data
    assert wanted in problems(changed)[0]


def test_a_laugh_of_a_billion_is_refused_before_it_unfolds(sources):
    lines = ['a0: &a0 ["ha", "ha"]']
    lines += [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 64)]
    found = problems(sources(gpus="\n".join(lines)))
    assert len(found) > 64
    assert all("anchors and aliases are not used here" in line for line in found)
