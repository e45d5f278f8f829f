"""Nothing in ``crypto`` or ``secagg`` can draw from a generator that is not the operating system's or a cipher's."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3] / "fedsecure"
FILES = sorted(path for part in ("crypto", "secagg") for path in (ROOT / part).rglob("*.py"))
#: Modules whose randomness can be predicted, and whatever is inside them.
FORBIDDEN = ("random", "numpy.random", "torch", "scipy", "fedsecure.randomness", "importlib", "builtins")
#: Names that reach such a module from one that may be imported.
ATTRIBUTES = {"random", "rand", "randn", "default_rng", "RandomState", "Random", "SystemRandom", "manual_seed"}
CALLS = {"__import__", "eval", "exec"}


def weaknesses(source: str) -> list[str]:
    """What in ``source`` reaches a weak generator, or could without being seen."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        found += [name for name in names if any(name == bad or name.startswith(bad + ".") for bad in FORBIDDEN)]
        if isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES:
            found.append(f".{node.attr}")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
            found.append(node.func.id)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_no_weak_generator_is_reachable(path):
    assert weaknesses(path.read_text(encoding="utf-8")) == []


def test_the_guard_looks_at_the_files():
    looked_at = {path.relative_to(ROOT).as_posix() for path in FILES}
    assert {"crypto/keystream.py", "crypto/shamir.py", "crypto/secretbytes.py"} <= looked_at
    machines = {f"secagg/machines/{name}.py" for name in ("nodekeys", "masking", "node", "unmasking")}
    assert {*machines, "secagg/values/noise.py", "secagg/protocol/messages.py"} <= looked_at


@pytest.mark.parametrize(
    "source",
    [
        "import random",
        "def f():\n    from random import randbytes",
        "import numpy.random",
        "from numpy import random",
        "from numpy.random import default_rng",
        "import numpy as np\nnp.random.bytes(4)",
        "import torch",
        "from torch import rand",
        "from secrets import token_bytes\nimport secrets\nsecrets.SystemRandom()",
        "import importlib",
        "__import__('random')",
        "from fedsecure.randomness import generator",
    ],
)
def test_the_guard_sees_planted_weakness(source):
    assert weaknesses(source)


def test_the_guard_lets_good_sources_pass():
    assert weaknesses("import secrets\nimport os\nsecrets.randbelow(4)\nos.urandom(3)\nimport numpy as np") == []
