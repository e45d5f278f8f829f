"""What people read out to each other is compared in full, however they wrote it down."""

from __future__ import annotations

import pytest

from fedsecure.errors import CertificateError, ConfigError
from fedsecure.secagg.cohort.comparison import (
    difference,
    digest_from,
    require_digest,
    require_fingerprints,
    require_newer,
    spaced,
)
from fedsecure.secagg.cohort.manifest import CohortManifest


@pytest.fixture
def manifest(vectors):
    keys = {node: bytes.fromhex(key) for node, key in vectors["manifest"]["keys"].items()}
    return CohortManifest.form("heart.example", "cardiology", 3, keys)


def changed(manifest, **changes):
    return CohortManifest.model_validate({**manifest.model_dump(), **changes})


@pytest.mark.parametrize(
    "write",
    [str, str.upper, spaced, lambda d: f" {d}\n", lambda d: "SHA256:" + d, lambda d: bytes.fromhex(d).hex(":")],
)
def test_a_digest_however_it_is_written(manifest, write):
    digest = manifest.digest.hex()
    assert digest_from(write(digest)) == digest
    require_digest(manifest, write(digest))


@pytest.mark.parametrize(
    "cut", [lambda d: "", lambda d: d[:-1], lambda d: d + "0", lambda d: "g" + d[1:], lambda d: d[:8]]
)
def test_no_part_of_a_digest_will_do(manifest, cut):
    text = cut(manifest.digest.hex())
    with pytest.raises(ConfigError, match="is malformed"):
        digest_from(text)
    with pytest.raises(ConfigError, match="is malformed"):
        require_digest(manifest, text)


def test_every_digit_of_a_digest_counts(manifest):
    digest = manifest.digest.hex()
    for at in range(64):
        other = digest[:at] + ("0" if digest[at] != "0" else "1") + digest[at + 1 :]
        with pytest.raises(CertificateError, match=f"has the digest {digest}, not {other}"):
            require_digest(manifest, other)


def test_fingerprints_of_all_the_others_are_compared(manifest):
    given = {m.node: m.fingerprint for m in manifest.nodes}
    own = given.pop("leiden")
    require_fingerprints(manifest, given, own="leiden")
    require_fingerprints(manifest, {**given, "leiden": own}, own="leiden")
    with pytest.raises(CertificateError, match="no fingerprint was given for turin-2"):
        require_fingerprints(manifest, {"charite": given["charite"]}, own="leiden")
    with pytest.raises(CertificateError, match="for node charite, not SHA256:") as caught:
        require_fingerprints(manifest, {**given, "charite": given["turin-2"]}, own="leiden")
    assert "operator of charite" in caught.value.hint
    with pytest.raises(CertificateError, match="node 'oslo' is not in version 3"):
        require_fingerprints(manifest, {**given, "oslo": own}, own="leiden")


def test_only_a_higher_version_or_the_same_content_takes_the_place(manifest):
    require_newer(manifest, manifest, "here")
    require_newer(changed(manifest, version=4), manifest, "here")
    with pytest.raises(CertificateError, match="version 2 is older than version 3, which here has"):
        require_newer(changed(manifest, version=2), manifest, "here")
    with pytest.raises(CertificateError, match="here has version 3 with other content"):
        require_newer(changed(manifest, federation="lung.example"), manifest, "here")


def test_a_difference_is_told_in_words(manifest, vectors):
    assert difference(manifest, manifest) == ""
    nodes = [m.model_dump() for m in manifest.nodes]
    other = changed(
        manifest,
        version=4,
        nodes=({**nodes[0], "key": "ab" * 32}, nodes[1], {"node": "zurich", "key": nodes[2]["key"]}),
    )
    assert difference(manifest, other) == (
        "version 4 instead of 3, without turin-2, with zurich besides, another key of charite"
    )
