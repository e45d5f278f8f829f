"""Transcripts: as written out, and another one for anything that differs between two nodes."""

from __future__ import annotations

import pytest

from fedsecure.crypto.transcripts import transcript_hash
from fedsecure.errors import SecAggError
from fedsecure.secagg.protocol.transcript import config_digest, keys_transcript, survivors_transcript, vector_digest


@pytest.fixture
def case(vectors):
    plain = vectors["transcripts"]

    def unhex(value):
        if isinstance(value, dict):
            return {k: unhex(v) for k, v in value.items()}
        return [bytes.fromhex(v) for v in value] if isinstance(value, list) else bytes.fromhex(value)

    return {k: v if k == "shared" else unhex(v) for k, v in plain.items()}


def test_hashes_are_as_written_out(vectors):
    for known in vectors["hashes"]:
        items = [bytes.fromhex(item) for item in known["items"]]
        assert transcript_hash(known["label"], *items).hex() == known["hash"]
    assert len({known["hash"] for known in vectors["hashes"]}) == len(vectors["hashes"])


def test_transcripts_are_as_written_out(case):
    assert config_digest(case["config"]) == case["config_digest"]
    assert keys_transcript(case["config_digest"], case["cohort_digest"], case["advertised"]) == case["t1"]
    assert {n: vector_digest(d) for n, d in case["streams"].items()} == case["vectors"]
    assert survivors_transcript(case["t1"], case["shared"], case["vectors"]) == case["t3"]


def test_order_of_arrival_does_not_matter(case):
    turned = dict(reversed(case["advertised"].items()))
    assert keys_transcript(case["config_digest"], case["cohort_digest"], turned) == case["t1"]
    vectors = dict(reversed(case["vectors"].items()))
    assert survivors_transcript(case["t1"], reversed(case["shared"]), vectors) == case["t3"]


def test_anything_else_gives_another_transcript(case):
    config, cohort, advertised = case["config_digest"], case["cohort_digest"], case["advertised"]
    fewer = {n: p for n, p in advertised.items() if n != "leiden"}
    seen = {
        case["t1"],
        keys_transcript(cohort, config, advertised),
        keys_transcript(bytes(32), cohort, advertised),
        keys_transcript(config, cohort, fewer),
        keys_transcript(config, cohort, {**advertised, "leiden": b"\0"}),
        keys_transcript(
            config, cohort, {**advertised, "charite": advertised["turin-2"], "turin-2": advertised["charite"]}
        ),
    }
    assert len(seen) == 6
    vectors, (one, two) = case["vectors"], case["vectors"].values()
    seen = {
        case["t3"],
        survivors_transcript(case["t1"], sorted(vectors), vectors),
        survivors_transcript(case["t1"], case["shared"], {"leiden": vectors["leiden"]}),
        survivors_transcript(case["t1"], case["shared"], {"leiden": one, "turin-2": two}),
        survivors_transcript(case["t1"], case["shared"], {**vectors, "charite": one}),
        survivors_transcript(bytes(32), case["shared"], vectors),
    }
    assert len(seen) == 6


def test_what_is_malformed_ends_in_a_named_abort(case):
    for call, says in (
        (lambda: keys_transcript(b"", case["cohort_digest"], case["advertised"]), "digest of the config has 0 bytes"),
        (lambda: keys_transcript(bytes(32), bytes(33), case["advertised"]), "digest of the cohort has 33 bytes"),
        (lambda: keys_transcript(bytes(32), bytes(32), {}), "no node advertised"),
        (lambda: vector_digest([bytes(32), bytes(31)]), "digest of the stream 1 has 31 bytes"),
        (lambda: survivors_transcript(case["t1"], ["a", "a"], {"a": bytes(32)}), "named twice"),
        (lambda: survivors_transcript(case["t1"], ["a"], {"b": bytes(32)}), "node b uploaded but never shared"),
        (lambda: survivors_transcript(case["t1"], ["a"], {"a": b""}), "digest of the vector of a has 0 bytes"),
        (lambda: survivors_transcript(case["t1"], ["a"], {}), "no node uploaded"),
        (lambda: survivors_transcript(b"", ["a"], {"a": bytes(32)}), "digest of the T1"),
    ):
        with pytest.raises(SecAggError, match=f"BAD_TRANSCRIPT: .*{says}"):
            call()
