#!/usr/bin/python
"""A dnf module stream enabled; another one of the module is reset first, as dnf demands."""

DOCUMENTATION = r"""
module: mopt_stream
short_description: Enable or reset a dnf module stream
options:
  name: {description: Module., type: str, required: true}
  stream: {description: Stream; empty resets the module., type: str, default: ''}
"""
EXAMPLES = r"""
- name: Stream
  mopt_stream: {name: nvidia-driver, stream: 580-open}
"""
RETURN = r"""
before: {description: The stream that was enabled, type: str, returned: always}
"""

import os

from ansible.module_utils import mopt_sets
from ansible.module_utils.basic import AnsibleModule
import configparser

FOLDER = "/etc/dnf/modules.d"


def enabled(name):
    """The stream of a module that is enabled; empty where none is."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(os.path.join(FOLDER, name + ".module"))
        section = dict(parser.items(name))
    except configparser.Error:
        return ""
    return section.get("stream", "") if section.get("state") == "enabled" else ""


def main():
    spec = {"name": {"type": "str", "required": True}, "stream": {"type": "str", "default": ""}}
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    name, stream = module.params["name"], module.params["stream"]
    before = enabled(name)
    if before == stream:
        module.exit_json(changed=False, before=before)
    if not module.check_mode:
        if before:
            _dnf(module, "reset", name)
        if stream:
            _dnf(module, "enable", name + ":" + stream)
        after = enabled(name)
        if after != stream:
            module.fail_json(msg="dnf ended well, but `{0}` is at stream `{1}`, not `{2}`".format(name, after, stream))
    module.exit_json(changed=True, before=before)


def _dnf(module, act, what):
    code, out, said = module.run_command(["dnf", "-q", "-y", "module", act, what], environ_update={"LC_ALL": "C"})
    if code:
        text = (out + said).strip()
        cause = mopt_sets.cause_of(text) or "prov.module_stream_name"
        said = "`dnf module {0} {1}` refused: {2}".format(act, what, text[-1500:])
        module.fail_json(msg=mopt_sets.named(cause, said), cause=cause)


if __name__ == "__main__":
    main()
