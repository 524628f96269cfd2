"""Disposable hosts with true apt, dnf, systemd, sshd and reboots, for what the playbooks do to a machine."""
