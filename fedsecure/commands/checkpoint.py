"""Where a simulation has come to, in its folder: ``checkpoint.json`` and ``checkpoint.safetensors``.

A checkpoint is taken up only for the same plan over the same records, labels and test records, bit for bit, and only
when both files are whole and belong together (a crash between the two is seen). Otherwise the run starts anew, and
says why.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsecure.commands.output import note
from fedsecure.errors import ConfigError, DataError

if TYPE_CHECKING:
    from fedsecure.data.dealt import Dealt
    from fedsecure.simulation import Simulator

__all__ = ["records_digest", "save_checkpoint", "take_up"]

NAMES = ("checkpoint.json", "checkpoint.safetensors")


def records_digest(dealt: Dealt) -> str:
    """SHA-256 (hex) of everything that was dealt out: each node's records and labels in their order, and the test
    records."""
    parts = [*(("train", n, d) for n, d in dealt.train.items()), ("test", "", dealt.test)]
    parts += [("tests", n, d) for n, d in dealt.tests.items()]
    lines = [json.dumps([kind, node, data.digest()]) for kind, node, data in parts]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def save_checkpoint(simulator: Simulator, rounds: list[dict[str, Any]], records: str, out: Path) -> None:
    """After a round: what it takes to go on. ``records``: the ``records_digest`` of the data. Raises
    ``ConfigError``."""
    from fedsecure.files import PUBLIC_FILE, write_durably

    tensors, machine = simulator.checkpoint()
    content = {
        "plan": simulator.plan.digest(),
        "records": records,
        "tensors": tensors.digest(),
        "machine": machine,
        "rounds": rounds,
    }
    whole = {"content": content, "digest": _digest(content)}
    write_durably(out / NAMES[1], tensors.to_bytes(), mode=PUBLIC_FILE, error=ConfigError)
    write_durably(out / NAMES[0], json.dumps(whole, allow_nan=False).encode(), mode=PUBLIC_FILE, error=ConfigError)


def take_up(simulator: Simulator, records: str, out: Path) -> list[dict[str, Any]]:
    """Take up the checkpoint in ``out``; returns its rounds, or none where the run starts anew, after a note of the
    reason on stderr."""
    from fedsecure.files import exists, faults
    from fedsecure.tensors import Tensors

    paths = [out / name for name in NAMES]
    there = [path for path in paths if exists(path, ConfigError)]
    if not there:
        return []
    if len(there) < len(paths):
        return _anew(there[0], "has no other half")
    with faults(paths[0], "read", ConfigError):
        state, blob = (path.read_bytes() for path in paths)
    try:
        content = _content(state)
    except (ValueError, KeyError, TypeError, RecursionError):
        return _anew(paths[0], "is damaged, or of another version")
    if content["plan"] != simulator.plan.digest():
        return _anew(paths[0], "belongs to another plan")
    if content["records"] != records:
        return _anew(paths[0], "belongs to other records: those of a node, their labels or the test records differ")
    try:
        tensors = Tensors.from_bytes(blob)
    except DataError:
        return _anew(paths[1], "is damaged")
    if tensors.digest() != content["tensors"]:
        return _anew(paths[1], "is not of the same round as checkpoint.json")
    simulator.resume(tensors, content["machine"])
    return list(content["rounds"])


def _content(state: bytes) -> dict[str, Any]:
    """What ``save_checkpoint`` wrote. Raises ``ValueError``, ``KeyError``, ``TypeError`` or ``RecursionError`` for
    anything else."""
    whole = json.loads(state)
    content: dict[str, Any] = whole["content"]
    if whole["digest"] != _digest(content):
        raise ValueError("damaged")
    return content


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _anew(path: Path, why: str) -> list[dict[str, Any]]:
    note(f"{path}: {why}; the run starts anew")
    return []
