"""The plan: the immutable description of a run. Its SHA-256 is the run's identity; what a node approves is that
digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from fedsecure.config import NODE_ID, NodeId, Settings, canonical_json, load_toml, named_pattern, validate
from fedsecure.data.settings import Simulation, anchored_simulation
from fedsecure.errors import ConfigError, RemoteProtocolError
from fedsecure.files import shown
from fedsecure.plan.methods import (
    AnyMethodSettings,
    CondensationSettings,
    FedAvgSettings,
    RoutedSettings,
)
from fedsecure.plan.models import ModelSettings, check_network
from fedsecure.plan.presets import preset_settings
from fedsecure.plan.privacy import AnyPrivacySettings, check_privacy, check_shares
from fedsecure.plan.size import check_size
from fedsecure.plan.task import Task
from fedsecure.secagg.cohort.threshold import Threshold

__all__ = ["NODE_ID", "Cohort", "Deadlines", "NodeId", "Plan", "load_plan"]


#: Routing chooses among at least so many nodes.
MIN_ROUTED = 2


class Cohort(Settings):
    """Who takes part. ``nodes`` empty: any enrolled node that approves the plan. A round needs ``min_nodes``
    contributions."""

    min_nodes: int = Field(3, ge=1, le=1000)
    nodes: tuple[NodeId, ...] = Field((), max_length=1000)

    @model_validator(mode="after")
    def _enough(self) -> Cohort:
        if len(set(self.nodes)) != len(self.nodes):
            raise ValueError("a node is named twice")
        if self.nodes and len(self.nodes) < self.min_nodes:
            raise ValueError(f"{len(self.nodes)} nodes are named but min_nodes is {self.min_nodes}")
        return self


class Deadlines(Settings):
    """Seconds after which a phase ends with whoever is there. ``join``: from the start of the run; ``exchange``:
    each exchange."""

    join: float = Field(86_400.0, gt=0, le=31_536_000)
    exchange: float = Field(3_600.0, gt=0, le=31_536_000)


class Plan(Settings):
    """The immutable description of a run. Construct with ``load_plan`` or ``Plan.from_wire``.

    ``secagg``: whether what nodes sum is masked, so that the coordinator learns the sum alone. ``required``: it is.
    ``optional``: it is when, as the run starts, the coordinator holds a manifest of exactly these nodes that all of
    them signed. ``off``: it is not. Other than ``off`` needs ``cohort.nodes``, 3 to 64 of them, and a
    ``cohort.min_nodes`` that is at least the threshold, two thirds of them rounded down and one.
    """

    format: Literal[1]
    name: str = Field(
        pattern=named_pattern(
            r"^[a-z0-9][a-z0-9._-]{0,99}$",
            "a plan's name: lower-case letters, digits and ._- after the first, at most 100",
        )
    )
    preset: Literal["protective", "paper"] = "protective"
    seed: int = Field(0, ge=0, lt=2**53)
    rounds: int = Field(ge=1, le=100_000)
    randomness: Literal["private", "plan"] = "private"
    secagg: Literal["required", "optional", "off"] = "off"
    task: Task
    model: ModelSettings
    method: AnyMethodSettings
    privacy: AnyPrivacySettings | None = None
    cohort: Cohort = Cohort()
    deadlines: Deadlines = Deadlines()

    @model_validator(mode="after")
    def _consistent(self) -> Plan:
        check_network("model", self.model, self.task)
        if isinstance(self.method, CondensationSettings) and self.method.augment == "dsa" and self.task.kind != "image":
            raise ValueError("method.augment 'dsa' needs images (allowed for a table: 'none')")
        if isinstance(self.method, RoutedSettings):
            if self.method.router is not None:
                check_network("method.router", self.method.router, self.task)
            if len(self.cohort.nodes) < MIN_ROUTED:
                raise ValueError(
                    f"method {self.method.name!r} has a row for every node, and cohort.nodes names "
                    f"{len(self.cohort.nodes)} (name them all, at least {MIN_ROUTED})"
                )
        if self.secagg != "off":
            self._check_masked()
        if self.privacy is not None:
            check_privacy(self.privacy, self.method)
            check_shares(self.privacy, self.method, self.secagg, len(self.cohort.nodes))
        check_size(self)
        return self

    def _check_masked(self) -> None:
        """Raise ``ValueError`` unless this method's sums can be masked among the nodes that the plan names."""
        asked = f"secagg {self.secagg!r}"
        if self.method.name == "feddm":
            raise ValueError(f"{asked}: method 'feddm' sums nothing, so nothing is masked (allowed: 'off')")
        if not self.cohort.nodes:
            raise ValueError(f"{asked}: cohort.nodes is empty (name the nodes that will be summed together, 3 to 64)")
        try:
            threshold = Threshold(len(self.cohort.nodes))
        except ConfigError as error:
            raise ValueError(f"{asked}: cohort.nodes names {len(self.cohort.nodes)} (allowed: 3 to 64)") from error
        if self.cohort.min_nodes < threshold.required:
            raise ValueError(
                f"{asked}: cohort.min_nodes {self.cohort.min_nodes} where no sum is unmasked of fewer than "
                f"{threshold.required} of {threshold.nodes} nodes (allowed: >= {threshold.required})"
            )

    def canonical(self) -> bytes:
        """The exact bytes whose SHA-256 is the plan's identity, and which travel."""
        return canonical_json(self)

    def digest(self) -> str:
        """SHA-256 of the canonical JSON, hex."""
        return hashlib.sha256(self.canonical()).hexdigest()

    def reference(self) -> AnyMethodSettings:
        """The method's settings as the preset alone would have them."""
        base = preset_settings(self.preset, self.method.name, {"name": self.method.name})
        if isinstance(self.method, FedAvgSettings) and self.method.local_steps is not None:
            base |= {"local_epochs": None, "local_steps": self.method.local_steps}
        return type(self.method).model_validate(base, strict=False)

    def departed(self) -> dict[str, tuple[Any, Any]]:
        """Settings of the method that differ from the preset's: key, dotted inside tables -> (the plan's, the
        preset's)."""
        return dict(_different(self.method.model_dump(), self.reference().model_dump()))

    def departures(self) -> list[str]:
        """``departed`` in words, ``key = value (preset: value)``."""
        return [f"{key} = {_value(ours)} (preset: {_value(theirs)})" for key, (ours, theirs) in self.departed().items()]

    @classmethod
    def from_wire(cls, data: bytes, digest: str) -> Plan:
        """Parse canonical JSON that a coordinator sent. Raises ``RemoteProtocolError`` unless it is canonical and
        has this digest."""
        if hashlib.sha256(data).hexdigest() != digest:
            raise RemoteProtocolError(
                f"plan {digest[:12]}: its bytes have another digest",
                hint="the coordinator is at fault; do not approve it",
            )
        plan = validate(cls, data, f"plan {digest[:12]}")
        if plan.canonical() != data:
            raise RemoteProtocolError(
                f"plan {digest[:12]}: is not in the canonical form of this version",
                hint="coordinator and node run different versions of fedsecure",
            )
        return plan


def _different(ours: dict[str, Any], theirs: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, tuple[Any, Any]]]:
    for name, value in ours.items():
        other = theirs.get(name)
        if isinstance(value, dict) and isinstance(other, dict):
            yield from _different(value, other, f"{prefix}{name}.")
        elif value != other:
            yield prefix + name, (value, other)


def _value(value: Any) -> str:
    """A setting as people read it."""
    if isinstance(value, dict):  # a network
        named = (f"{k} {_value(v)}" for k, v in value.items() if k != "name" and v is not None)
        return f"{value['name']} ({', '.join(named)})"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    return "left out" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def load_plan(path: Path) -> tuple[Plan, Simulation | None]:
    """Read a plan file: the plan, and its ``[simulation]`` table if it has one. Relative data paths in it are taken
    from the plan file's folder. Raises ``ConfigError`` naming the file, the key and the allowed values."""
    raw = load_toml(path)
    simulation_raw = raw.pop("simulation", None)
    plan = validate(Plan, _with_preset(raw), shown(path))
    if simulation_raw is None:
        return plan, None
    simulation = validate(_SimulationFile, {"simulation": simulation_raw}, shown(path)).simulation
    return plan, anchored_simulation(simulation, path.resolve().parent)


class _SimulationFile(Settings):
    simulation: Simulation


def _with_preset(raw: dict[str, Any]) -> dict[str, Any]:
    method = raw.get("method")
    if not isinstance(method, dict) or not isinstance(method.get("name"), str):
        return raw
    return {**raw, "method": preset_settings(str(raw.get("preset", "protective")), method["name"], method)}
