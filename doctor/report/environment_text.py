"""What was read of an environment or image, in a line for a person."""

from __future__ import annotations

from doctor.core.host import Environment

__all__ = ["said_of"]


def said_of(environment: Environment) -> str:
    """What was found there, for a person: `read: vllm 0.11.2, torch 2.9.0+cu128 (CUDA 12.8), …`."""
    cuda = f" (CUDA {environment.torch_cuda})" if environment.torch_cuda else ""
    named = {
        "vllm": environment.vllm,
        "tensorrt-llm": environment.tensorrt_llm,
        "tensorrt": environment.tensorrt,
        "torch": environment.torch + cuda if environment.torch else "",
        "triton": environment.packages.get("triton", ""),
        "flashinfer": environment.packages.get("flashinfer-python", ""),
        "nccl": next((v for n, v in environment.wheels.items() if n.startswith("nvidia-nccl-cu")), ""),
        "python": environment.python.raw if environment.python else "",
    }
    parts = [f"{name} {version}" for name, version in named.items() if version]
    if environment.kind == "image" and not environment.torch and environment.torch_cuda:
        parts.append(f"CUDA {environment.torch_cuda}")
    kind = {"image": "image", "": "environment"}.get(environment.kind, environment.kind)
    return f"read: {kind} with {', '.join(parts) if parts else 'nothing that matters here'}"
