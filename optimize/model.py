"""The types that a model's facts have. They stand in `doctor.core`, for reports are made of them, too."""

from __future__ import annotations

from doctor.core.model_facts import (
    AttentionGroup,
    AttentionKind,
    Experts,
    ModelFacts,
    Quantization,
    Role,
    Rope,
    Split,
    StateGroup,
    Task,
    Weight,
)

__all__ = [
    "AttentionGroup",
    "AttentionKind",
    "Experts",
    "ModelFacts",
    "Quantization",
    "Role",
    "Rope",
    "Split",
    "StateGroup",
    "Task",
    "Weight",
]
