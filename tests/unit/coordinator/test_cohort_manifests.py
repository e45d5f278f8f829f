"""The coordinator's cohorts: only what all signed, the newest of each counts, and a changed file is never used."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fedsecure.cli import run
from fedsecure.crypto.signatures import generate_identity
from fedsecure.errors import CertificateError, StoreError
from fedsecure.secagg.cohort.manifest import CohortManifest, write_manifest
from fedsecure_coordinator.cohorts.manifests import Cohorts

NODES = ("a", "b", "c")


@pytest.fixture
def identities(tmp_path):
    return {name: generate_identity(tmp_path / f"{name}.key") for name in (*NODES, "d")}


@pytest.fixture
def agreed(identities):
    """agreed("cardiology", 1): a manifest of a, b and c that all of them signed."""

    def make(cohort="cardiology", version=1, *, federation="heart", nodes=NODES, signers=None):
        manifest = CohortManifest.form(federation, cohort, version, {n: identities[n].public_bytes for n in nodes})
        for name in nodes if signers is None else signers:
            manifest = manifest.signed(name, identities[name])
        return manifest

    return make


@pytest.fixture
def cohorts(tmp_path):
    return Cohorts(tmp_path / "store" / "cohorts")


def add(cohorts, manifest):
    return cohorts.add(manifest, federation="heart")


def test_what_was_added_is_found_by_its_nodes_and_digest_also_later(cohorts, tmp_path, agreed):
    manifest = agreed()
    assert cohorts.all() == []
    assert cohorts.for_nodes(NODES) is None
    assert add(cohorts, manifest) is True
    assert add(cohorts, manifest) is False
    again = Cohorts(tmp_path / "store" / "cohorts")
    assert again.for_nodes(("c", "a", "b")) == again.by_digest(manifest.digest.hex()) == manifest
    assert again.for_nodes(NODES[:2]) is None
    assert again.for_nodes((*NODES, "d")) is None


@pytest.mark.parametrize("digest", ["", "0" * 64, "../journal", "/etc/passwd", "A" * 64, "\0" * 64, "0" * 63])
def test_an_unknown_or_malformed_digest_is_no_cohort(cohorts, agreed, digest):
    add(cohorts, agreed())
    assert cohorts.by_digest(digest) is None


def test_the_newest_version_counts_and_older_ones_stay_for_their_runs(cohorts, agreed):
    old, new = agreed(version=1), agreed(version=10, nodes=(*NODES, "d"))
    add(cohorts, old)
    add(cohorts, new)
    assert cohorts.newest() == [new]
    assert cohorts.all() == [old, new]
    assert cohorts.for_nodes(NODES) is None
    assert cohorts.for_nodes((*NODES, "d")) == new
    assert cohorts.by_digest(old.digest.hex()) == old


def test_an_older_version_or_other_content_is_refused(cohorts, agreed):
    add(cohorts, agreed(version=3))
    with pytest.raises(CertificateError, match="version 2 is older than version 3, which this coordinator has"):
        add(cohorts, agreed(version=2))
    with pytest.raises(CertificateError, match="this coordinator has version 3 with other content"):
        add(cohorts, agreed(version=3, nodes=(*NODES, "d")))
    assert cohorts.all() == [agreed(version=3)]


def test_the_same_nodes_are_one_cohort_whatever_its_name(cohorts, agreed):
    add(cohorts, agreed())
    with pytest.raises(CertificateError, match="cohort radiology: its nodes are here already, as cohort cardiology"):
        add(cohorts, agreed("radiology"))
    add(cohorts, agreed(version=2, nodes=(*NODES, "d")))
    add(cohorts, agreed("radiology"))
    assert [m.cohort for m in cohorts.newest()] == ["cardiology", "radiology"]


@pytest.mark.parametrize("signers", [(), ("a",), ("b", "c")])
def test_what_not_all_signed_is_not_kept(cohorts, tmp_path, agreed, signers):
    with pytest.raises(CertificateError, match="not signed by "):
        add(cohorts, agreed(signers=signers))
    assert not (tmp_path / "store").exists()


def test_another_federation_is_refused(cohorts, agreed):
    with pytest.raises(CertificateError, match="is of federation lung, this coordinator of heart"):
        add(cohorts, agreed(federation="lung"))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda raw: raw["nodes"][1].update(key="00" * 32), "the signature of node a is not by its key"),
        (lambda raw: raw["signatures"].pop("b"), "not signed by b"),
        (lambda raw: raw.pop("version"), "version: missing"),
    ],
)
def test_a_changed_file_is_never_used(cohorts, tmp_path, agreed, change, fault):
    manifest = agreed()
    add(cohorts, manifest)
    path = tmp_path / "store" / "cohorts" / f"{manifest.digest.hex()}.json"
    raw = json.loads(path.read_text())
    change(raw)
    path.write_text(json.dumps(raw))
    for use in (
        cohorts.all,
        lambda: cohorts.for_nodes(NODES),
        lambda: cohorts.by_digest(manifest.digest.hex()),
        lambda: add(cohorts, agreed(version=2)),
    ):
        with pytest.raises(StoreError, match=f"{path}: a damaged or changed manifest: .*{fault}") as caught:
            use()
        assert "coordinator cohort add FILE" in caught.value.hint


def test_a_whole_manifest_under_another_name_is_never_used(cohorts, tmp_path, agreed):
    add(cohorts, agreed(version=2))
    write_manifest(tmp_path / "store" / "cohorts" / f"{'0' * 64}.json", agreed(version=9))
    with pytest.raises(StoreError, match="another digest than its name"):
        cohorts.for_nodes(NODES)


def test_two_commands_at_the_same_time_keep_one_order(cohorts, agreed):
    versions = [agreed(version=v) for v in range(1, 7)]
    start = threading.Barrier(len(versions), timeout=60)

    def work(manifest):
        start.wait()
        try:
            add(cohorts, manifest)
        except CertificateError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(len(versions)) as pool:
        refused = [text for text in pool.map(work, versions) if text]
    assert cohorts.newest() == [versions[-1]]
    assert len(cohorts.all()) + len(refused) == len(versions)
    assert all("is older than" in text for text in refused)


def test_the_commands(tmp_path, agreed, capsys):
    folder, file = tmp_path / "coordinator", tmp_path / "cohort.json"
    given = ["--federation", "heart", "--dns", "localhost", "--dir", str(folder)]
    assert run(["coordinator", "init", *given]) == 0
    capsys.readouterr()

    def cohort(*words, code=0):
        assert run(["coordinator", "cohort", *words, "--dir", str(folder)]) == code
        out, err = capsys.readouterr()
        return err if code else out

    assert "no cohort" in cohort("show")
    assert json.loads(cohort("show", "--json")) == {"cohorts": []}
    assert "cannot be read" in cohort("add", str(file), code=3)
    write_manifest(file, agreed(signers=("a",)))
    assert "error: cohort cardiology: not signed by b, c" in cohort("add", str(file), code=6)
    write_manifest(file, agreed(version=2))
    said = cohort("add", str(file))
    assert "added" in said
    assert "a sum needs 3 of 3 nodes" in said
    assert "known already" in cohort("add", str(file))
    (shown,) = json.loads(cohort("show", "--json"))["cohorts"]
    assert (shown["version"], shown["digest"]) == (2, agreed(version=2).digest.hex())
    assert shown["digest"][:8] in cohort("show")
    write_manifest(file, agreed(version=1))
    fault = json.loads(cohort("add", str(file), "--json", code=6))
    assert fault["message"].startswith("cohort cardiology: version 1 is older than version 2")
    kept = Cohorts(folder / "store" / "cohorts")
    assert kept.for_nodes(NODES) == agreed(version=2)
    (folder / "store" / "cohorts" / f"{shown['digest']}.json").write_text("{}")
    assert "a damaged or changed manifest" in cohort("show", code=19)
