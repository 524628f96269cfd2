"""From a stack and a host to staged variables (`mopt.vars/1`). Pure: the same values, the same document."""

from __future__ import annotations

from doctor.core.lower.assemble import digest_of, lower
from doctor.core.lower.ground import Choices, Ground

__all__ = ["Choices", "Ground", "digest_of", "lower"]
