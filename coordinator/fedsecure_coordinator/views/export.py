"""What a run leaves behind: the model as safetensors, its card in Markdown, the plan, and the history as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsecure.errors import ConfigError
from fedsecure.files import PUBLIC_FILE, make_folder, write_durably
from fedsecure.plan import Plan
from fedsecure.tensors import Tensors
from fedsecure_coordinator.runs.run import BuildMethod, plan_of
from fedsecure_coordinator.store.blobs import BlobStore
from fedsecure_coordinator.store.journal import Journal, RunRow
from fedsecure_coordinator.views.card import model_card
from fedsecure_coordinator.views.runs import run_view

__all__ = ["export_run", "with_metadata"]

#: Longer entries do not go into the model file's header, which readers bound (characters).
MAX_ENTRY = 100_000


def export_run(
    journal: Journal, blobs: BlobStore, row: RunRow, out: Path, build_method: BuildMethod
) -> dict[str, Path]:
    """Write ``model.safetensors``, ``model_card.md``, ``plan.json``, ``history.json`` into ``out`` (made if missing).

    A run that is not over yields its latest state, and its card says so. Returns name -> path. Raises ``ConfigError``
    when the run has no model yet or ``out`` cannot be written, ``StoreError`` when the store is damaged.
    """
    if not row.server:
        raise ConfigError(f"run {row.digest[:12]} ({row.name}): has no model: {row.reason or 'it has not begun'}")
    plan = plan_of(row)
    model = build_method(plan).model(Tensors.from_bytes(blobs.get(row.server)))
    view = run_view(journal, row)
    files = {
        "model": ("model.safetensors", with_metadata(model, _metadata(plan, view))),
        "plan": ("plan.json", plan.canonical()),
        "history": ("history.json", json.dumps(view, indent=2, ensure_ascii=False, allow_nan=False).encode()),
        "card": ("model_card.md", model_card(plan, view, model).encode()),
    }
    make_folder(out, error=ConfigError)
    for name, data in files.values():
        write_durably(out / name, data, mode=PUBLIC_FILE, error=ConfigError)
    return {what: out / name for what, (name, _) in files.items()}


def _metadata(plan: Plan, view: dict[str, Any]) -> dict[str, str]:
    """What the model file says about itself; lists and settings as JSON. Left out is what is too long for a header:
    the plan beside the model says it."""

    def as_json(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)

    found = {
        "format": "fedsecure-model-1",
        "plan": view["digest"],
        "name": plan.name,
        "state": view["state"],
        "method": plan.method.name,
        "model": as_json(plan.model.model_dump(mode="json", exclude_none=True)),
        "task": as_json(plan.task.model_dump(mode="json", exclude={"classes"})),
        "classes": as_json(list(plan.task.classes)),
    }
    return {name: text for name, text in found.items() if len(text) <= MAX_ENTRY}


def with_metadata(model: Tensors, metadata: Mapping[str, str]) -> bytes:
    """The safetensors form of ``model`` with ``metadata`` in its header, deterministic for equal arguments.

    Format: length of the header (8 bytes, little-endian), header (JSON, padded with spaces to a multiple of
    8), tensors.
    """
    plain = model.to_bytes()
    size = int.from_bytes(plain[:8], "little")
    header = {"__metadata__": dict(metadata), **json.loads(plain[8 : 8 + size])}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + plain[8 + size :]
