"""TOML of container engines: what is read, and what no engine would start with."""

from __future__ import annotations

import time

import pytest

from doctor.facts.toml import read_toml

CONTAINERD_2 = r"""
version = 2
imports = ["/etc/containerd/conf.d/*.toml"]
disabled_plugins = [ # "not]this"
  "aufs", # or "this"
  'zfs',
]
oom_score = -999
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    enable_cdi = true
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
      BinaryName = "/usr/bin/nvidia-container-runtime" # installed by the toolkit
      SystemdCgroup = false
      Odd = "tab\there \"quoted\""
      Ratio = 0.5
      Inline = { a = "b" }
      Text = '''
[not.a.table]
x = 1
'''
      After = 7
"""
CRI = ("plugins", "io.containerd.grpc.v1.cri")
OPTIONS = (*CRI, "containerd", "runtimes", "nvidia", "options")


def test_what_containerd_writes():
    toml = read_toml(CONTAINERD_2)
    assert toml.fault == ""
    assert toml.get("version") == 2
    assert toml.get("oom_score") == -999
    assert toml.texts("imports") == ("/etc/containerd/conf.d/*.toml",)
    assert toml.texts("disabled_plugins") == ("aufs", "zfs")
    assert toml.flag(*CRI, "enable_cdi") is True
    assert toml.text(*OPTIONS, "BinaryName") == "/usr/bin/nvidia-container-runtime"
    assert toml.flag(*OPTIONS, "SystemdCgroup") is False
    assert toml.text(*OPTIONS, "Odd") == 'tab\there "quoted"'
    assert [toml.get(*OPTIONS, key) for key in ("Ratio", "Inline", "Text", "After")] == [None, None, None, 7]
    assert toml.names_below(*CRI, "containerd", "runtimes") == ("nvidia",)
    assert dict(toml.below(*CRI, "containerd", "runtimes", "nvidia"))["options", "After"] == 7


def test_a_value_has_its_own_type():
    toml = read_toml('a = "true"\nb = true\nc = ["x", ["y"]]\n')
    assert (toml.flag("a"), toml.text("b"), toml.texts("a")) == (None, None, None)
    assert toml.texts("c") == ("x", "y")


def test_arrays_of_tables_may_repeat():
    toml = read_toml("[[a]]\nx = 1\n[a.b]\ny = 2\n[[a]]\nx = 3\n[a.b]\ny = 4\n")
    assert toml.fault == ""
    assert (toml.get("a", "x"), toml.get("a", "b", "y")) == (3, 4)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("mode = auto", "line 1: `auto` is no value: a text needs quotes"),
        ("[a]\nb = 1\n\n[a]\n", "line 4: table `a` stands twice"),
        ("a = 1\na = 2", "line 2: key `a` stands twice"),
        ('a = "x', "line 1: a text does not end"),
        ('a = "x" y', "line 1: `y` stands behind a value"),
        ("b = 1\na = [1,\n2", "line 2: an array does not end"),
        ("[a", "line 1: `]` is missing behind the key `a`"),
        ("[a] b", "line 1: `b` stands behind a table's name"),
        ("a 1", "line 1: `=` is missing behind the key `a`"),
        ("a =", "line 1: a value is missing"),
        ("{{ template }}", "line 1: no key where one must be: `{{ template }}`"),
        ('a = """\nx', "line 1: a text in three quotes does not end"),
    ],
)
def test_faults_name_line_and_reason(text, fault):
    assert read_toml(text).fault == fault


def test_what_stands_before_a_fault_is_read():
    toml = read_toml('[nvidia-container-runtime]\nmode = "cdi"\nbroken = x\nlost = "y"\n')
    assert toml.text("nvidia-container-runtime", "mode") == "cdi"
    assert toml.text("nvidia-container-runtime", "lost") is None


def test_hostile_texts_are_read_in_time():
    hostile = (
        '"' * 200_000,
        "a=" + '["' * 50_000,
        "[" * 100_000,
        "a." * 100_000,
        "a = [\n" * 20_000,
        ("a = [\n" + '"a",\n' * 1900 + "]\n") * 10,
        'a="' + "\\" * 100_000,
        "[[a]]\n[a.b]\nx = 1\n" * 6000,
        "".join(f"[t{n}]\n" for n in range(20_000)),
    )
    began = time.process_time()
    for text in hostile:
        read_toml(text)
    assert time.process_time() - began < 3
