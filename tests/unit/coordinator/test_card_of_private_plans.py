"""What a model card says of the releases of a private plan."""

from __future__ import annotations

import pytest

from fedsecure.tensors import Tensors
from fedsecure_coordinator.views.card import model_card
from fedsecure_coordinator.views.runs import find_run, run_view


@pytest.mark.parametrize(
    ("noise", "label", "words"),
    [
        ("csprng", "dp", "differential privacy for each record, zero-out adjacency"),
        ("discrete", "dp", "stands in the log of its releases, and nowhere else"),
        ("torch", "heuristic", "the noise can be repeated, so nothing is proven"),
    ],
)
def test_the_label_follows_from_mechanism_and_noise(open_office, toy, noise, label, words):
    office = open_office()
    plain = office.submit(toy.plan())
    privacy = {"kind": "dp-sgd", "sigma": 1.5, "noise": noise}
    plan = toy.plan(privacy=privacy)
    view = run_view(office.journal, find_run(office.journal, plain))
    card = model_card(plan, view, Tensors({}))
    (line,) = [line for line in card.split("\n") if line.startswith("| Guarantee |")]
    assert f"`{label}`: nodes send noisy sums of clipped gradients" in line
    assert words in line
    assert ("differential privacy" in card) == (label == "dp")
    assert "`none`" in model_card(toy.plan(), view, Tensors({}))
