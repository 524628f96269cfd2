"""`mopt-doctor plan`: what would be done on a host for a goal, stage by stage; nothing is done."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from msgspec.structs import replace

from doctor.commands.ask import checked_goal, matrix_of, named_target, target_and_host
from doctor.commands.matrix_pick import pick
from doctor.commands.output import write_answer
from doctor.core.goal import Goal, Term
from doctor.core.host import Host, known
from doctor.core.lower import Choices, Ground, lower
from doctor.core.lower.catalogue import Catalogue
from doctor.core.lower.named import host_of
from doctor.core.lower.refusals import has_enrolled_key
from doctor.core.matrix import Matrix
from doctor.core.rows.install import Origin
from doctor.core.sets import VersionSet
from doctor.core.solve.universe import Universe
from doctor.core.stack import StackReport
from doctor.core.stages import Variables
from doctor.core.target import Target
from doctor.core.versions import Dotted
from doctor.errors import UsageError

__all__ = ["plan", "run"]
