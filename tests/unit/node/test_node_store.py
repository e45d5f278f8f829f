"""The node's store: private, durable, one daemon, and no contribution computed twice."""

from __future__ import annotations

import os
import stat

import numpy as np
import pytest

from fedsecure.errors import ConfigError, RemoteProtocolError, StoreError
from fedsecure.tensors import Tensors
from fedsecure.wire.codec import encode_contribution
from fedsecure_node.keys import ExchangeKey
from fedsecure_node.store.store import Store


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_everything_in_the_store_is_private_whatever_the_umask(tmp_path):
    old = os.umask(0)
    try:
        with Store(tmp_path / "store") as store:
            store.database.write("INSERT INTO meta VALUES ('a', 'b')")
            for path in [store.folder, *store.folder.rglob("*")]:
                assert mode(path) == (0o700 if path.is_dir() else 0o600), path
    finally:
        os.umask(old)


def test_releases_and_log_are_private(node, make_release):
    make_release()
    for path in node.settings.store.rglob("*"):
        assert mode(path) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("loose", [0o750, 0o705, 0o777])
def test_a_folder_that_others_can_look_into_is_refused(tmp_path, loose):
    (tmp_path / "store").mkdir()
    (tmp_path / "store").chmod(loose)
    with pytest.raises(StoreError, match="lets others look") as caught:
        Store(tmp_path / "store")
    assert "chmod 700" in caught.value.hint


def test_a_link_or_a_file_in_place_of_the_store_is_refused(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").write_text("")
    for name in ("link", "file"):
        with pytest.raises(StoreError, match="is not a folder"):
            Store(tmp_path / name)


def test_a_damaged_or_newer_database_is_one_clear_line(tmp_path):
    with Store(tmp_path / "store") as store:
        store.database.write("UPDATE meta SET value = '99' WHERE key = 'format'")
    with pytest.raises(StoreError, match="format 99"):
        Store(tmp_path / "store")
    (tmp_path / "store" / "store.db").write_bytes(b"not a database at all, by any means" * 100)
    with pytest.raises(StoreError, match="cannot be used"):
        Store(tmp_path / "store")


def test_no_store_yet(tmp_path):
    with pytest.raises(ConfigError, match="no store yet"):
        Store(tmp_path / "store", create=False)


def test_private_seeds_differ_and_stay(node, plan_of):
    other = plan_of(name="second")
    node.store.plans.record(other, other.digest(), "joining", 1)
    node.store.runs.join(other.digest(), 2)
    first, second = (node.store.runs.private_seed(p.digest()) for p in (node.plan, other))
    assert first != second
    node.store.runs.join(node.plan.digest(), 99)
    assert node.store.runs.private_seed(node.plan.digest()) == first
    with Store(node.settings.store) as again:
        assert again.runs.private_seed(node.plan.digest()) == first


def finish(node, round_, exchange="condensation", attempt=0, value=0):
    key = node.key(exchange, round_, attempt)
    before, local = node.store.runs.local_for(key)
    payload = encode_contribution(node.contribution(exchange, round_))
    after = Tensors({"images": np.full(3, value, np.float32)})
    node.store.runs.finish(key, broadcast="b" * 64, payload=payload, before=before, local=after, now_ms=1)
    return local, payload


def test_a_finished_contribution_outlives_the_process_bit_for_bit(node):
    _, payload = finish(node, 0)
    with Store(node.settings.store) as again:
        done = again.runs.finished(node.key("condensation", 0))
        assert again.runs.payload(done) == payload
        assert again.runs.finished(node.key("condensation", 1)) is None
        path = again.runs.payload_path(done.payload)
        path.write_bytes(path.read_bytes()[:-1] + b"x")
        with pytest.raises(StoreError, match="damaged or changed"):
            again.runs.payload(done)


def test_local_state_goes_on_and_a_second_attempt_starts_where_the_first_did(node):
    assert finish(node, 0, value=1)[0] == Tensors()
    assert finish(node, 1, value=2)[0]["images"][0] == 1
    assert finish(node, 1, attempt=1, value=3)[0]["images"][0] == 1
    key = ExchangeKey(node.plan.digest(), 2, 0, 0, "statistics")
    assert node.store.runs.local_for(key)[1]["images"][0] == 3
    finish(node, 2, "statistics", value=4)
    kept = {p.stem for p in (node.settings.store / "local").iterdir()}
    assert len(kept) == 2  # before and after the last exchange; older states are gone


def test_the_coordinator_cannot_go_back_or_ask_for_ever(node):
    finish(node, 1, "statistics")
    runs = node.store.runs
    runs.check_order(node.key("statistics", 1))
    runs.check_order(node.key("condensation", 1))
    for key in (node.key("condensation", 0), node.key("statistics", 0, 2)):
        with pytest.raises(RemoteProtocolError, match="before the last one answered"):
            runs.check_order(key)
    with pytest.raises(RemoteProtocolError, match="attempt 4"):
        runs.check_order(node.key("statistics", 1, 3))


def test_a_run_ends_once(node):
    runs, digest = node.store.runs, node.plan.digest()
    assert runs.active() == [digest]
    runs.end(digest, "aborted", "quorum", 17, 5)
    runs.end(digest, "completed", "", 0, 6)
    run = runs.find(digest)
    assert (run.state, run.reason, run.exit_code, run.ended_ms) == ("aborted", "quorum", 17, 5)
    assert runs.active() == []
