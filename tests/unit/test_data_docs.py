"""Every TOML block of docs/data.md is read by the code it describes; and importing settings stays cheap."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedsecure.config import Settings, validate
from fedsecure.data.settings import AnySource, DualHeterogeneityPartition, Simulation
from fedsecure.data.torchvision_sets import CLASS_NAMES
from fedsecure.plan.task import Task

PAGE = Path(__file__).parents[2] / "docs" / "data.md"
BLOCKS = re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


class Block(Settings):
    data: AnySource | None = None
    task: Task | None = None
    simulation: Simulation | None = None


def parse(text: str) -> Block:
    raw: dict[str, Any] = tomllib.loads(text)
    assert raw
    return validate(Block, raw, "docs/data.md")


@pytest.mark.parametrize("text", BLOCKS)
def test_blocks_are_valid(text: str) -> None:
    parse(text)


def test_every_kind_of_source_and_partition_is_shown() -> None:
    blocks = [parse(text) for text in BLOCKS]
    dealt = [b.simulation.data for b in blocks if b.simulation and b.simulation.data]
    sources = [b.data for b in blocks if b.data] + dealt
    assert {s.kind for s in sources} == {"folder", "npz", "csv", "digits", "torchvision"}
    kinds = {b.simulation.partition.kind for b in blocks if b.simulation}
    assert kinds == {"dirichlet", "column", "sources", "dual-heterogeneity"}
    assert any(b.task for b in blocks)


def test_the_defaults_of_dual_heterogeneity_are_those_shown() -> None:
    shown = [
        b.simulation.partition for b in map(parse, BLOCKS)
        if b.simulation and isinstance(b.simulation.partition, DualHeterogeneityPartition)
    ]  # fmt: skip
    assert shown == [DualHeterogeneityPartition(kind="dual-heterogeneity")]
    assert shown[0].model_fields_set == set(DualHeterogeneityPartition.model_fields)


def test_the_named_sets_are_named() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert all(name in text for name in CLASS_NAMES)


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import fedsecure.data, fedsecure.data.settings, fedsecure.plan", ("torch", "PIL", "sklearn", "numpy")),
        (
            "import fedsecure.data.table, fedsecure.data.npz, fedsecure.data.folder, fedsecure.data.check",
            ("torch", "sklearn"),
        ),
        (
            "import fedsecure.data.partition, fedsecure.data.export, fedsecure.data.torchvision_sets",
            ("torch", "sklearn", "PIL"),
        ),
    ],
)
def test_imports_stay_cheap(statement: str, absent: tuple[str, ...]) -> None:
    code = f"{statement}\nimport sys\nprint([m for m in {absent!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"
