"""Every example plan that the package carries is right, and its sums can be masked where it says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsecure.masked_plan import masked_exchanges
from fedsecure.methods import build_method
from fedsecure.plan import load_plan
from fedsecure.plan.examples import EXAMPLES, read_example


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_right(tmp_path: Path, name: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(read_example(name))
    plan, simulation = load_plan(path)
    assert plan.name == name
    assert simulation is not None
    masked = masked_exchanges(plan, build_method(plan))
    assert bool(masked) == (plan.secagg != "off") == name.endswith("-masked")


def test_one_example_is_masked() -> None:
    assert any(name.endswith("-masked") for name in EXAMPLES)


@pytest.mark.usefixtures("seeded_words")
def test_one_example_is_private_and_can_be_asked_for_its_canaries(tmp_path: Path) -> None:
    from fedsecure_attacks.canaries.audit import CanaryProfile, audit_canaries
    from fedsecure_attacks.planned import load_run
    from fedsecure_attacks.verdict import Word

    path = tmp_path / "plan.toml"
    path.write_text(read_example("digits-fedavg-dp"))
    plan, dealt = load_run(path)
    found = audit_canaries(plan, dealt.train, CanaryProfile(canaries=300))
    assert found.verdict.word is Word.NO_LEAK_DETECTED, found.verdict
