"""mopt-doctor: makes NVIDIA inference hosts ready, on purpose, provably."""

# A literal: importlib.metadata costs 70 ms of CPU at start (measured, CPython 3.11).
__version__ = "0.1.0.dev0"
