"""The commands of a plan, in the words of the engine that it chose. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from doctor.core.edition import Edition
from doctor.core.serving import Argument, CommandLine, NotPrinted, ServingPlan, Setting
from optimize.argv import command_line
from optimize.backends import COMMANDS
from optimize.model import ModelFacts

__all__ = ["command_of"]

#: What a decision is called on each command line. vLLM's flags have the names of decisions.
_LLM_FLAGS = {
    "max-model-len": "--max_seq_len",
    "max-num-seqs": "--max_batch_size",
    "max-num-batched-tokens": "--max_num_tokens",
    "tensor-parallel-size": "--tp_size",
    "pipeline-parallel-size": "--pp_size",
    "memory share": "--kv_cache_free_gpu_memory_fraction",
}
_SWITCHES = ("enforce-eager", "enable-expert-parallel")
#: Inputs of an encoder's ONNX export, as Optimum names them.
_INPUTS = ("input_ids", "attention_mask")

Answer = tuple[tuple[CommandLine, ...], NotPrinted | None]


def command_of(edition: Edition, plan: ServingPlan, facts: ModelFacts) -> Answer:
    """The command lines of a plan, and why there is none where there is none."""
    engine = plan.engines[0]
    if engine.component == "vllm":
        arguments, positional = _vllm(plan.settings, facts), plan.path
    elif engine.component == "tensorrt-llm":
        arguments, positional = _tensorrt_llm(plan), plan.path
    else:
        arguments, positional = _trtexec(plan, facts), ""
    command = COMMANDS[engine.component]
    line = command_line(edition, engine.component, engine.version, command, arguments, positional=positional)
    return ((), line) if isinstance(line, NotPrinted) else ((line,), None)


def _vllm(settings: Iterable[Setting], facts: ModelFacts) -> list[Argument]:
    found = []
    if facts.task != "generate":
        because = "it answers with embeddings, whatever its architecture is called"
        found.append(Argument(flag="--runner", value="pooling", because=because))
    for setting in settings:
        if setting.is_given:
            value = "" if setting.name in _SWITCHES else setting.value
            found.append(Argument(flag=f"--{setting.name}", value=value, because=setting.because))
    return found


def _tensorrt_llm(plan: ServingPlan) -> list[Argument]:
    found = [Argument(flag="--backend", value="pytorch", because="the default since 1.0: no engine is built")]
    for setting in plan.settings:
        flag = _LLM_FLAGS.get(setting.name)
        if flag and setting.is_given:
            found.append(Argument(flag=flag, value=setting.value, because=setting.because))
    if plan.split is not None and plan.split.is_expert_parallel:
        because = "whole experts on each GPU: slices would cut scales that values share"
        found.append(Argument(flag="--ep_size", value=str(plan.split.tensor), because=because))
    return found


def _trtexec(plan: ServingPlan, facts: ModelFacts) -> list[Argument]:
    """Builds an engine from an ONNX export; shapes from one short input to a full step of long ones."""
    values = {setting.name: setting.value for setting in plan.settings}
    longest, step = int(values["max-model-len"]), int(values["max-num-batched-tokens"])
    usual = round(plan.load.prompt.mean) if plan.load else longest
    batch = max(1, min(int(values["max-num-seqs"]), step // longest))
    names = (*_INPUTS, "token_type_ids") if facts.model_type in ("bert", "nomic_bert") else _INPUTS

    def shapes(rows: int, tokens: int) -> str:
        return ",".join(f"{name}:{rows}x{tokens}" for name in names)

    return [
        Argument(flag="--onnx", value=f"{plan.path.rstrip('/')}/model.onnx", because="an export, by Optimum"),
        Argument(flag="--saveEngine", value="model.plan", because="for this GPU and this release alone"),
        Argument(flag="--minShapes", value=shapes(1, 1), because="one short input"),
        Argument(flag="--optShapes", value=shapes(batch, usual), because="a full step of usual inputs"),
        Argument(flag="--maxShapes", value=shapes(batch, longest), because="a full step of the longest"),
        Argument(flag="--skipInference", because="build; time it apart"),
    ]
