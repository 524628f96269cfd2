"""What a container image demands of its host, and what it asks the toolkit to hand in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from doctor.core.fit.verdict import Fit, Question, no, sources, unknown, warn, yes
from doctor.core.pattern import pattern
from doctor.core.versions import Dotted

__all__ = ["architecture", "demands", "fabric", "gpu", "handed_in"]

Holds = Literal["yes", "no", "unknown"]

_CONDITION = pattern(r"(cuda|driver|brand|arch)(>=|<=|!=|=|<|>)([\w.]{1,40})")


def gpu(question: Question) -> Iterator[Fit]:
    """The machine has an NVIDIA GPU at all."""
    if question.ground.has_gpu is False and (question.environment.torch_cuda or question.engine):
        found = "the machine has no NVIDIA GPU"
        yield no(
            "gpu",
            "gpu",
            found,
            wanted="an NVIDIA GPU",
            source=(),
            hints=("another machine: `--gpu NAME` names one",),
        )


def architecture(question: Question) -> Iterator[Fit]:
    """The image, or the wheels of an environment, are for the processor of the machine."""
    image, machine = question.environment.architecture, question.ground.architecture
    if not image or not machine:
        return
    word = "image" if question.environment.kind == "image" else "environment"
    found = f"the {word} is for {image}, the machine is {machine}"
    if image == machine:
        yield yes(f"{word}-architecture", word, found)
    else:
        wanted = f"an {word} for {machine}"
        yield no(f"{word}-architecture", word, found, wanted=wanted, source=(), hints=(wanted,))


def fabric(question: Question) -> Iterator[Fit]:
    """GPUs that an NVSwitch joins start no CUDA without the fabric manager."""
    if question.ground.has_fabric_manager is False:
        wanted = "the fabric manager, in the driver's version and running"
        source = sources(question, rules=("fabric-manager",))
        found = "NVSwitches join these GPUs, and the fabric manager that they need does not run"
        yield no(
            "fabric-manager",
            "fabric-manager",
            found,
            wanted=wanted,
            source=source,
            hints=(wanted,),
        )


def demands(question: Question) -> Iterator[Fit]:
    """`NVIDIA_REQUIRE_CUDA`: where no alternative holds, the image is not meant for this driver."""
    alternatives = question.environment.demands
    if not alternatives:
        return
    answers = [_all(question, text) for text in alternatives]
    source = sources(question, rules=("image-demands",))
    ground = question.ground
    machine = f"driver {ground.driver or 'not known'}, CUDA {ground.driver_cuda or 'not known'}"
    others = " or one of others" if len(alternatives) > 1 else ""
    text = f"NVIDIA_REQUIRE_CUDA demands {alternatives[0]}{others}; {machine}"
    if "yes" in answers:
        yield yes("image-demands", "driver", text, source)
    elif "unknown" in answers:
        yield unknown("image-demands", "driver", text, source, is_open=question.ground.driver is None)
    else:
        wanted = f"a driver with {alternatives[0]}"
        found = (
            f"{text}: in its legacy mode the container toolkit does not start it, with CDI it does not ask"
        )
        cuda, speaks = question.environment.torch_cuda, ground.driver_cuda
        is_minor = cuda is not None and speaks is not None and cuda.major <= speaks.major
        way_out = ("NVIDIA_DISABLE_REQUIRE=1, where minor-version compatibility will do",) if is_minor else ()
        hints = (wanted, "an image for an older CUDA", *way_out)
        yield no("image-demands", "driver", found, wanted=wanted, source=source, hints=hints)


def _all(question: Question, text: str) -> Holds:
    """Whether all conditions of an alternative hold."""
    answers = [_one(question, part) for part in text.split(",") if part]
    return "no" if "no" in answers else "unknown" if "unknown" in answers or not answers else "yes"


def _one(question: Question, text: str) -> Holds:
    found = _CONDITION.fullmatch(text.strip())
    if found is None:
        return "unknown"
    name, operator, value = found.groups()
    if name == "brand":
        return _brand(question, operator, value)
    capabilities = [card.capability for card in question.ground.cards if card.capability]
    mine = {
        "cuda": question.ground.driver_cuda,
        "driver": question.ground.driver,
        "arch": min(capabilities, default=None),
    }[name]
    try:
        wanted = Dotted(value)
    except ValueError:
        return "unknown"
    return "unknown" if mine is None else "yes" if _holds(mine, operator, wanted) else "no"


def _holds(mine: Dotted, operator: str, wanted: Dotted) -> bool:
    """As far as the bound is written: driver 470.82.01 is no newer than `470`, and `driver<471` takes it."""
    length = max(len(wanted.parts), 1)
    one, other = mine.parts, wanted.parts
    return {
        ">=": one >= other,
        ">": one > other,
        "<=": one[:length] <= other,
        "<": one < other,
        "=": one[:length] == other,
        "!=": one[:length] != other,
    }[operator]


#: Brands by NVML that a name tells apart. A virtual GPU has others, which no name tells.
_BRANDS = (("geforce", "titan", "geforcertx"), ("quadro", "quadrortx", "nvidiartx"), ("tesla", "nvidia"))


def _brand(question: Question, operator: str, value: str) -> Holds:
    """No where the cards' names are of another family of brands; else not known."""
    names = " ".join(card.name.casefold() for card in question.ground.cards)
    if not names or operator != "=":
        return "unknown"
    mine = 0 if re.search(r"geforce|titan", names) else 1 if re.search(r"quadro|\brtx\b", names) else 2
    others = [brand for number, family in enumerate(_BRANDS) if number != mine for brand in family]
    return "no" if value in others else "unknown"


def handed_in(question: Question) -> Iterator[Fit]:
    """Which GPUs and which parts of the driver the image asks for by itself."""
    variables = question.environment.variables
    if question.environment.kind != "image":
        return
    source = sources(question, rules=("image-variables",))
    devices, parts = variables.get("NVIDIA_VISIBLE_DEVICES"), variables.get("NVIDIA_DRIVER_CAPABILITIES")
    if devices in ("none", "void"):
        found = f"NVIDIA_VISIBLE_DEVICES is {devices}: no GPU unless the start asks for some"
        yield warn("image-devices", "image", found, wanted="`--gpus all`, or a CDI device", source=source)
    words = {word.strip() for word in (parts or "").split(",") if word.strip()}
    if words and not words & {"compute", "all"}:
        found = f"NVIDIA_DRIVER_CAPABILITIES is {parts}: libcuda is not handed in"
        hint = "NVIDIA_DRIVER_CAPABILITIES with `compute,utility`"
        yield no(
            "image-capabilities", "image", found, wanted="compute among them", source=source, hints=(hint,)
        )
    elif words:
        yield yes("image-capabilities", "image", f"NVIDIA_DRIVER_CAPABILITIES is {parts}", source)
    yield from _compat(question)


def _compat(question: Question) -> Iterator[Fit]:
    """A compat libcuda that is found first answers with error 804 on GPUs that do not take it."""
    first = question.environment.variables.get("LD_LIBRARY_PATH", "").split(":")[0]
    refusing = [card.name for card in question.ground.cards if card.takes_compat is False]
    cuda, speaks = question.environment.torch_cuda, question.ground.driver_cuda
    if "/compat" not in first or not refusing or cuda is None or speaks is None or cuda <= speaks:
        return
    names = ", ".join(refusing)
    found = f"LD_LIBRARY_PATH begins with `{first}`; {names} takes no compat libcuda (CUDA error 804)"
    source = sources(question, rules=("fwd-compat",))
    hint = "LD_LIBRARY_PATH without the compat folder, and a driver for that CUDA"
    yield no(
        "fwd-compat", "cuda-compat", found, wanted="the driver's own libcuda", source=source, hints=(hint,)
    )
