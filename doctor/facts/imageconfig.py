"""A container image's configuration: what its variables and labels say of CUDA and of the engine in it.

Read from `docker inspect IMAGE`, or an OCI configuration as `skopeo inspect --config` prints it. Nothing of
the image itself is looked at: what it installs without a variable is not told.
"""

from __future__ import annotations

import re

from doctor.core.host import Environment
from doctor.core.pattern import pattern
from doctor.core.versions import Dotted
from doctor.facts.source import Document, at, dotted, string

__all__ = ["read_image", "require_conditions"]

_TEXTS_MAX = 400
_ALTERNATIVES_MAX = 64
_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}

#: Variables that matter for an answer, and are shown.
_SHOWN = pattern(
    r"(?:CUDA|NV|NVIDIA|PYTORCH|TORCH|VLLM|TENSORRT|TRT|TRTLLM|NCCL|CUDNN|FLASHINFER|TRITON)_[A-Z0-9_]{1,60}|CUDA_HOME|LD_LIBRARY_PATH"
)
_SECRET = pattern(r"TOKEN|SECRET|PASSWORD|KEY|CREDENTIAL")
_VERSION = pattern(r"v?(\d{1,3}(?:\.\d{1,5}){1,3}(?:(?:a|b|rc|\.post|\.dev)\d{1,4})?)(?:[+-][\w.+-]{0,60})?")
#: NVIDIA's images are tagged by month: `25.10-py3` is no version of what is in them.
_MONTH = pattern(r"\d\d\.(?:0[1-9]|1[0-2])(?:$|-)")
_CAPABILITY = pattern(r"(\d{1,2}\.\d)a?(\+PTX)?")
_COMPAT = pattern(r"/compat(?:/|:|$)")


def read_image(doc: object) -> Environment | None:
    """The environment that an image's configuration describes; None where it is none."""
    inner = doc[0] if isinstance(doc, list) and doc else doc
    config = at(inner, "config") if isinstance(at(inner, "config"), dict) else at(inner, "Config")
    if not isinstance(inner, dict) or not isinstance(config, dict):
        return None
    variables = _variables(config.get("Env"))
    labels = _texts(config.get("Labels"))
    names = _names(inner)
    machine = string(inner.get("architecture")) or string(inner.get("Architecture")) or ""
    torch = variables.get("PYTORCH_BUILD_VERSION", "")
    torch = torch if _VERSION.fullmatch(torch) else _first(variables, "PYTORCH_VERSION", "TORCH_VERSION")
    codes, ptx = _codes(variables.get("TORCH_CUDA_ARCH_LIST", ""))
    cuda = dotted(variables.get("CUDA_VERSION"))
    return Environment(
        kind="image",
        prefix=names[0] if names else "",
        is_meant=True,
        python=dotted(variables.get("PYTHON_VERSION")),
        torch=torch,
        torch_cuda=_short(cuda) if cuda else None,
        vllm=_first(variables, "VLLM_VERSION") or _tagged(names, labels, "vllm"),
        tensorrt=_first(variables, "TENSORRT_VERSION", "TRT_VERSION"),
        tensorrt_llm=_first(variables, "TRTLLM_VERSION", "TRT_LLM_VERSION", "TENSORRT_LLM_VERSION")
        or _tagged(names, labels, "tensorrt-llm"),
        codes=codes,
        ptx=ptx,
        has_compat=_has_compat(variables),
        variables={n: v for n, v in variables.items() if _SHOWN.fullmatch(n) and not _SECRET.search(n)},
        architecture=_ARCHITECTURES.get(machine, machine)[:20],
        demands=require_conditions(variables),
    )


def require_conditions(variables: dict[str, str]) -> tuple[str, ...]:
    """What `NVIDIA_REQUIRE_CUDA` demands: alternatives, each of conditions joined by commas.

    Empty where it demands nothing, or `NVIDIA_DISABLE_REQUIRE` switches it off. A word that is no
    condition stays as it is: whether it holds is then not known.
    """
    if variables.get("NVIDIA_DISABLE_REQUIRE", "").lower() in ("1", "true"):
        return ()
    return tuple(variables.get("NVIDIA_REQUIRE_CUDA", "").split()[:_ALTERNATIVES_MAX])


# --- fields ---------------------------------------------------------------------------------------


def _texts(value: object) -> dict[str, str]:
    pairs = list(value.items())[:_TEXTS_MAX] if isinstance(value, dict) else []
    return {str(name)[:200]: text[:2000] for name, text in pairs if isinstance(text, str)}


def _variables(value: object) -> dict[str, str]:
    """`NAME=VALUE` texts; the last word counts, as in a shell."""
    texts = [text for text in value[:_TEXTS_MAX] if isinstance(text, str)] if isinstance(value, list) else []
    pairs = [text[:8000].partition("=") for text in texts]
    return {name: word for name, _, word in pairs if name}


def _names(inner: Document) -> list[str]:
    tags = inner.get("RepoTags")
    found = [tag[:300] for tag in tags[:8] if isinstance(tag, str)] if isinstance(tags, list) else []
    image = string(at(inner, "Config", "Image"))
    return found + ([image[:300]] if image and not image.startswith("sha256:") else [])


def _first(variables: dict[str, str], *names: str) -> str:
    """The first variable with a version in it, without what tells the build."""
    for name in names:
        found = _VERSION.fullmatch(variables.get(name, ""))
        if found is not None:
            return found.group(1)
    return ""


def _tagged(names: list[str], labels: dict[str, str], engine: str) -> str:
    """An engine's version by the image's own tag, or by the label of an image that says it is that engine."""
    for name in names:
        place, _, tag = name.rpartition(":")
        found = _VERSION.fullmatch(tag)
        is_its_own = any(part.startswith(engine) for part in place.split("/"))
        if found is not None and is_its_own and not _MONTH.match(tag):
            return found.group(1)
    source = labels.get("org.opencontainers.image.source", "")
    found = _VERSION.fullmatch(labels.get("org.opencontainers.image.version", ""))
    is_engine = source.rstrip("/").rpartition("/")[2].lower() == engine
    return found.group(1) if found is not None and is_engine else ""


def _codes(text: str) -> tuple[tuple[str, ...], str]:
    """`7.5 8.0 9.0+PTX`: the capabilities, and the one that is there as PTX."""
    found = [_CAPABILITY.fullmatch(word) for word in re.split(r"[\s;,]+", text.strip())[:32]]
    codes = tuple(match.group(1) for match in found if match is not None)
    as_ptx = [match.group(1) for match in found if match is not None and match.group(2)]
    return codes, as_ptx[-1] if as_ptx else ""


def _short(version: Dotted) -> Dotted:
    """`13.0.2.006` is CUDA 13.0."""
    return Dotted(".".join(map(str, version.parts[:2])))


def _has_compat(variables: dict[str, str]) -> bool:
    """Whether newer driver libraries come with it: their package, or their folder before all others."""
    return (
        bool(variables.get("NV_CUDA_COMPAT_PACKAGE") or variables.get("_CUDA_COMPAT_PATH"))
        or _COMPAT.search(variables.get("LD_LIBRARY_PATH", "")) is not None
    )
