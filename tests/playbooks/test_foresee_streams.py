"""What a dry run takes for enabled: libdnf itself is asked."""

from __future__ import annotations

import subprocess

from tests.playbooks.conftest import PLAYBOOKS, _needs

MODULE = """---
document: modulemd
version: 2
data:
  name: nvidia-driver
  stream: {stream}
  version: 1
  context: {context}
  arch: x86_64
  summary: a stream of the test
  description: a stream of the test
  license: {{module: [MIT]}}
...
"""
# Argument: the folder. Enables one stream as a run does, then lets a dry run take another one for enabled.
PROGRAM = """
import sys, dnf
from dnf.module.module_base import ModuleBase
sys.path.insert(0, sys.argv[2])
import mopt_foresee
def base():
    found = dnf.Base()
    conf = found.conf
    for name, folder in (("installroot", "root"), ("cachedir", "cache"), ("persistdir", "persist")):
        setattr(conf, name, sys.argv[1] + "/" + folder)
    conf.module_platform_id, conf.reposdir = "platform:el9", []
    conf.substitutions["releasever"] = "9"
    found.repos.add_new_repo("r", conf, baseurl=["file://" + sys.argv[1] + "/repository"])
    found.fill_sack(load_system_repo=False)
    return found
first = base()
ModuleBase(first).enable(["nvidia-driver:535-open"])
first._moduleContainer.save()
second = base()
mopt_foresee.enable_streams(second, [{"module": "nvidia-driver", "stream": "580-open"}])
print(second._moduleContainer.getEnabledStream("nvidia-driver"))
print(base()._moduleContainer.getEnabledStream("nvidia-driver"))
"""


def test_a_dry_run_takes_another_stream_for_enabled_and_writes_nothing(tmp_path) -> None:
    """Rocky, 535 to 580: libdnf refuses a second change of a stream, and counted the reset as one."""
    _needs("dnf", "createrepo_c", "modifyrepo_c")
    repository = tmp_path / "repository"
    repository.mkdir()
    (tmp_path / "root/etc/dnf/modules.d").mkdir(parents=True)
    streams = (("535-open", "aaaaaaaa"), ("580-open", "bbbbbbbb"))
    told = tmp_path / "modules.yaml"
    told.write_text("".join(MODULE.format(stream=stream, context=context) for stream, context in streams))
    subprocess.run(["createrepo_c", "-q", repository], check=True)
    argv = ["modifyrepo_c", "--mdtype=modules", told, repository / "repodata"]
    subprocess.run(argv, check=True, capture_output=True)
    done = subprocess.run(
        ["/usr/bin/python3", "-c", PROGRAM, tmp_path, PLAYBOOKS / "plugins/module_utils"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["580-open", "535-open"], done.stderr
