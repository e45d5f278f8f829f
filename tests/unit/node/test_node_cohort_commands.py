"""``fedsecure node cohort``: from three public keys to a pin, and one clear line for all that must not be one."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3

import pytest
from institutions import NODES

from fedsecure.cli import run
from fedsecure.crypto.signatures import generate_identity, public_identity_pem
from fedsecure.secagg.cohort.comparison import spaced
from fedsecure.secagg.cohort.manifest import read_manifest, write_manifest
from fedsecure_node.assemble import open_log
from fedsecure_node.settings import load_settings
from fedsecure_node.store.store import Store


def test_three_nodes_sign_copies_merge_them_and_trust_the_whole(institutions, tmp_path):
    said = institutions.form()
    assert f"fedsecure node cohort sign {institutions.file}" in said
    copies = []
    for node in NODES:
        copies.append(tmp_path / f"{node}.json")
        shutil.copy(institutions.file, copies[-1])
        said = institutions.type("sign", copies[-1], at=node)
        assert said.index(institutions.identity("hospital-b").fingerprint) < said.index(f"signed by {node}")
        others = ", ".join(n for n in NODES if n != node)
        assert f"still to sign: {others}" in said
    whole = tmp_path / "whole.json"
    assert "signed by all" in institutions.type("merge", *copies, "--out", whole)
    manifest = read_manifest(whole)
    manifest.require_signed()
    assert [m.public_bytes for m in manifest.nodes] == [institutions.identity(n).public_bytes for n in NODES]
    digest = manifest.digest.hex()
    for node in NODES:
        assert institutions.pinned(node) == []
        assert "trusted by" in institutions.type("trust", whole, "--digest", spaced(digest).upper(), at=node)
        assert institutions.pinned(node) == [digest]
        assert "the same as" in institutions.type("verify", whole, at=node)
    assert "trusted already" in institutions.type("trust", whole, "--digest", digest)


def test_what_is_shown_names_everything_that_people_compare(institutions):
    manifest = institutions.agree()
    said = institutions.type("show", institutions.file)
    assert "cohort cardiology, version 1, of federation heart-study" in said
    assert spaced(manifest.digest.hex()) in said
    for node in NODES:
        assert f"  {node}  {institutions.identity(node).fingerprint}  signed" in said
    assert "needs 3 of 3 nodes to its end: none may drop out; a plan may ask for more" in said
    assert "colludes with at most 1 of the nodes" in said
    (shown,) = json.loads(institutions.type("show", institutions.file, "--json"))["cohorts"]
    assert (shown["digest"], shown["missing"]) == (manifest.digest.hex(), [])
    assert (shown["threshold"], shown["dropouts"], shown["colluders"]) == (3, 0, 1)
    assert "only 3 nodes" in shown["warnings"][0]
    assert "no cohort is trusted" in institutions.type("show")
    institutions.type("trust", institutions.file, "--digest", manifest.digest.hex())
    (pinned,) = json.loads(institutions.type("show", "--json"))["cohorts"]
    assert pinned["pinned_by"]
    assert {k: v for k, v in pinned.items() if k in shown} == shown
    assert (pinned["sums"], pinned["missed"], pinned["findings"]) == (0, {}, [])


def test_a_small_cohort_is_warned_of_and_one_of_five_is_not(institutions, tmp_path, capsys):
    institutions.form()
    run(["node", "cohort", "show", str(institutions.file)])
    assert "warning: cohort cardiology has only 3 nodes" in capsys.readouterr().err
    more = []
    for name in ("hospital-d", "hospital-e"):
        path = tmp_path / f"{name}.pub"
        path.write_bytes(public_identity_pem(generate_identity(tmp_path / f"{name}.key").public_bytes))
        more.append(f"--node={name}={path}")
    five = tmp_path / "five.json"
    institutions.form("five", *more, out=five)
    run(["node", "cohort", "show", str(five)])
    out, err = capsys.readouterr()
    assert err == ""
    assert "needs 4 of 5 nodes to its end: up to 1 may drop out" in out


def test_versions_rise_from_the_pin(institutions):
    first = institutions.agree()
    institutions.type("trust", institutions.file, "--digest", first.digest.hex())
    second = institutions.agree()
    assert (first.version, second.version) == (1, 2)
    institutions.type("trust", institutions.file, "--digest", second.digest.hex())
    assert institutions.pinned() == [second.digest.hex()]
    write_manifest(institutions.file, first)
    text = institutions.type("trust", institutions.file, "--digest", first.digest.hex(), code=6)
    assert "version 1 is older than version 2" in text
    assert "version 1 is older" in institutions.type("sign", institutions.file, code=6)
    institutions.file.unlink()
    assert "version 1 is older" in institutions.form("cardiology", "--version", "1", code=6)
    assert not institutions.file.exists()
    assert institutions.pinned() == [second.digest.hex()]


def test_the_same_nodes_under_another_name_are_refused(institutions):
    institutions.type("trust", institutions.file, "--digest", institutions.agree().digest.hex())
    institutions.file.unlink()
    text = institutions.form("radiology", code=6)
    assert "its nodes are pinned already, as cohort cardiology" in text
    assert "name cardiology and version 2" in text


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (["--digest", "12"], "digest '12' is malformed"),
        (["--digest", "0" * 64], "has the digest"),
        (["--fingerprint", "hospital-b"], "--fingerprint 'hospital-b' is not NODE=SHA256:…"),
        (["--fingerprint", "hospital-b=SHA256:12"], "fingerprint of hospital-b 'SHA256:12' is malformed"),
        (["--fingerprint", "hospital-b=" + "0" * 64], "names the key SHA256:"),
        (["--fingerprint", "hospital-x=" + "0" * 64], "node 'hospital-x' is not in version 1"),
        ([], "no terminal to ask for it"),
    ],
)
def test_nothing_is_trusted_without_a_comparison_that_holds(institutions, given, fault):
    institutions.agree()
    code = 3 if not given or fault.startswith("--") or "malformed" in fault else 6
    assert fault in institutions.type("trust", institutions.file, *given, code=code)
    assert institutions.pinned() == []


def test_fingerprints_of_all_others_are_as_good_as_the_digest(institutions):
    institutions.agree()
    given = {n: f"--fingerprint={n}={institutions.identity(n).fingerprint}" for n in NODES[1:]}
    text = institutions.type("trust", institutions.file, given["hospital-b"], code=6)
    assert "no fingerprint was given for hospital-c" in text
    institutions.type("trust", institutions.file, given["hospital-b"], given["hospital-b"], code=3)
    institutions.type("trust", institutions.file, *given.values(), "--digest", "0" * 64, code=6)
    assert institutions.pinned() == []
    institutions.type("trust", institutions.file, *given.values())
    assert len(institutions.pinned()) == 1


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_at_a_terminal_the_digest_is_asked_for(institutions, monkeypatch):
    digest = institutions.agree().digest.hex()
    monkeypatch.setattr("sys.stdin", Terminal("f" * 64 + "\n"))
    assert "has the digest" in institutions.type("trust", institutions.file, code=6)
    assert institutions.pinned() == []
    monkeypatch.setattr("sys.stdin", Terminal(spaced(digest) + "\n"))
    said = institutions.type("trust", institutions.file)
    assert said.index(institutions.identity("hospital-b").fingerprint) < said.index("trusted by")
    assert institutions.pinned() == [digest]


def test_nothing_is_trusted_that_is_not_signed_by_all(institutions):
    institutions.form()
    digest = read_manifest(institutions.file).digest.hex()
    assert "not signed by hospital-a, hospital-b, hospital-c" in institutions.type(
        "trust", institutions.file, "--digest", digest, code=6
    )
    institutions.type("sign", institutions.file)
    institutions.type("sign", institutions.file, at="hospital-c")
    assert "not signed by hospital-b" in institutions.type("trust", institutions.file, "--digest", digest, code=6)
    assert institutions.pinned() == []


def test_a_changed_manifest_is_noticed_by_every_verb(institutions, tmp_path):
    institutions.agree()
    raw = json.loads(institutions.file.read_text())
    raw["nodes"][1]["key"] = generate_identity(tmp_path / "sybil.key").public_bytes.hex()
    institutions.file.write_text(json.dumps(raw))
    for words in (("show",), ("sign",), ("trust", "--digest", "0" * 64)):
        text = institutions.type(words[0], institutions.file, *words[1:], code=6)
        assert "the signature of node hospital-a is not by its key over this manifest" in text
    assert "signature of node" in institutions.type("merge", institutions.file, "--out", tmp_path / "m.json", code=6)
    assert json.loads(institutions.file.read_text()) == raw


def test_a_node_signs_no_manifest_with_another_key_of_its_own(institutions, tmp_path):
    stolen = tmp_path / "stolen.pub"
    stolen.write_bytes(public_identity_pem(generate_identity(tmp_path / "stolen.key").public_bytes))
    given = (f"--node=hospital-a={stolen}", f"--node=hospital-b={institutions.key('hospital-b')}")
    institutions.type("form", "cardiology", *given, "--out", institutions.file, at="hospital-c")
    before = institutions.file.read_bytes()
    text = institutions.type("sign", institutions.file, code=6)
    assert "for this node hospital-a, whose own is" in text
    assert "do not sign" in text
    assert institutions.file.read_bytes() == before
    institutions.type("sign", institutions.file, at="hospital-b")


def test_copies_of_different_content_do_not_merge(institutions, tmp_path):
    institutions.form()
    other = tmp_path / "other.json"
    institutions.form("cardiology", "--version", "2", out=other)
    out = tmp_path / "merged.json"
    text = institutions.type("merge", institutions.file, other, "--out", out, code=6)
    assert f"{other}: cohort cardiology: the two copies of the manifest differ" in text
    assert "(version 2 instead of 1)" in text
    assert not out.exists()
    out.write_text("kept")
    assert "exists already" in institutions.type("merge", institutions.file, "--out", out, code=3)
    assert out.read_text() == "kept"
    institutions.type("merge", institutions.file, "--out", institutions.file)


def test_verify_says_how_a_file_differs_from_the_pin(institutions):
    assert "is trusted by node hospital-a" in institutions.type("verify", code=3)
    first = institutions.agree()
    institutions.type("trust", institutions.file, "--digest", first.digest.hex())
    found = json.loads(institutions.type("verify", institutions.file, "--json"))
    assert found["ok"] is True
    assert [(c["version"], c["compared"]) for c in found["cohorts"]] == [(1, [str(institutions.file)])]
    institutions.agree("--version", "2")
    text = institutions.type("verify", institutions.file, code=6)
    assert "another manifest than this node has pinned: version 2 instead of 1" in text
    institutions.file.write_bytes(institutions.file.read_bytes().replace(b"cardiology", b"radiology"))
    assert "cohort radiology is not trusted" in institutions.type("verify", institutions.file, code=3)
    with sqlite3.connect(institutions.folder("hospital-a") / "store" / "store.db") as connection:
        connection.execute("UPDATE pins SET manifest = CAST('{}' AS BLOB)")
    connection.close()
    assert "pin of cohort cardiology: damaged or changed" in institutions.type("verify", code=19)
    assert "pin of cohort cardiology: damaged or changed" in institutions.type("show", code=19)


@pytest.mark.parametrize(
    ("words", "fault", "code"),
    [
        (["--node", "hospital-b"], "--node 'hospital-b' is not NODE=identity.pub", 3),
        (["--node", "=x"], "is not NODE=identity.pub", 3),
        (["--node", "hospital-b={b}", "--node", "hospital-b={b}"], "node hospital-b is given twice", 3),
        (["--node", "hospital-a={b}"], "is this node itself", 3),
        (["--node", "hospital-b=absent.pub"], "absent.pub: no such file", 6),
        (["--node", "hospital-b={b}"], "has too few entries", 3),
        (["--node", "hospital-b={b}", "--node", "hospital-c={b}"], "is there twice", 3),
        (["--node", "hospital-b={b}", "--node", "Hospital C={c}"], "is not a node id", 3),
        (["--node", "hospital-b={b}", "--node", "hospital-c={c}", "--version", "0"], "out of range", 3),
        (["--node", "hospital-b={b}", "--node", "hospital-c={key}"], "not a public identity key", 6),
    ],
)
def test_what_cannot_be_formed_is_one_line_and_no_file(institutions, words, fault, code):
    places = {"b": institutions.key("hospital-b"), "c": institutions.key("hospital-c")}
    places["key"] = institutions.folder("hospital-b") / "node.toml"
    given = [word.format(**places) for word in words]
    assert fault in institutions.type("form", "cardiology", *given, "--out", institutions.file, code=code)
    assert not institutions.file.exists()


def test_a_file_that_is_there_is_not_overwritten(institutions):
    institutions.file.write_text("mine")
    assert "exists already" in institutions.form(code=3)
    assert institutions.file.read_text() == "mine"


def test_a_malformed_file_or_name_is_one_line(institutions):
    assert "a cohort's name" in institutions.form("Cardio Logy", code=3)
    for text, fault in (("{", "JSON"), ("{}", "format: missing"), (" " * 200_000, "larger than")):
        institutions.file.write_text(text)
        for verb in ("show", "sign", "trust", "verify"):
            assert fault in institutions.type(verb, institutions.file, code=3)


def test_errors_for_machines(institutions):
    institutions.form()
    fault = json.loads(institutions.type("trust", institutions.file, "--digest", "0" * 64, "--json", code=6))
    assert (fault["error"], fault["exit_code"]) == ("CertificateError", 6)
    assert fault["hint"]
    fault = json.loads(institutions.type("trust", institutions.file, "--json", code=6))
    assert "not signed by" in fault["message"]
    signed = json.loads(institutions.type("sign", institutions.file, "--json"))
    assert (signed["signed_by"], signed["missing"]) == ("hospital-a", ["hospital-b", "hospital-c"])


def test_fetching_without_a_certificate_or_digest_writes_nothing(institutions):
    assert "digest 'abc' is malformed" in institutions.type("fetch", "abc", "--out", institutions.file, code=3)
    assert "tls.crt" in institutions.type("fetch", "0" * 64, "--out", institutions.file, code=6)
    assert not institutions.file.exists()


def test_who_was_missing_from_the_sums_is_told_from_the_log(institutions):
    manifest = institutions.agree()
    institutions.type("trust", institutions.file, "--digest", manifest.digest.hex())
    settings = load_settings(institutions.folder("hospital-a"))
    cohort = {"name": "cardiology", "nodes": list(NODES)}
    with Store(settings.store) as store:
        log = open_log(store, settings)
        for round_, survivors in enumerate((NODES, NODES[:2], NODES)):
            body = {
                "plan": {"digest": "d" * 64, "name": "toy", "method": "fedaf"},
                "payload": {"sha256": "e" * 64},
                "round": round_,
                "step": 0,
                "attempt": 0,
                "exchange": "local",
                "secagg": {"cohort": cohort},
            }
            number = log.append("release", body, only_if=lambda _: None).seq
            for kind in ("sending", "acknowledged", "masked"):
                log.append(kind, {"release": number}, only_if=lambda _: None)
            log.append("unmasked", {"release": number, "survivors": list(survivors)}, only_if=lambda _: None)
    said = institutions.type("show")
    assert "node hospital-c: missing from 1 sum of 3 that this node is inside" in said
    assert "warning: 2 pairs of successive rounds differ by node hospital-c alone" in said
    (shown,) = json.loads(institutions.type("show", "--json"))["cohorts"]
    assert (shown["sums"], shown["missed"]) == (3, {"hospital-c": 1})
    assert shown["own"] == {"contributed": 3, "sums": 3, "left_out": [], "unknown": []}
    with Store(settings.store) as store:
        log = open_log(store, settings)
        number = log.append("release", {**body, "round": 3}, only_if=lambda _: None).seq
        announced = {"transcript3": "0" * 64, "survivors": list(NODES[1:])}
        for kind, more in (
            ("sending", {}),
            ("acknowledged", {}),
            ("closed", {"went_on": True, "announced": announced}),
        ):
            log.append(kind, {"release": number, **more}, only_if=lambda _: None)
    said = institutions.type("show")
    assert "this node contributed 4 times and was in 3 sums; left out of: toy, round 4 local" in said
    (shown,) = json.loads(institutions.type("show", "--json"))["cohorts"]
    assert shown["own"]["left_out"] == ["toy, round 4 local"]
    path = settings.store / "releases.jsonl"
    path.write_bytes(path.read_bytes().replace(b"hospital-b", b"hospital-x", 1))
    assert "record 1" in institutions.type("show", code=18)
