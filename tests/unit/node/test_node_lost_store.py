"""A store that is lost or old is missed at the next start, by the head beside the key; only a person gives it up."""

from __future__ import annotations

import json
import shutil
import stat
import threading

import pytest

from fedsecure.cli import run
from fedsecure.crypto.signatures import load_identity, public_identity_pem
from fedsecure.errors import ConfigError, LocalProtocolError, ReleaseLogError, StoreError
from fedsecure_node.assemble import open_log
from fedsecure_node.cli.first_steps import check_node, init_node
from fedsecure_node.cli.forgetting import forget_log
from fedsecure_node.cli.verification import verify_store
from fedsecure_node.log.chain import GENESIS, Head, canonical
from fedsecure_node.log.decisions import note
from fedsecure_node.settings import load_settings
from fedsecure_node.store.store import Store


def start(settings):
    """What a daemon does first."""
    with Store(settings.store) as store:
        return open_log(store, settings).recover()


def head_file(node):
    return node.settings.identity.with_suffix(".head")


def test_the_head_beside_the_key_follows_every_append(node, make_release):
    assert not head_file(node).exists()
    release, _ = make_release()
    for kind in ("sending", "acknowledged"):
        note(node.log, release.number, kind)
        assert json.loads(head_file(node).read_text()) == json.loads(node.store.head().to_json())
    assert stat.S_IMODE(head_file(node).stat().st_mode) == 0o600


def test_an_older_copy_of_the_store_is_found_though_it_is_whole_in_itself(node, make_release, tmp_path):
    release, _ = make_release()
    node.store.close()
    shutil.copytree(node.settings.store, tmp_path / "old")
    with Store(node.settings.store) as store:
        note(open_log(store, node.settings), release.number, "sending")
    shutil.rmtree(node.settings.store)
    shutil.copytree(tmp_path / "old", node.settings.store)
    public = load_identity(node.settings.identity).public_bytes
    assert len(verify_store(node.settings.store, public).records) == 1
    with pytest.raises(ReleaseLogError, match=r"record 2: is missing: the store has 1 record,") as caught:
        start(node.settings)
    assert "forget-log" in caught.value.hint
    with Store(node.settings.store) as store, pytest.raises(ReleaseLogError, match="record 2: is missing"):
        open_log(store, node.settings).records()


def test_an_empty_store_of_a_node_that_had_one_is_found(node, make_release):
    make_release()
    node.store.close()
    shutil.rmtree(node.settings.store)
    with pytest.raises(ReleaseLogError, match="record 1: is missing: the store has 0 records"):
        start(node.settings)


@pytest.mark.parametrize("text", ["", "{}", '{"seq": 1}', '{"hash":"00","length":1,"seq":1,"signature":"00"}'])
def test_a_head_that_is_none_or_forged_is_named(node, make_release, text):
    make_release()
    head_file(node).write_text(text)
    with pytest.raises(ReleaseLogError, match=r"identity\.head"):
        start(node.settings)


def test_a_head_that_fell_behind_catches_up(node, make_release):
    release, _ = make_release()
    old = head_file(node).read_bytes()
    note(node.log, release.number, "sending")
    for content in (old, None):
        head_file(node).write_bytes(content) if content else head_file(node).unlink()
        repaired = start(node.settings)
        assert ("identity.head: was missing; made anew" in repaired) == (content is None)
        assert start(node.settings) == ""
        assert json.loads(head_file(node).read_text())["seq"] == 2


def test_a_log_is_forgotten_only_by_a_person_and_says_so_for_ever(node, make_release):
    release, _ = make_release()
    with pytest.raises(LocalProtocolError, match="nothing to forget"):
        forget_log(node.settings, reason="why not", by="ada")
    with pytest.raises(ConfigError, match="a reason is needed"):
        forget_log(node.settings, reason=" \n", by="ada")
    lost = node.store.head()
    node.store.close()
    shutil.rmtree(node.settings.store)
    done = forget_log(node.settings, reason="the disk  died", by="ada")
    assert (done.by, done.reason, done.kept) == ("ada", "the disk died", "")
    assert start(node.settings) == ""
    found = verify_store(node.settings.store, load_identity(node.settings.identity).public_bytes)
    (record,) = found.records
    assert (record.seq, record.kind) == (1, "forgotten")
    assert record.body["lost"] == {"record": release.number, "hash": lost.hash}
    assert lost.hash != GENESIS
    assert found.forgotten["reason"] == "the disk died"
    with pytest.raises(LocalProtocolError, match="nothing to forget"):
        forget_log(node.settings, reason="again", by="ada")


def test_what_is_left_of_a_damaged_log_is_kept_beside_the_new_one(node, make_release):
    make_release()
    path = node.store.log_path
    path.write_bytes(damaged := path.read_bytes().replace(b"toy", b"toz"))
    done = forget_log(node.settings, reason="bits flipped", by="ada")
    assert "record 1" in done.fault
    assert path.with_name(done.kept).read_bytes() == damaged
    assert start(node.settings) == ""
    make_release("statistics")
    assert [r.kind for r in node.log.records()] == ["forgotten", "release"]


def test_a_store_that_vanishes_under_a_running_node_is_named(node, make_release, tmp_path):
    make_release()
    node.store.check_there()
    log = node.store.log_path
    log.rename(tmp_path / "log")
    with pytest.raises(StoreError, match=r"releases\.jsonl: vanished while the node ran"):
        node.store.check_there()
    (tmp_path / "log").rename(log)
    node.store.check_there()
    node.settings.store.rename(tmp_path / "store")
    with pytest.raises(StoreError, match="store: vanished while the node ran"):
        node.store.check_there()
    shutil.copytree(tmp_path / "store", node.settings.store)
    with pytest.raises(StoreError, match="replaced"):
        node.store.check_there()


@pytest.fixture
def site(node, tmp_path, make_release):
    """A node's folder with a store of one release, as the verbs see it."""
    folder = tmp_path / "site"
    init_node(folder, node="hospital-a", federation="heart-study", coordinator="localhost:1")
    for name in ("identity.key", "identity.pub"):
        (folder / name).unlink()
    shutil.copy2(node.settings.identity, folder / "identity.key")
    (folder / "identity.pub").write_bytes(public_identity_pem(load_identity(folder / "identity.key").public_bytes))
    make_release(hold=True)
    node.store.close()
    shutil.copytree(node.settings.store, folder / "store")
    shutil.copy2(head_file(node), folder / "identity.head")
    return folder


def store_finding(folder):
    return next(f for f in check_node(folder, None) if f.what == "store")


def test_check_looks_at_the_store(site):
    assert store_finding(site).line == "2 records of 1 release, whole and in order; no daemon uses it"
    (site / "store").chmod(0o755)
    assert "mode 0755 lets others look into it" in store_finding(site).line
    (site / "store").chmod(0o700)
    log = site / "store" / "releases.jsonl"
    log.write_bytes(good := log.read_bytes())
    log.write_bytes(good.replace(b"toy", b"toz"))
    assert isinstance(store_finding(site).error, ReleaseLogError)
    shutil.rmtree(site / "store")
    assert "record 2: is missing" in store_finding(site).line
    (site / "identity.head").unlink()
    assert store_finding(site).line == "not there yet; the first start makes it"


def test_the_verbs_name_a_lost_log_and_forget_it(site, capsys):
    shutil.rmtree(site / "store")
    at = ["--dir", str(site)]
    assert run(["node", "forget-log", "--reason", "the disk died", *at]) == 0
    assert "a new log begins" in capsys.readouterr().out
    assert run(["node", "verify-log", *at]) == 0
    out = capsys.readouterr().out
    assert "1 record of 0 releases" in out
    assert "an earlier log was forgotten by" in out
    assert run(["node", "forget-log", "--reason", "again", *at]) == 8
    assert "nothing to forget" in capsys.readouterr().err
    shutil.rmtree(site / "store")
    assert run(["node", "run", *at]) == 18
    assert "record 1: is missing" in capsys.readouterr().err
    assert not (site / "store").exists()


def test_the_first_head_may_come_long_after_the_record_that_it_names(site, capsys):
    """A slow disk keeps the record, the store and then the head."""
    head = site / "identity.head"
    head.rename(site / "kept")
    later = threading.Timer(0.3, lambda: (site / "kept").rename(head))
    later.start()
    assert run(["node", "verify-log", "--dir", str(site)]) == 0
    later.join()
    assert "2 records" in capsys.readouterr().out


def test_a_head_that_is_missing_is_named_by_every_check_until_a_start_makes_it_anew(site, capsys, monkeypatch):
    monkeypatch.setattr("fedsecure_node.cli.verification.FIRST_HEAD_S", 0.1)
    at = ["--dir", str(site)]
    (site / "identity.head").unlink()
    assert run(["node", "verify-log", *at]) == 18
    assert "identity.head: is missing, though the store has 2 records" in capsys.readouterr().err
    assert isinstance(store_finding(site).error, ReleaseLogError)
    assert "identity.head: was missing; made anew" in start(load_settings(site))
    assert run(["node", "verify-log", *at]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("head", ["there", "missing"])
def test_a_store_that_was_emptied_is_not_whole(site, capsys, head):
    at = ["--dir", str(site)]
    if head == "missing":
        (site / "identity.head").unlink()
    for path in (site / "store").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert run(["node", "verify-log", *at]) == 18
    assert "has no store.db" in capsys.readouterr().err
    shutil.rmtree(site / "store")
    assert run(["node", "verify-log", *at]) == (18 if head == "there" else 3)
    err = capsys.readouterr().err
    assert ("record 2: is missing: the store has 0 records" if head == "there" else "no store") in err


def test_a_node_that_never_released_anything_is_whole(site, capsys):
    shutil.rmtree(site / "store")
    (site / "identity.head").unlink()
    assert start(load_settings(site)) == ""
    assert run(["node", "verify-log", "--dir", str(site)]) == 0
    assert "0 records of 0 releases: whole" in capsys.readouterr().out


@pytest.mark.parametrize("change", [str.upper, lambda s: f"{s[:8]} {s[8:]}", lambda s: f" {s}"])
@pytest.mark.parametrize("where", ["line", "head", "beside"])
def test_another_spelling_of_a_signature_is_found(site, capsys, change, where):
    log, beside, at = site / "store" / "releases.jsonl", site / "identity.head", ["--dir", str(site)]
    if where == "line":
        first, rest = log.read_text().split("\n", 1)
        raw = json.loads(first)
        raw["signature"] = change(raw["signature"])
        log.write_bytes(canonical(raw) + b"\n" + rest.encode())
    else:
        raw = json.loads(beside.read_text())
        raw["signature"] = change(raw["signature"])
        if where == "beside":
            beside.write_bytes(canonical(raw))
        else:
            with Store(site / "store") as store:
                store.database.write("UPDATE meta SET value = ? WHERE key = 'log_head'", (canonical(raw).decode(),))
    assert run(["node", "verify-log", *at]) == 18
    err = capsys.readouterr().err
    assert {"line": "record 1: is not in canonical form", "head": "its head in the store", "beside": "identity.head"}[
        where
    ] in err


@pytest.mark.parametrize("change", [lambda s: s + "\n", lambda s: s.replace(",", ", "), lambda s: s[:-1] + ',"x":1}'])
def test_a_head_in_another_form_is_none(node, make_release, change):
    make_release()
    text = node.store.head().to_json()
    assert Head.from_json(text) == node.store.head()
    with pytest.raises(ReleaseLogError, match="malformed"):
        Head.from_json(change(text))
