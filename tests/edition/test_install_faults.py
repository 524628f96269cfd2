# ruff: noqa: E501 - a problem is one line, however long
"""Ways to spoil packages.yaml, and what is said about each."""

import pytest

from doctor.edition.source import compile_edition
from doctor.errors import MatrixError

PACKAGES = """\
defaults: {as_of: "2026-11-30", review_by: "2027-05-31", confidence: vendor}
repositories:
- id: cuda-deb
  name: cuda
  parts: [driver]
  origins: [nvidia]
  systems: [ubuntu-24.04]
  kind: deb
  uri: "https://example.org/{dir}/{arch}/"
  arch_words: {x86_64: x86_64, aarch64: sbsa}
  dirs: {ubuntu-24.04: ubuntu2404}
  key: "https://example.org/key"
  keyring: /usr/share/keyrings/x.asc
  fingerprint: 0123456789ABCDEF
  label: CUDA
  priority: 600
  source: ["a page"]
package_sets:
- id: driver-old
  part: driver
  origins: [nvidia]
  systems: [ubuntu-24.04]
  flavour: open
  versions: "<590"
  packages: ["nvidia-open-{branch}"]
  released_with: driver
  source: ["a page"]
- id: driver-new
  part: driver
  origins: [nvidia]
  systems: [ubuntu-24.04]
  versions: ">=590"
  packages: [nvidia-open]
  released_with: driver
  source: ["a page"]
package_families:
- id: driver-deb
  part: driver
  kind: deb
  names: ["nvidia-*"]
  source: ["a page"]
package_versions:
- id: driver
  part: driver
  origins: [nvidia]
  systems: [ubuntu-24.04]
  versions: {"580.126.20": "580.126.20-1ubuntu1"}
  source: ["a page"]
foreign_packages:
- id: other
  kind: rpm
  names: ["akmod-*"]
  cause: plan.foreign_driver
  says: it is another's
  way_out: take it away
  source: ["a page"]
"""

SYSTEMS = """\
defaults: {as_of: "2026-11-30", review_by: "2027-05-31", confidence: vendor}
systems:
- system: ubuntu-24.04
  kernel: "6.8"
  glibc: "2.39"
  gcc: "13.2"
  python: "3.12"
  is_in_driver_guide: true
  support_ends: "2029-05-31"
  source: ["a page"]
rules:
- id: a-rule
  fact: It holds.
  source: ["a page"]
"""

# what stands there, what stands there instead, the end of each problem
FAULTS = {
    "none": ("nvidia-*", "nvidia-*", []),
    "word of nothing": ("nvidia-open-{branch}", "nvidia-open-{brach}", ["package_sets[driver-old].packages: `{brach}` stands for nothing here (did you mean `branch`?)"]),
    "system of nowhere": ("  systems: [ubuntu-24.04]\n  flavour", "  systems: [ubuntu-24.04, ubuntu-24.10]\n  flavour", ["`ubuntu-24.10` has no row in `systems` (did you mean `ubuntu-24.04`?)", "no version of `driver` for ubuntu-24.10, origin nvidia"]),
    "sets for one case": ('">=590"', '">=580"', ["package_sets[driver-new].versions: `driver-new` and `driver-old` are both for 580"]),
    "set of no version set": ('"<590"', '"before 590"', ["`before 590` is not a version set such as `>=3.11` or `==12.9.*`"]),
    "no family": ("- id: driver-deb\n  part: driver\n  kind: deb", "- id: driver-deb\n  part: driver\n  kind: rpm", ["`driver` has no row in `package_families` for deb", "`driver` has no row in `package_families` for deb"]),
    "no versions": ("- id: driver\n  part: driver", "- id: driver\n  part: fabric", ["no version of `driver` for ubuntu-24.04, origin nvidia", "no version of `driver` for ubuntu-24.04, origin nvidia"]),
    "version of another": ('"580.126.20": "580', '"580.126.09": "580', ["`580.126.20-1ubuntu1` is no package of `580.126.09`"]),
    "version of no form": ("580.126.20-1ubuntu1", "580.126.20 1", ["`580.126.20 1` is not a Debian version: letters, digits and `.+~:-` only"]),
    "dist of nothing": ("580.126.20-1ubuntu1", "580.126.20-1{dist}", ["package_versions[driver].dists: `ubuntu-24.04` has no `{dist}`"]),
    "plain http": ('uri: "https:', 'uri: "http:', ["`http://example.org/{dir}/{arch}/` is not fetched over https"]),
    "no directory": ("dirs: {ubuntu-24.04: ubuntu2404}", "dirs: {ubuntu-22.04: ubuntu2204}", ["repositories[cuda-deb].dirs: `ubuntu-24.04` has no directory"]),
    "processor without a word": ("{x86_64: x86_64, aarch64: sbsa}", "{x86_64: x86_64}", ["`aarch64` has no word"]),
    "keyring beside": ("keyring: /usr", "keyring: usr", ["`usr/share/keyrings/x.asc` is no whole path"]),
    "fingerprint of no form": ("0123456789ABCDEF", "0123456789abcdef", ["`0123456789abcdef` is no fingerprint in capital hex digits"]),
    "priority of no label": ("  label: CUDA\n", "", ["a priority and the label that gets it stand together"]),
    "row twice": ("- id: driver-new", "- id: driver-old", ["`driver-old` has a row already, at packages.yaml:19"]),
    "empty set": ("  packages: [nvidia-open]\n", "", ["a set has packages, or a pin"]),
    "unknown part": ("  part: driver\n  origins: [nvidia]\n  systems: [ubuntu-24.04]\n  flavour", "  part: drivers\n  origins: [nvidia]\n  systems: [ubuntu-24.04]\n  flavour", ["`drivers` is none of `tools`"]),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_fault(sources, name):
    old, new, wanted = FAULTS[name]
    assert PACKAGES.count(old) == 1, "the place to spoil stands there once"
    files = {
        **sources(),
        "packages.yaml": PACKAGES.replace(old, new).encode(),
        "systems.yaml": SYSTEMS.encode(),
    }
    if not wanted:
        assert len(compile_edition(files).package_sets) == 2
        return
    with pytest.raises(MatrixError) as caught:
        compile_edition(files)
    problems = caught.value.problems
    assert len(problems) == len(wanted), problems
    for end in wanted:
        assert any(end in problem for problem in problems), problems
