"""Counts the configs of tests/data/models again, by transformers on torch's meta device.

Run with an interpreter that has torch and transformers (and PyYAML): `python tests/optimize/count_models.py`.
It ends with 1 where a number of golden.yaml is another one.
"""

import json
import re
import sys
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "data" / "models"
_BARE = ("bert", "roberta", "modernbert")
_OTHER_PARTS = re.compile(r"vision|visual|multi_modal|embed_audio")


def counted(config: dict) -> int:
    """Unique parameters of the model class, those of a vision tower left out."""
    import torch
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    said = {key: value for key, value in config.items() if key not in ("quantization_config", "auto_map")}
    found = CONFIG_MAPPING[said["model_type"]].from_dict(said)
    kind = getattr(transformers, (found.architectures or [""])[0], None)
    with torch.device("meta"):
        if kind is not None and hasattr(kind, "_from_config"):
            model = kind._from_config(found)
        elif said["model_type"] not in _BARE and type(found) in MODEL_FOR_CAUSAL_LM_MAPPING:
            model = MODEL_FOR_CAUSAL_LM_MAPPING[type(found)]._from_config(found)
        else:
            model = transformers.AutoModel.from_config(found)
    return sum(one.numel() for name, one in model.named_parameters() if not _OTHER_PARTS.search(name))


def main() -> int:
    import yaml

    differ = 0
    for row in yaml.safe_load((FOLDER / "golden.yaml").read_text())["models"]:
        number = counted(json.loads((FOLDER / row["file"]).read_text()))
        is_same = number == row["parameters"]
        differ += not is_same
        sys.stdout.write(f"{'ok' if is_same else 'DIFFERS'} {row['file']} {number}\n")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
