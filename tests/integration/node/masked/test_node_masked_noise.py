"""A node's share of a cohort's noise: on what it stores from the first, the same in every session, and agreed on."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedsecure.cli import run as command
from fedsecure.privacy.ledger import Ledger
from fedsecure.secagg.values.noised import NoisedVectors
from fedsecure_node.log.releases import fold

MASS = "fedspm.update.mass"
PRIVACY = {
    "kind": "dp-sgd", "sigma": 8.0, "batch": 1000, "steps": 1, "count_sigma": 1.0, "mixing_sigma": 8.0,
    "shares": "distributed",
}  # fmt: skip
#: Responsibilities are multiples of this (``methods.private``).
GRID = 2.0**-20


@pytest.fixture
def shared_plan(site, masked_plan, machine):
    """A plan whose mixing weights have shared noise, and a policy that lets the node pay for it."""
    policy = site.folder / "policy.toml"
    text = policy.read_text().replace('"fedavg"', '"fedavg", "fedspm"')
    policy.write_text(text + '\n[privacy]\nepsilon = 50.0\nshares = ["distributed"]\n')
    return masked_plan("fedspm", settings={"parametrisation": "explicit"}, privacy=PRIVACY)


def release_of(site):
    return next(iter(fold(site.records()).values()))


def stored(site, release):
    secagg = release.body["secagg"]
    data = (site.folder / "store" / "releases" / f"{secagg['kept']}.bin").read_bytes()
    return NoisedVectors.from_bytes(data[: secagg["summed"]["bytes"]])


def test_what_is_stored_and_summed_has_the_share_on_it(site, script, cohort, shared_plan, tmp_path, capsys):
    script.offer(shared_plan)
    script.sums.ask(shared_plan)
    node = site.start()
    session = node.until(lambda: script.sums.session)
    node.until(lambda: session.sums or session.failure)
    node.end()
    assert node.error is None, node.text
    release = release_of(site)
    assert release.state == "unmasked"
    vectors, own = stored(site, release), session.own()
    assert all(np.array_equal(vectors[name], own[name]) for name in own), "the session drew no other noise"

    (mass,) = (s for s in session.streams if s.spec.name == MASS)
    elements = vectors[MASS][:-1].view(np.int64)
    assert elements.all(), "the rows of other nodes, zeros before, have noise as well"
    between = elements % int(GRID * 2**mass.spec.frac_bits) != 0
    assert between.sum() >= len(between) - 1, "no element is a sum of responsibilities"
    for path in (site.folder / "store").rglob("*"):
        if path.suffix in (".bin", ".safetensors"):
            assert b'"mass"' not in path.read_bytes(), f"{path.name} holds the sum without noise"

    label = release.body["guarantee"]
    assert label["trust"] == "at most 1 of 3 nodes collude with the coordinator"
    assert label["epsilon"] < label["epsilon_local"]
    (noise,) = release.body["secagg"]["noise"]
    assert (noise["stream"], noise["nodes"], noise["colluders"]) == (MASS, 3, 1)
    assert noise["share_std"] == pytest.approx(8.0 / 2**0.5, rel=1e-6)
    assert any("mass only with noise of sigma 8 or more" in line for line in release.body["secagg"]["learns"])
    with Ledger(site.folder / "store" / "ledger.db") as ledger:
        entries = ledger.entries()
    marks = [(e.what.exchange, e.what.mechanism) for e in entries]
    assert marks == [("counting", "dp-sgd"), ("update", "dp-sgd, noise shared by 3 nodes, 1 colluding")]
    assert (8.0, 1.0, 1) in [(s.sigma, s.q, s.steps) for s in entries[1].spends]
    assert label["epsilon"] == entries[1].epsilon_after

    folder = str(site.folder)
    assert command(["node", "preview", str(release.number), "--dir", folder, "--out", str(tmp_path / "p")]) == 0
    capsys.readouterr()
    assert command(["node", "releases", "--dir", folder, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["releases"][0]["guarantee"]["trust"] == label["trust"]


@pytest.mark.parametrize("other", ["none", "less"])
def test_a_coordinator_that_does_not_agree_on_the_noise_gets_no_vector(
    site, script, cohort, shared_plan, session_of, other
):
    script.offer(shared_plan)
    weaker = shared_plan.model_copy(update={"privacy": shared_plan.privacy.model_copy(update={"mixing_sigma": 4.0})})
    changes = {"dp_digest": b""} if other == "none" else {}
    made = []

    def once(plan, work):
        about = shared_plan if other == "none" else weaker
        made.append(session_of(cohort, about, work, 0, experiment=plan.digest(), **changes))
        return made[0]

    script.sums.make = once
    script.sums.ask(shared_plan)
    node = site.start()
    session = node.until(lambda: made[0] if made and made[0].aborted else None, 60)
    node.end()
    assert session.aborted.code.name == "BAD_CONFIG"
    assert "dp_digest" in node.text
    assert not session.answers
    assert release_of(site).state == "acknowledged"
