"""What every report of an audit begins with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from fedsecure import __version__
from fedsecure_attacks.verdict import Control, Verdict

__all__ = ["controls_json", "plan_sha256", "report_head"]

SCHEMA_VERSION = 1


def report_head(
    mode: str, verdict: Verdict, *, primary: str, plan: Mapping[str, Any], inputs: Mapping[str, str]
) -> dict[str, Any]:
    """``mode``: which audit. ``primary``: the attack that is told first. ``plan``: what was fixed before anything was
    measured. ``inputs``: SHA-256 (hex) of each input, by name."""
    return {
        "schema_version": SCHEMA_VERSION,
        "version": __version__,
        "mode": mode,
        "verdict": verdict.word.value,
        "reason": verdict.reason,
        "exit_code": verdict.word.exit_code,
        "primary": primary,
        "plan": dict(plan),
        "plan_sha256": plan_sha256(plan),
        "inputs_sha256": dict(inputs),
    }


def plan_sha256(plan: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of what was fixed before."""
    return hashlib.sha256(json.dumps(dict(plan), sort_keys=True).encode()).hexdigest()


def controls_json(controls: Iterable[Control]) -> dict[str, Any]:
    """The entry ``controls``: by name, whether it was as it must be, and what was found."""
    return {control.name: {"passed": control.passed, "found": control.said} for control in controls}
