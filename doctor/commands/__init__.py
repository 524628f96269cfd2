"""The bodies of the commands; `doctor.cli` imports one when it runs."""
