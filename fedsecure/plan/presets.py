"""Named starting points of a plan. ``protective`` is the settings classes' own defaults; ``paper`` is the papers'
settings.

A key that the plan file names itself always wins over the preset.
"""

from __future__ import annotations

from typing import Any

__all__ = ["PRESETS", "preset_settings"]

_PAPER_CONDENSATION: dict[str, Any] = {
    "ipc": 50, "steps": 1000, "real_batch": 256, "real_means": "batch", "init": "avg", "init_n": 5,
    "image_optimizer": "sgd", "lr_img": 1.0, "momentum_img": 0.5, "resample": "step",
    "server": {
        "epochs": 500, "batch": 256, "optimizer": "sgd", "lr": 1e-3, "momentum": 0.9, "weight_decay": 5e-4,
        "sampling": "shuffle",
    },
}  # fmt: skip

#: preset -> method -> values laid under what the plan file says.
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "protective": {"fedaf": {}, "feddm": {}, "fedavg": {"local_epochs": 10}, "fedspm": {}, "feddrm": {}},
    "paper": {
        "fedaf": {**_PAPER_CONDENSATION, "gamma": 0.9, "logit_clip": "none"},
        "feddm": {**_PAPER_CONDENSATION, "init": "real"},
        "fedavg": {"local_epochs": 10, "batch": 64, "lr": 0.01, "momentum": 0.9, "weight_decay": 1e-5},
        "fedspm": {"share_counts": True},
        "feddrm": {"share_counts": True},
    },
}


def preset_settings(preset: str, method: str, given: dict[str, Any]) -> dict[str, Any]:
    """The preset's values for ``method`` with ``given`` laid over them (tables merged one level deep).

    An unknown preset or method yields ``given`` as it is: validation then names the fault.
    """
    base = dict(PRESETS.get(preset, {}).get(method, {}))
    if given.get("local_steps") is not None:
        base.pop("local_epochs", None)
    for key, value in given.items():
        base[key] = {**base[key], **value} if isinstance(value, dict) and isinstance(base.get(key), dict) else value
    return base
