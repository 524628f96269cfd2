"""Changing a host: the journal, the lock, the detached run, and the one module that calls ansible_runner."""
