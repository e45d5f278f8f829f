"""node.toml: every fault names the file and the key; the examples that are shipped are the ones that init uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsecure.errors import CertificateError, ConfigError, PolicyError
from fedsecure.policy import load_policy
from fedsecure_node.cli.first_steps import check_node, example, init_node
from fedsecure_node.settings import load_settings

SHIPPED = Path(__file__).resolve().parents[3] / "node"


def made(folder, text=None):
    folder.mkdir(exist_ok=True)
    (folder / "node.toml").write_text(text or example("node.example.toml"))
    return folder


def test_examples_are_the_packaged_ones_and_parse(tmp_path):
    for name in ("node.example.toml", "policy.example.toml"):
        assert (SHIPPED / name).read_text() == example(name)
    settings = load_settings(made(tmp_path / "n"))
    assert settings.store == tmp_path / "n" / "store"
    assert settings.data.path == tmp_path / "n" / "data"
    (tmp_path / "policy.toml").write_text(example("policy.example.toml"))
    policy = load_policy(tmp_path / "policy.toml")
    assert policy.plans.approval == "manual"
    assert policy.model_copy(update={"plans": type(policy.plans)()}) == type(policy)(format=1)


def test_paths_are_taken_from_the_files_folder_not_from_the_shell(tmp_path, monkeypatch):
    folder = made(tmp_path / "ein ordner ü")
    monkeypatch.chdir(tmp_path)
    settings = load_settings(Path("ein ordner ü"))
    for path in (settings.store, settings.policy, settings.identity, settings.tls.key, settings.data.path):
        assert path.parent == folder
    assert settings.tls.crl is None
    (folder / "crl.pem").write_text("")
    assert load_settings(folder).tls.crl == folder / "crl.pem"


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("format = 1", "format = 2", "format: 2 is not one of 1"),
        ('node = "hospital-a"', 'node = "Hospital A"', "node: "),
        ('federation = "heart-study"', 'federation = "../x"', "federation: federation name"),
        (":7443", "", "coordinator: 'coordinator.example.org' is not HOST:PORT"),
        (":7443", ":99999", "is not HOST:PORT"),
        ('"coordinator.example.org', '"https://x', "is not HOST:PORT"),
        ("[tls]", "[tsl]", "tsl: unknown key"),
        ('kind = "folder"', 'kind = "ftp"', "data.kind: 'ftp' is not known"),
        ('device = "auto"', 'device = "tpu"', "compute.device"),
        ("threads = 0", "threads = -1", "compute.threads: -1 is out of range"),
        ('format = "auto"', 'format = "xml"', "log.format"),
        ('store = "store"', 'store = ""', "store"),
        ('# crl = "crl.pem"', 'crl = "nowhere.pem"', "tls.crl"),
        ("format = 1", "format = = 1", "not valid TOML"),
    ],
)
def test_faults_name_file_and_key(tmp_path, old, new, match):
    text = example("node.example.toml")
    assert old in text
    with pytest.raises(ConfigError) as caught:
        load_settings(made(tmp_path / "n", text.replace(old, new, 1)))
    assert match in str(caught.value)
    assert "node.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_node_here(tmp_path):
    with pytest.raises(ConfigError, match="no such file") as caught:
        load_settings(tmp_path)
    assert "node init" in caught.value.hint


def test_init_writes_a_node_and_overwrites_nothing(tmp_path):
    folder = tmp_path / "hospital"
    enrolment = init_node(folder, node="hospital-b", federation="heart-study", coordinator="c.example.org:1234")
    settings = load_settings(folder)
    assert (settings.node, settings.federation, settings.coordinator) == (
        "hospital-b", "heart-study", "c.example.org:1234",
    )  # fmt: skip
    assert enrolment.csr.exists()
    assert (folder / "tls.key").stat().st_mode & 0o777 == 0o600
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    with pytest.raises(ConfigError, match="exists already"):
        init_node(folder, node="hospital-b", federation="heart-study", coordinator="c.example.org:1234")
    (folder / "node.toml").unlink()
    with pytest.raises(CertificateError, match="exists already"):
        init_node(folder, node="hospital-b", federation="heart-study", coordinator="c.example.org:1234")
    del before["node.toml"]
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("key", "value"), [("node", 'a"\nformat = 2'), ("federation", "A B"), ("coordinator", "nowhere"), ("node", "ö")]
)
def test_init_with_malformed_names_makes_nothing(tmp_path, key, value):
    good = {"node": "a", "federation": "f", "coordinator": "h:1", key: value}
    with pytest.raises(ConfigError):
        init_node(tmp_path / "n", **good)
    assert not (tmp_path / "n").exists()


def test_check_names_what_is_not_in_order(tmp_path):
    folder = tmp_path / "n"
    init_node(folder, node="a", federation="f", coordinator="h:1")
    found = {f.what: f for f in check_node(folder, None)}
    assert found["configuration"].error is None
    assert found["identity key"].error is None
    assert isinstance(found["certificate"].error, CertificateError)
    assert isinstance(found["policy"].error, PolicyError)
    (folder / "identity.key").chmod(0o644)
    assert "0644" in str({f.what: f for f in check_node(folder, None)}["identity key"].error)
    assert len(check_node(tmp_path / "empty", None)) == 1
