"""Pins: only what all signed, only upwards, only with the node's own key; durable, and checked whenever they are
read."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fedsecure.crypto.signatures import generate_identity
from fedsecure.errors import CertificateError, ConfigError, StoreError
from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure_node.masking.pins import Pins
from fedsecure_node.store.store import Store

NODES = ("hospital-a", "hospital-b", "hospital-c")


@pytest.fixture
def identities(tmp_path):
    return {name: generate_identity(tmp_path / f"{name}.key") for name in (*NODES, "hospital-d")}


@pytest.fixture
def agreed(identities):
    """agreed("cardiology", 1): a manifest of the three nodes that all of them signed."""

    def make(cohort="cardiology", version=1, *, federation="heart-study", nodes=NODES, keys=(), signers=None):
        public = {name: identities[name].public_bytes for name in nodes} | dict(keys)
        manifest = CohortManifest.form(federation, cohort, version, public)
        for name in nodes if signers is None else signers:
            manifest = manifest.signed(name, identities[name])
        return manifest

    return make


@pytest.fixture
def store_folder(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def open_pins(store_folder, identities):
    stores = []

    def open_(node="hospital-a", federation="heart-study"):
        stores.append(Store(store_folder))
        return Pins(stores[-1], node=node, federation=federation, public_bytes=identities[node].public_bytes)

    yield open_
    for store in stores:
        store.close()


def held(pins):
    return [manifest for manifest, _ in pins.held()]


def test_what_was_pinned_is_found_by_its_nodes_and_digest_also_later(open_pins, agreed):
    manifest = agreed()
    assert open_pins().pin(manifest, by="dr-a") is True
    pins = open_pins()
    assert pins.for_nodes(reversed(NODES)) == manifest
    assert pins.by_digest(manifest.digest.hex()) == manifest
    ((_, row),) = pins.held()
    assert (row.cohort, row.version, row.pinned_by, row.replaced_ms) == ("cardiology", 1, "dr-a", None)
    assert pins.pin(manifest) is False
    assert [r.pinned_by for _, r in pins.held()] == ["dr-a"]


def test_nothing_is_found_that_was_not_pinned(open_pins, agreed):
    pins = open_pins()
    pins.pin(agreed())
    for nodes in (NODES[:2], (*NODES, "hospital-d"), ("hospital-a", "hospital-b", "hospital-d")):
        with pytest.raises(
            ConfigError, match=f"exactly the nodes {', '.join(nodes)} is trusted by node hospital-a"
        ) as e:
            pins.for_nodes(nodes)
        assert "fedsecure node cohort trust FILE" in e.value.hint
    assert pins.by_digest("0" * 64) is None
    assert pins.by_digest("cardiology") is None


def test_a_higher_version_signed_by_all_takes_the_place(open_pins, agreed):
    pins, old, new = open_pins(), agreed(version=3), agreed(version=5, nodes=(*NODES, "hospital-d"))
    pins.pin(old)
    pins.pin(new)
    assert held(pins) == held(open_pins()) == [new]
    assert pins.by_digest(old.digest.hex()) is None
    with pytest.raises(ConfigError, match="is trusted by"):
        pins.for_nodes(NODES)


@pytest.mark.parametrize("signers", [(), ("hospital-a",), ("hospital-b", "hospital-c")])
def test_what_not_all_signed_is_no_pin_and_replaces_none(open_pins, agreed, signers):
    pins = open_pins()
    with pytest.raises(CertificateError, match="not signed by hospital-"):
        pins.pin(agreed(signers=signers))
    assert held(pins) == []
    pins.pin(agreed())
    with pytest.raises(CertificateError, match="not signed by hospital-"):
        pins.pin(agreed(version=2, signers=signers))
    assert held(pins) == [agreed()]


def test_a_forged_signature_is_named(open_pins, agreed):
    manifest = agreed()
    forged = {**manifest.signatures, "hospital-b": manifest.signatures["hospital-c"]}
    with pytest.raises(CertificateError, match="the signature of node hospital-b is not by its key"):
        open_pins().pin(manifest.model_copy(update={"signatures": forged}))


def test_no_way_back_and_no_other_content_under_a_version(open_pins, agreed):
    pins = open_pins()
    pins.pin(agreed(version=2))
    with pytest.raises(CertificateError, match="version 1 is older than version 2, which this node's pin has"):
        pins.pin(agreed(version=1))
    with pytest.raises(CertificateError, match="this node's pin has version 2 with other content") as caught:
        pins.pin(agreed(version=2, nodes=(*NODES, "hospital-d")))
    assert "version 3, signed by all" in caught.value.hint
    assert held(pins) == [agreed(version=2)]


def test_the_same_nodes_are_one_cohort_whatever_its_name(open_pins, agreed):
    pins, four = open_pins(), (*NODES, "hospital-d")
    pins.pin(agreed("cardiology", 4))
    with pytest.raises(
        CertificateError, match="cohort radiology: its nodes are pinned already, as cohort cardiology"
    ) as e:
        pins.pin(agreed("radiology", 9))
    assert "name cardiology and version 5" in e.value.hint
    pins.pin(agreed("radiology", 1, nodes=four))
    with pytest.raises(CertificateError, match="pinned already, as cohort radiology"):
        pins.pin(agreed("cardiology", 5, nodes=four))
    assert [m.cohort for m in held(pins)] == ["cardiology", "radiology"]


def test_another_federation_is_refused(open_pins, agreed):
    with pytest.raises(CertificateError, match="is of federation lung-study, this node is of heart-study"):
        open_pins().pin(agreed(federation="lung-study"))


def test_a_manifest_with_another_key_of_this_node_is_refused(open_pins, agreed, identities):
    other = {"hospital-a": identities["hospital-d"].public_bytes}
    with pytest.raises(
        CertificateError, match="names the key SHA256:.* for this node hospital-a, whose own is SHA256:"
    ):
        open_pins().check(agreed(keys=other, signers=()))
    with pytest.raises(CertificateError, match="node 'hospital-d' is not in version 1"):
        open_pins("hospital-d").pin(agreed())


def test_a_pin_does_not_outlive_the_key_or_federation_that_it_was_made_with(
    open_pins, agreed, store_folder, identities
):
    open_pins().pin(agreed())
    with Store(store_folder) as store:
        renewed = Pins(
            store, node="hospital-a", federation="heart-study", public_bytes=identities["hospital-d"].public_bytes
        )
        with pytest.raises(CertificateError, match="whose own is"):
            renewed.for_nodes(NODES)
    with pytest.raises(CertificateError, match="is of federation heart-study, this node is of lung-study"):
        open_pins(federation="lung-study").for_nodes(NODES)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("manifest = replace(manifest, 'hospital-c', 'hospital-x')", "signature of node hospital-a is not by its key"),
        ("manifest = replace(manifest, '\"version\":1', '\"version\":2')", "signature of node hospital-a"),
        ("manifest = '{'", "JSON"),
        ("version = 7", "not what was pinned"),
        ("digest = hex(zeroblob(32))", "not what was pinned"),
        ("cohort = 'radiology'", "not what was pinned"),
    ],
)
def test_a_changed_row_is_no_pin(open_pins, agreed, store_folder, change, fault):
    open_pins().pin(agreed())
    with sqlite3.connect(store_folder / "store.db") as connection:
        change = change.replace("replace(manifest", "replace(CAST(manifest AS TEXT)")
        column, _, value = change.partition(" = ")
        value = f"CAST({value} AS BLOB)" if column == "manifest" else value
        assert connection.execute(f"UPDATE pins SET {column} = {value}").rowcount == 1
    connection.close()
    for use in (lambda p: p.for_nodes(NODES), lambda p: p.held(), lambda p: p.pin(agreed(version=2))):
        with pytest.raises(StoreError, match=f"pin of cohort .*damaged or changed: .*{fault}"):
            use(open_pins())


def test_whoever_pins_at_the_same_time_the_highest_version_stays(open_pins, agreed):
    """Each opens a store that is not there yet: whoever comes second finds one that is just being made."""
    versions = [agreed(version=v) for v in range(1, 7)]
    start = threading.Barrier(len(versions), timeout=60)

    def pin(manifest):
        start.wait()
        try:
            open_pins().pin(manifest)
        except CertificateError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(len(versions)) as pool:
        refused = list(pool.map(pin, versions))
    assert held(open_pins()) == [versions[-1]]
    assert refused[-1] == ""
    assert all("is older than" in text for text in refused if text)
