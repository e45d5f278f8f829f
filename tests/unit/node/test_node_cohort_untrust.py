"""A person takes the trust in a cohort back: at once, whatever state its pin is in, and in the log."""

from __future__ import annotations

import json
import sqlite3

import pytest
from institutions import NODES

from fedsecure.cli import run
from fedsecure.crypto.signatures import generate_identity, public_identity_pem
from fedsecure.errors import ConfigError, ReleaseLogError
from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure_node.assemble import open_log
from fedsecure_node.cli import cohort_pinning
from fedsecure_node.cli.cohort_pinning import pin, unpin
from fedsecure_node.cli.cohort_steps import Site
from fedsecure_node.masking.pins import Pins
from fedsecure_node.settings import load_settings
from fedsecure_node.store.store import Store


def records(institutions, node="hospital-a"):
    settings = load_settings(institutions.folder(node))
    with Store(settings.store, create=False) as store:
        return open_log(store, settings).records()


def site(institutions, node="hospital-a"):
    return Site.at(institutions.folder(node))


def node_command(institutions, capsys, *words):
    capsys.readouterr()
    assert run(["node", *words, "--dir", str(institutions.folder("hospital-a"))]) == 0
    return capsys.readouterr().out


def test_trust_is_taken_back_and_both_are_in_the_log(institutions, capsys):
    manifest = institutions.trusted()
    digest = manifest.digest.hex()
    said = institutions.type("untrust", "cardiology", "--reason", "  its key was\nstolen ")
    assert f"cohort cardiology, version 1, {digest[:12]}: no longer trusted by " in said
    assert ": its key was stolen" in said
    assert "BAD_COHORT" in said
    assert institutions.pinned() == []
    trusted, untrusted = records(institutions)
    assert (trusted.kind, untrusted.kind) == ("trusted", "untrusted")
    assert [entry["node"] for entry in trusted.body["nodes"]] == list(NODES)
    assert trusted.body["nodes"][1]["fingerprint"] == institutions.identity("hospital-b").fingerprint
    for record in (trusted, untrusted):
        assert (record.body["cohort"], record.body["version"], record.body["digest"]) == ("cardiology", 1, digest)
        assert record.body["by"]
    assert untrusted.body["reason"] == "its key was stolen"
    assert "2 records of 0 releases and 2 decisions on cohorts: whole" in node_command(
        institutions, capsys, "verify-log"
    )
    assert json.loads(node_command(institutions, capsys, "verify-log", "--json"))["cohorts"] == 2
    said = node_command(institutions, capsys, "releases")
    assert said.startswith("nothing was released\n    1  ")
    assert "version 1, " + digest[:12] + ": no longer trusted by" in said.splitlines()[2]
    shown = json.loads(node_command(institutions, capsys, "releases", "--json"))["cohorts"]
    assert [(each["record"], each["kind"]) for each in shown] == [(1, "trusted"), (2, "untrusted")]


def test_for_machines(institutions):
    digest = institutions.trusted().digest.hex()
    told = json.loads(institutions.type("untrust", "cardiology", "--json"))
    assert (told["record"], told["kind"], told["cohort"], told["digest"]) == (2, "untrusted", "cardiology", digest)
    fault = json.loads(institutions.type("untrust", "cardiology", "--json", code=3))
    assert "cohort 'cardiology' is not trusted by node hospital-a" in fault["message"]


@pytest.mark.parametrize("name", ["radiology", "../x", "", "\x1b[31m"])
def test_what_is_not_trusted_cannot_be_taken_back(institutions, name):
    institutions.trusted()
    assert "is not trusted by node hospital-a" in institutions.type("untrust", name, code=3)
    assert len(institutions.pinned()) == 1
    assert [r.kind for r in records(institutions)] == ["trusted"]


def test_without_a_store_nothing_is_made(institutions):
    assert "no store yet" in institutions.type("untrust", "cardiology", code=3)
    assert not load_settings(institutions.folder("hospital-a")).store.exists()


def test_it_can_be_trusted_again_but_nothing_older(institutions):
    first = institutions.trusted()
    second = institutions.trusted()
    assert (first.version, second.version) == (1, 2)
    institutions.type("untrust", "cardiology")
    old = institutions.root / "old.json"
    old.write_text(first.model_dump_json())
    text = institutions.type("trust", old, "--digest", first.digest.hex(), code=6)
    assert "version 1 is older than version 2, which this node's last pin has" in text
    institutions.type("trust", institutions.file, "--digest", second.digest.hex())
    assert institutions.pinned() == [second.digest.hex()]
    assert "trusted already" in institutions.type("trust", institutions.file, "--digest", second.digest.hex())
    assert [r.kind for r in records(institutions)] == ["trusted", "trusted", "untrusted", "trusted"]
    institutions.type("untrust", "cardiology")
    assert institutions.agree().version == 3


def test_whoever_asks_for_it_is_told_that_it_was_taken_back(institutions):
    institutions.trusted()
    institutions.type("untrust", "cardiology")
    settings = load_settings(institutions.folder("hospital-a"))
    own = institutions.identity("hospital-a").public_bytes
    with Store(settings.store) as store:
        pins = Pins(store, node="hospital-a", federation="heart-study", public_bytes=own)
        with pytest.raises(ConfigError, match="cohort cardiology, of exactly .* is no longer trusted by") as caught:
            pins.for_nodes(NODES)
        assert "fedsecure node cohort trust" in caught.value.hint
        with pytest.raises(ConfigError, match="no cohort of exactly the nodes"):
            pins.for_nodes((*NODES, "hospital-d"))


def test_a_damaged_pin_can_be_taken_back_and_replaced(institutions):
    manifest = institutions.trusted()
    path = institutions.folder("hospital-a") / "store" / "store.db"
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE pins SET manifest = CAST('{}' AS BLOB)")
    connection.close()
    assert "damaged or changed" in institutions.type("show", code=19)
    institutions.type("untrust", "cardiology")
    assert institutions.pinned() == []
    institutions.type("trust", institutions.file, "--digest", manifest.digest.hex())
    assert institutions.pinned() == [manifest.digest.hex()]


def test_a_log_that_does_not_verify_ends_trust_and_lets_none_begin(institutions):
    institutions.trusted()
    path = institutions.folder("hospital-a") / "store" / "releases.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"hospital-b", b"hospital-x", 1))
    text = institutions.type("untrust", "cardiology", code=18)
    assert "cohort cardiology is no longer trusted, but the log has no record of that: release log, record 1" in text
    assert pinned_rows(institutions) == 0
    manifest = CohortManifest.model_validate_json(institutions.file.read_bytes())
    institutions.type("trust", institutions.file, "--digest", manifest.digest.hex(), code=18)
    assert pinned_rows(institutions) == 0
    path.write_bytes(whole)
    institutions.type("untrust", "cardiology", "--reason", "again")  # which the log had missed
    assert [r.kind for r in records(institutions)] == ["trusted", "untrusted"]
    institutions.type("untrust", "cardiology", code=3)


def pinned_rows(institutions):
    settings = load_settings(institutions.folder("hospital-a"))
    with Store(settings.store) as store:
        return len(store.pins.all())


def test_a_failure_between_log_and_pin_is_made_good_by_the_same_verb(institutions, monkeypatch):
    manifest = institutions.agree()
    with monkeypatch.context() as broken:
        broken.setattr(Pins, "pin", lambda *_, **__: (_ for _ in ()).throw(ReleaseLogError("the power failed")))
        with pytest.raises(ReleaseLogError):
            pin(site(institutions), manifest, by="dr-a")
    assert [r.kind for r in records(institutions)] == ["trusted"]
    assert institutions.pinned() == []
    assert pin(site(institutions), manifest, by="dr-a") is True
    assert [r.kind for r in records(institutions)] == ["trusted"]
    with monkeypatch.context() as broken:
        broken.setattr(cohort_pinning, "_note", lambda *_: (_ for _ in ()).throw(ReleaseLogError("the power failed")))
        with pytest.raises(ReleaseLogError):
            unpin(site(institutions), "cardiology", by="dr-a", reason="")
    assert institutions.pinned() == []
    assert unpin(site(institutions), "cardiology", by="dr-b", reason="").body["by"] == "dr-b"
    assert [r.kind for r in records(institutions)] == ["trusted", "untrusted"]


def test_trust_warns_of_a_cohort_that_shares_nodes_and_trusts_all_the_same(institutions, tmp_path, capsys):
    institutions.trusted()
    identity = generate_identity(tmp_path / "hospital-d.key")
    (tmp_path / "d.pub").write_bytes(public_identity_pem(identity.public_bytes))
    given = (f"--node=hospital-b={institutions.key('hospital-b')}", f"--node=hospital-d={tmp_path / 'd.pub'}")
    other = tmp_path / "other.json"
    institutions.type("form", "radiology", *given, "--out", other)
    manifest = CohortManifest.model_validate_json(other.read_bytes()).signed("hospital-d", identity)
    for node in NODES[:2]:
        manifest = manifest.signed(node, institutions.identity(node))
    other.write_text(manifest.model_dump_json())
    words = ["node", "cohort", "trust", str(other), "--digest", manifest.digest.hex()]
    where = ["--dir", str(institutions.folder("hospital-a"))]
    told = json.loads(institutions.type(*words[2:], "--json"))
    assert told["new"] is True
    assert [line.split(",")[0] for line in told["overlaps"]] == [
        "cohort radiology shares 2 nodes with cohort cardiology"
    ]
    capsys.readouterr()
    assert run([*words, *where]) == 0
    out, err = capsys.readouterr()
    assert f"warning: {told['overlaps'][0]}\n" in err
    assert "can differ by 2 nodes alone, where 3 are to hide each other" in err
    assert out.endswith("trusted already\n")
    institutions.type("untrust", "cardiology")
    assert run([*words, *where]) == 0
    assert "shares" not in capsys.readouterr().err
