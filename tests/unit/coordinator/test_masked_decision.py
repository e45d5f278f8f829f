"""Whether a run is masked: decided once, by plan and manifest, and kept."""

from __future__ import annotations

import shutil

import pytest

from fedsecure.cli import run as command
from fedsecure.crypto.signatures import generate_identity
from fedsecure.errors import StoreError
from fedsecure.plan.examples import read_example
from fedsecure.secagg.cohort.manifest import CohortManifest, write_manifest
from fedsecure.tensors import Tensors
from fedsecure_coordinator.masking.views import MASKING_WORDS
from fedsecure_coordinator.store.journal import Journal
from fedsecure_coordinator.views.card import model_card
from fedsecure_coordinator.views.runs import run_view
from fedsecure_coordinator.views.status import status_lines


def cohort_of_its_exchange(run, digest):
    work = run.office.desk.next_work("a", [digest], 0, lambda: False)
    assert work.slot is not None
    return work.cohort


def reopened(run, open_office):
    run.office.sessions.close()
    office = open_office()
    office.preparer.take_up()
    return type(run)(office, run.manifest, run.nodes)


def test_required_without_a_manifest_ends_the_run_at_once_and_names_the_fix(masked_run, masked_plan):
    run = masked_run("abcd")
    digest = run.office.submit(masked_plan("abce"))
    row = run.office.registry.ended()[digest]
    assert row.phase == "ABORTED"
    assert row.reason.startswith(
        "secagg: secagg is 'required', and there is no manifest here of exactly a, b, c, e that all of them signed: "
        "fedsecure coordinator cohort add FILE"
    )


def test_submit_refuses_what_would_end_at_once_but_not_a_run_that_is_known(tmp_path, capsys):
    names = tuple(f"node-{number}" for number in range(1, 6))
    identities = {name: generate_identity(tmp_path / f"{name}.key") for name in names}
    keys = {name: identity.public_bytes for name, identity in identities.items()}
    manifest = CohortManifest.form("heart", "cardiology", 1, keys)
    for name, identity in identities.items():
        manifest = manifest.signed(name, identity)
    write_manifest(tmp_path / "whole.json", manifest)
    text = read_example("digits-fedspm-masked")
    folder = ("--dir", str(tmp_path / "c"))

    def call(*words, code=0):
        assert command(["coordinator", *words, *folder]) == code, capsys.readouterr()
        return "".join(capsys.readouterr())

    call("init", "--federation", "heart", "--dns", "localhost")
    for secagg, refused in (("off", False), ("optional", False), ("required", True)):
        plan = tmp_path / f"{secagg}.toml"
        plan.write_text(text.replace('secagg = "required"', f'secagg = "{secagg}"'))
        said = call("submit", str(plan), code=3 if refused else 0)
    assert said.startswith("error: plan ")
    assert "there is no manifest here of exactly node-1, node-2, node-3, node-4, node-5 that all" in said
    assert "hint: fedsecure coordinator cohort add FILE, then submit it again" in said
    call("cohort", "add", str(tmp_path / "whole.json"))
    call("submit", str(plan))
    shutil.rmtree(tmp_path / "c" / "store" / "cohorts")
    assert "known already" in call("submit", str(plan))


@pytest.mark.parametrize(
    ("secagg", "names", "masked"),
    [
        ("required", "abcd", True),
        ("optional", "abcd", True),
        ("optional", "abce", False),  # no manifest of exactly these nodes
        ("off", "abcd", False),
    ],
)
def test_plan_and_manifest_decide(masked_run, masked_plan, open_office, secagg, names, masked):
    run = masked_run("abcd")
    digest = run.office.submit(masked_plan(names, secagg=secagg))
    for name in names:
        run.office.desk.join(name, digest)
    due = run.manifest.digest.hex() if masked else ""
    assert cohort_of_its_exchange(run, digest) == due
    assert run.office.journal.cohort(digest) == due
    assert cohort_of_its_exchange(reopened(run, open_office), digest) == due


def test_what_was_decided_stays_when_a_manifest_comes_or_a_newer_one(masked_run, masked_plan, open_office):
    from fedsecure.secagg.cohort.manifest import CohortManifest

    run = masked_run("abcd")
    office = run.office
    plain = office.submit(masked_plan("abce", secagg="optional", name="plain"))
    masked = office.submit(masked_plan("abcd", secagg="optional", name="masked"))
    for name in "abce":
        office.desk.join(name, plain)
    for name in "abcd":
        office.desk.join(name, masked)
    identities = {name: node.identity for name, node in run.nodes.items()}
    other = {**identities, "e": identities["d"]}
    del other["d"]
    for cohort, version, keys in (("other", 1, other), (run.manifest.cohort, 2, identities)):
        made = CohortManifest.form("test.example", cohort, version, {n: i.public_bytes for n, i in keys.items()})
        for name, identity in keys.items():
            made = made.signed(name, identity)
        assert office.cohorts.add(made, federation="test.example")
    again = reopened(run, open_office)
    assert cohort_of_its_exchange(again, plain) == ""
    assert cohort_of_its_exchange(again, masked) == run.manifest.digest.hex()


def test_a_manifest_that_is_gone_is_a_fault_of_the_store_and_ends_no_run(
    masked_run, masked_plan, open_office, tmp_path
):
    run = masked_run("abcd")
    digest = run.open(masked_plan())
    run.office.sessions.close()
    held = tmp_path / "cohorts" / f"{run.manifest.digest.hex()}.json"
    text = held.read_bytes()
    held.unlink()
    office = open_office()
    with pytest.raises(StoreError, match=r"the manifest .* that its run is masked under is gone"):
        office.preparer.take_up()
    held.write_bytes(text)
    office.preparer.take_up()
    assert office.registry.run(digest) is not None


def test_sums_that_cannot_be_masked_end_the_run_with_the_tensor_s_name(masked_run, masked_plan, toy):
    from dataclasses import replace

    class Endless(toy.method):
        def schema(self, exchange):
            schema = super().schema(exchange)
            return replace(schema, summed=(replace(schema.summed[0], high=float("inf")),))

    run = masked_run("abcd", method=Endless())
    digest = run.office.submit(masked_plan())
    assert run.office.registry.ended()[digest].reason.startswith(
        "secagg: secagg is 'required', and the sums cannot be masked: tensor x: without a finite range"
    )


def test_an_exchange_that_sums_nothing_needs_no_session(masked_run, masked_plan, toy):
    from dataclasses import replace

    class Mixed(toy.method):
        """The first exchange is summed, the second only released."""

        def schema(self, exchange):
            schema = super().schema(exchange)
            return schema if exchange == "one" else replace(schema, summed=())

        def server_update(self, exchange, server, aggregate, ctx):
            return super().server_update(exchange, server, aggregate, ctx) if exchange == "one" else server

    run = masked_run("abcd", method=Mixed(("one", "two")))
    office = run.office
    digest = run.open(masked_plan(rounds=1))
    run.pump(digest, lambda: run.ended(digest))
    assert run.ended(digest).phase == "COMPLETED"
    asked = {(len(cohort), bool(result)) for _, _, cohort, result in run.results}
    assert asked == {(64, False), (0, True)}  # the second announces the sum that its broadcast came from
    assert office.journal.masked_sum(digest, 0, "two", 0) is None


def test_the_card_says_that_sums_were_masked(masked_run, masked_plan):
    run = masked_run("abcd")
    plan = masked_plan(rounds=1)
    digest = run.open(plan)
    run.pump(digest, lambda: run.ended(digest))
    row = run.ended(digest)
    state = Tensors.from_bytes(run.office.blobs.get(row.server))
    view = run_view(run.office.journal, row)
    card = model_card(plan, view, state)
    assert f"masked, by the cohort whose manifest is `{run.manifest.digest.hex()[:16]}…`" in card
    assert "as sums over at least 3 nodes, never as one node's own" in card
    assert "as sums over at least 4 nodes," in model_card(plan, {**view, "min_nodes": 4}, state)
    assert "| Sums |" not in model_card(plan, {**view, "cohort": ""}, state)


def test_the_log_names_the_fewest_nodes_of_a_sum(masked_run, masked_plan):
    run = masked_run("abcd")
    digest = run.open(masked_plan(rounds=1, min_nodes=4))
    run.pump(digest, lambda: run.ended(digest))
    (detail,) = (n.detail for n in run.office.notices if n.kind == "session")
    assert (detail["threshold"], detail["least"]) == (3, 4)
    assert MASKING_WORDS["session"](detail).endswith("with a, b, c, d; no sum is over fewer than 4")


def test_status_shows_where_a_session_stands(masked_run, masked_plan, tmp_path):
    run = masked_run("abcd")
    office = run.office
    digest = run.open(masked_plan())
    run.vanish |= dict.fromkeys("abc", 2) | {"d": 1}
    run.pump(digest, lambda: len([n for n in office.notices if n.kind == "session-leg"]) == 2)
    row = office.registry.run(digest).row
    reader = Journal(tmp_path / "journal.sqlite", "read")
    view = run_view(reader, row)
    reader.close()
    assert view["session"]["dropped"] == {"d": "did not share secrets in time"}
    shown = list(status_lines({"federation": "f", "listen": "l", "daemon": "running", "runs": [view]}))
    assert "    one: aggregating 4 contributions, session 1: masked vectors (leg 2), asked of a, b, c; out: d" in shown
