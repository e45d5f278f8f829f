"""A cohort of three whose keys are those of the checked-in vectors, and tiny plans of every method that sums."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedsecure.config import validate
from fedsecure.crypto.signatures import SigningIdentity
from fedsecure.plan import Plan
from fedsecure.plan.presets import preset_settings

#: ``adversary`` and ``adversary_knowledge`` lie here and are no tests themselves.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def vectors():
    """``tests/vectors/secagg_encoding.json``."""
    return json.loads((Path(__file__).parents[2] / "vectors" / "secagg_encoding.json").read_text())


@pytest.fixture(scope="session")
def identities(vectors):
    """The signing identity of each node of the vectors' cohort."""
    secrets = vectors["manifest"]["secrets"]
    return {n: SigningIdentity(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(s))) for n, s in secrets.items()}


@pytest.fixture(scope="session")
def make_plan():
    """make_plan("fedaf", averaging="all"): a plan of nodes one and two for images of 8 x 8 pixels in three classes."""

    def make(name, **method):
        raw = {
            "format": 1,
            "name": "tiny",
            "preset": "protective",
            "rounds": 2,
            "task": {"kind": "image", "classes": ["a", "b", "c"], "shape": [1, 8, 8], "mean": [0.4], "std": [0.3]},
            "model": {"name": "convnet", "depth": 2, "width": 4},
            "method": preset_settings("protective", name, {"name": name, **method}),
            "cohort": {"min_nodes": 2, "nodes": ["one", "two"]},
        }
        return validate(Plan, json.loads(json.dumps(raw)), "tiny plan")

    return make
