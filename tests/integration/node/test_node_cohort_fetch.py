"""What a coordinator shows as a cohort's manifest is written to a file at most, and never under another digest."""

from __future__ import annotations

import json

import pytest

from fedsecure.cli import run
from fedsecure.crypto.signatures import generate_identity, load_identity
from fedsecure.errors import RemoteProtocolError
from fedsecure.secagg.cohort.manifest import MAX_MANIFEST_BYTES, CohortManifest, read_manifest, write_manifest
from fedsecure.wire.status import to_status
from fedsecure.wire.v1 import coordinator_pb2 as pb


@pytest.fixture
def script(script):
    """The coordinator's answer is ``script.shown``."""
    script.shown, script.asked, script.fault = b"", [], None

    def answer(request, context):
        script.asked.append((request.node_id, request.cohort_digest))
        if script.fault is not None:
            to_status(context, script.fault)
        return pb.CohortManifestReply(manifest=script.shown)

    script.CohortManifest = answer
    return script


@pytest.fixture
def keys(site, tmp_path):
    made = {name: generate_identity(tmp_path / f"{name}.key") for name in ("hospital-b", "hospital-c", "sybil")}
    return {"hospital-a": load_identity(site.folder / "identity.key"), **made}


@pytest.fixture
def manifest(keys):
    return signed(keys)


def signed(keys, version=1, **swapped):
    who = {name: keys[swapped.get(name[-1], name)] for name in ("hospital-a", "hospital-b", "hospital-c")}
    made = CohortManifest.form("heart-study", "cardiology", version, {n: k.public_bytes for n, k in who.items()})
    for name, key in who.items():
        made = made.signed(name, key)
    return made


def data(manifest):
    return manifest.model_dump_json().encode()


@pytest.fixture
def command(site, capsys):
    def call(*words, code=0):
        assert run(["node", "cohort", *map(str, words), "--dir", str(site.folder)]) == code, capsys.readouterr()
        out, err = capsys.readouterr()
        return err if code else out

    return call


def test_fetching_writes_a_file_and_trusts_nothing(script, manifest, command, tmp_path):
    script.shown, out = data(manifest), tmp_path / "fetched.json"
    digest = manifest.digest.hex()
    assert "signed by all. Next" in command("fetch", digest.upper(), "--out", out)
    assert read_manifest(out) == manifest
    assert script.asked == [("hospital-a", digest)]
    assert "no cohort is trusted" in command("show")
    assert "exists already" in command("fetch", digest, "--out", out, code=3)
    command("trust", out, "--digest", digest)
    (checked,) = json.loads(command("verify", "--coordinator", "--json"))["cohorts"]
    assert checked["compared"] == ["the coordinator's"]


def test_another_manifest_than_was_asked_for_is_refused(script, manifest, keys, command, tmp_path):
    out = tmp_path / "fetched.json"
    write_manifest(tmp_path / "own.json", manifest)
    command("trust", tmp_path / "own.json", "--digest", manifest.digest.hex())
    for other in (signed(keys, version=2), signed(keys, b="sybil")):
        script.shown = data(other)
        for words in (("fetch", manifest.digest.hex(), "--out", out), ("verify", "--coordinator")):
            text = command(*words, code=9)
            assert f"the digest {other.digest.hex()}, not {manifest.digest.hex()}" in text
            assert "tell the other operators" in text
    assert not out.exists()


def test_a_coordinator_that_lacks_the_version_that_is_pinned(script, manifest, keys, command, tmp_path):
    for version in (1, 2):
        made = signed(keys, version=version)
        write_manifest(tmp_path / f"{version}.json", made)
        command("trust", tmp_path / f"{version}.json", "--digest", made.digest.hex())

    script.fault = RemoteProtocolError("this coordinator has no manifest of it")
    text = command("verify", "--coordinator", code=9)
    assert (
        "cohort cardiology: the coordinator does not show version 2, which is pinned here (this coordinator has" in text
    )
    assert "hint: send its operator this version's file, to add: fedsecure coordinator cohort add FILE" in text


@pytest.mark.parametrize(
    ("shown", "fault"),
    [
        (lambda m: b"", "JSON"),
        (lambda m: b"\x00\xff", "JSON"),
        (lambda m: b"[" * 50_000, "JSON"),
        (lambda m: b" " * (MAX_MANIFEST_BYTES + 1), "larger than"),
        (lambda m: b"{}", "format: missing"),
        (lambda m: data(m)[:-1] + b',"version":2}', "'version' is there twice"),
        (lambda m: data(m).replace(b'"hospital-b":"', b'"hospital-b":"00', 1), "signatures"),
        (
            lambda m: data(m.model_copy(update={"signatures": {"hospital-b": "00" * 64}})),
            "the signature of node hospital-b",
        ),
    ],
)
def test_what_is_no_manifest_is_the_coordinators_fault(script, manifest, command, tmp_path, shown, fault):
    script.shown, out = shown(manifest), tmp_path / "fetched.json"
    text = command("fetch", manifest.digest.hex(), "--out", out, code=9)
    assert fault in text
    assert text.startswith("error: ")
    assert "the coordinator is at fault" in text
    assert not out.exists()


def test_a_manifest_that_lacks_signatures_is_fetched_but_does_not_verify(script, manifest, command, tmp_path):
    write_manifest(tmp_path / "own.json", manifest)
    command("trust", tmp_path / "own.json", "--digest", manifest.digest.hex())
    script.shown = data(manifest.model_copy(update={"signatures": {}}))
    said = command("fetch", manifest.digest.hex(), "--out", tmp_path / "fetched.json")
    assert "still to sign: hospital-a, hospital-b, hospital-c" in said
    assert "not signed by hospital-a" in command("verify", "--coordinator", code=6)
