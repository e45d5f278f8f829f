"""The manifest: bytes and signatures as written out, nothing changed unseen, and a threshold from its N alone."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsecure.crypto.signatures import generate_identity
from fedsecure.errors import CertificateError, ConfigError
from fedsecure.secagg.cohort.manifest import (
    MAX_MANIFEST_BYTES,
    CohortManifest,
    parse_manifest,
    read_manifest,
    write_manifest,
)
from fedsecure.secagg.cohort.threshold import Threshold


@pytest.fixture
def unsigned(vectors):
    keys = {node: bytes.fromhex(key) for node, key in vectors["manifest"]["keys"].items()}
    return CohortManifest.form("heart.example", "cardiology", 3, keys)


@pytest.fixture
def manifest(unsigned, identities):
    for node, identity in identities.items():
        unsigned = unsigned.signed(node, identity)
    return unsigned


def raw(manifest, **changes):
    return json.dumps({**manifest.model_dump(mode="json"), **changes}).encode()


def test_bytes_digest_and_signatures_are_as_written_out(vectors, manifest):
    case = vectors["manifest"]
    assert manifest.canonical() == case["canonical"].encode()
    assert manifest.digest.hex() == case["digest"]
    assert manifest.signatures == case["signatures"]
    manifest.require_signed()


def test_the_digest_does_not_depend_on_signatures_or_order(unsigned, manifest, vectors):
    assert unsigned.digest == manifest.digest
    keys = {n: bytes.fromhex(k) for n, k in reversed(vectors["manifest"]["keys"].items())}
    assert CohortManifest.form("heart.example", "cardiology", 3, keys).digest == manifest.digest
    assert [manifest.index(n) for n in ("charite", "leiden", "turin-2")] == [1, 2, 3]


def test_a_file_keeps_it_whole(tmp_path, manifest):
    path = tmp_path / "cohort.json"
    write_manifest(path, manifest)
    assert read_manifest(path) == manifest
    assert path.stat().st_mode & 0o777 == 0o644
    with pytest.raises(ConfigError, match="absent.json: cannot be read") as caught:
        read_manifest(tmp_path / "absent.json")
    assert caught.value.hint == "check the path"


def test_missing_signatures_are_named(unsigned, identities):
    signed = unsigned.signed("leiden", identities["leiden"])
    assert signed.missing_signatures() == ("charite", "turin-2")
    with pytest.raises(CertificateError, match="cohort cardiology: not signed by charite, turin-2"):
        signed.require_signed()


def test_copies_signed_apart_are_merged(unsigned, identities, manifest):
    copies = [unsigned.signed(node, identity) for node, identity in identities.items()]
    whole = copies[0].merged(copies[1]).merged(copies[2])
    assert whole == manifest
    newer = CohortManifest.model_validate({**unsigned.model_dump(), "version": 4})
    with pytest.raises(CertificateError, match="differ in more than signatures"):
        whole.merged(newer)
    forged = unsigned.model_copy(update={"signatures": {"charite": "00" * 64}})
    with pytest.raises(CertificateError, match="signature of node charite"):
        copies[1].merged(forged)


@pytest.mark.parametrize("change", ["version", "cohort", "federation", "key", "swap", "drop"])
def test_what_the_coordinator_edits_is_seen(manifest, change, tmp_path):
    data = manifest.model_dump(mode="json")
    nodes = data["nodes"]
    if change == "version":
        data["version"] = 2
    elif change == "key":
        nodes[1]["key"] = generate_identity(tmp_path / "key").public_bytes.hex()
    elif change == "swap":
        nodes[0]["key"], nodes[1]["key"] = nodes[1]["key"], nodes[0]["key"]
    elif change == "drop":
        nodes.append({"node": "zz-sybil", "key": generate_identity(tmp_path / "key").public_bytes.hex()})
    else:
        data[change] = "other"
    edited = parse_manifest(json.dumps(data).encode(), "relayed")
    assert edited.digest != manifest.digest
    with pytest.raises(CertificateError, match="is not by its key over this manifest"):
        edited.require_signed()


def test_only_its_own_key_signs_for_a_node(unsigned, identities):
    with pytest.raises(CertificateError, match=r"node leiden has the identity key SHA256:.*but the manifest names"):
        unsigned.signed("leiden", identities["charite"])
    with pytest.raises(CertificateError, match="node 'padua' is not in version 3"):
        unsigned.signed("padua", identities["charite"])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"format": 2}, "format: 2 is not one of 1"),
        ({"extra": 1}, "extra: unknown key"),
        ({"federation": "Heart"}, "federation: federation name 'Heart' is malformed"),
        ({"cohort": "a b"}, "cohort: 'a b' is not a cohort's name"),
        ({"version": 0}, "version: 0 is out of range"),
        ({"version": True}, "version: True should be"),
        ({"version": "3"}, "version: '3' should be"),
        ({"nodes": []}, "nodes: has too few entries .*>= 3"),
        ({"nodes": [{"node": f"n{i:02}", "key": f"{i:064x}"} for i in range(65)]}, "nodes: has too many entries"),
        ({"nodes": [{"node": n, "key": f"{i:064x}"} for i, n in enumerate("aab")]}, "node a is there twice"),
        ({"nodes": [{"node": n, "key": "0" * 64} for n in "abc"]}, "key 0000.* is there twice"),
        ({"nodes": [{"node": n, "key": f"{i:064x}"} for i, n in enumerate("bac")]}, "not in order of their ids"),
        (
            {"nodes": [{"node": n, "key": f"{i:063x}"} for i, n in enumerate("abc")]},
            "nodes.0.key: .* is not a public key",
        ),
        ({"signatures": {"padua": "0" * 128}}, "a signature of padua, which is not in the cohort"),
        ({"signatures": {"leiden": "0" * 126}}, "signatures.leiden: .* is not a signature"),
    ],
)
def test_every_fault_of_a_file_is_named(manifest, changes, says):
    with pytest.raises(ConfigError, match=says) as caught:
        parse_manifest(raw(manifest, **changes), "cohort.json")
    assert str(caught.value).startswith("cohort.json: ")


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"null", b"\xff", b"[" * 100_000, b'{"format": NaN}'])
def test_no_bytes_get_a_traceback(data):
    with pytest.raises(ConfigError, match="cohort.json"):
        parse_manifest(data, "cohort.json")


@pytest.mark.parametrize(
    ("change", "twice"),
    [
        (lambda d: d[:-1] + b',"version":2}', "version"),
        (lambda d: b'{"nodes":[],' + d[1:], "nodes"),
        (lambda d: d.replace(b'{"key":', b'{"key":"00","key":', 1), "key"),
    ],
)
def test_a_key_that_is_there_twice_is_refused_whatever_it_says(manifest, change, twice):
    data = json.dumps(manifest.model_dump(mode="json"), sort_keys=True, separators=(",", ":")).encode()
    assert parse_manifest(data, "cohort.json") == manifest
    changed = change(data)
    assert changed != data
    with pytest.raises(ConfigError, match=f"^cohort.json: '{twice}' is there twice"):
        parse_manifest(changed, "cohort.json")


def test_a_huge_file_is_refused_unparsed():
    with pytest.raises(ConfigError, match="larger than 131072 bytes"):
        parse_manifest(b" " * (MAX_MANIFEST_BYTES + 1), "cohort.json")


def test_the_largest_cohort_fits_a_file():
    names = [f"{i:02}{'n' * 61}" for i in range(64)]
    manifest = CohortManifest.form("f" * 63, "c" * 63, 2**31 - 1, {n: bytes([i]) * 32 for i, n in enumerate(names)})
    full = manifest.model_copy(update={"signatures": dict.fromkeys(names, "a" * 128)})
    assert len(json.dumps(full.model_dump(mode="json"), indent=1)) < MAX_MANIFEST_BYTES


@pytest.mark.parametrize(
    ("nodes", "required", "dropouts", "colluders"),
    [(3, 3, 0, 1), (4, 3, 1, 1), (5, 4, 1, 2), (8, 6, 2, 3), (10, 7, 3, 3), (20, 14, 6, 7), (50, 34, 16, 17)],
)
def test_the_table_of_thresholds(nodes, required, dropouts, colluders):
    threshold = Threshold(nodes)
    assert (threshold.required, threshold.dropouts, threshold.colluders) == (required, dropouts, colluders)
    assert threshold.is_small == (nodes < 5)


@given(st.integers(3, 64))
def test_two_quorums_share_an_honest_node_and_no_sum_has_fewer_than_two(nodes):
    threshold = Threshold(nodes)
    assert 2 * threshold.required > nodes + threshold.colluders
    assert threshold.required - threshold.colluders >= 2
    assert threshold.required >= 3


@pytest.mark.parametrize("nodes", [0, 1, 2, 65])
def test_cohorts_outside_the_floors_are_refused(nodes):
    with pytest.raises(ConfigError, match=f"a cohort of {nodes} nodes"):
        Threshold(nodes)


def test_the_threshold_is_of_the_manifest(manifest):
    assert manifest.threshold == Threshold(3)
