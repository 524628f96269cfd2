"""What GPUs reach: datasheet figures, measured ones, and the floors that others fail a GPU by."""

from __future__ import annotations

from typing import Literal

from doctor.core.rows.base import Row

__all__ = ["GpuSpeed", "SpeedRange"]


class GpuSpeed(Row, frozen=True, kw_only=True):
    """Expected figures of one card. Bandwidths in GB/s (10^9), arithmetic in dense TFLOPS.

    A field that is left out was in no source; floors are those below which the named tool fails a GPU.
    """

    gpu: str
    pci_device_ids: tuple[str, ...] = ()
    compute_capability: str
    memory_gb: float
    bandwidth_gb_s: float
    """Of the datasheet."""
    bf16_tflops: float | None = None
    fp16_tflops: float | None = None
    fp8_tflops: float | None = None
    fp4_tflops: float | None = None
    power_w: int | None = None
    measured_bf16_tflops: float | None = None
    """Best matrix product found by the ml-engineering finder, mean of 100."""
    measured_fp8_tflops: float | None = None
    copy_floor_gb_s: float | None = None
    """DCGM's minimum bandwidth: about 0.75 of what its copy kernel reaches on a good part."""
    host_copy_floor_gb_s: float | None = None
    """Azure's node health check, either direction over PCIe."""
    peer_copy_floor_gb_s: float | None = None
    allreduce_floor_gb_s: float | None = None
    """Bus bandwidth of NCCL all-reduce over `allreduce_gpus` GPUs."""
    allreduce_gpus: int | None = None


class SpeedRange(Row, frozen=True, kw_only=True):
    """A range that a healthy part reaches, as a share of the datasheet or in GB/s."""

    id: str
    quantity: Literal["memory-copy", "memory-read", "bf16", "fp8", "pcie-copy", "peer-copy", "allreduce"]
    applies_to: str
    """`hbm`, `gddr`, `pcie-gen5-x16`, `ampere_ga100`, `H100`, …"""
    low: float
    high: float
    unit: Literal["share", "gb_s", "tflops"]
