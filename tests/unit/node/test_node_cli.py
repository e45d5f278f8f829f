"""The verbs of ``fedsecure node`` that need no daemon: output for people and for machines, exit codes, one-line
errors."""

from __future__ import annotations

import json
import shutil

import pytest

from fedsecure.cli import run
from fedsecure_node.cli.first_steps import init_node


@pytest.fixture
def site(tmp_path, node, make_release):
    """A node's folder with one plan, one held release and one sent release in its store."""
    folder = tmp_path / "site"
    init_node(folder, node="hospital-a", federation="heart-study", coordinator="localhost:1")
    node.policy()
    make_release()
    make_release("statistics", hold=True)
    for name in ("identity.key", "identity.pub"):
        (folder / name).unlink()
    from fedsecure.crypto.signatures import load_identity, public_identity_pem

    shutil.copy2(node.settings.identity, folder / "identity.key")
    shutil.copy2(node.settings.identity.with_suffix(".head"), folder / "identity.head")
    (folder / "identity.pub").write_bytes(public_identity_pem(load_identity(folder / "identity.key").public_bytes))
    shutil.copy2(node.settings.policy, folder / "policy.toml")
    node.store.close()
    shutil.copytree(node.settings.store, folder / "store")
    return folder


@pytest.fixture
def cli(site, capsys):
    def call(*arguments, code=0):
        assert run(["node", *arguments, "--dir", str(site)]) == code, capsys.readouterr()
        out, err = capsys.readouterr()
        if code:
            lines = err.splitlines()
            assert lines[0].startswith("error: ")
            assert len(lines) <= 2
            return lines[0]
        assert err == ""
        return out

    return call


def test_plans_in_words_and_for_machines(cli, node):
    text = cli("plans")
    assert node.plan.digest() in text
    assert f"fedsecure node approve {node.plan.digest()}" in text
    (plan,) = json.loads(cli("plans", "--json"))["plans"]
    assert (plan["digest"], plan["decision"], plan["policy_passes"]) == (node.plan.digest(), "pending", True)


def test_approve_and_refuse_a_plan(cli, node):
    assert node.plan.digest() in cli("approve", node.plan.digest()[:8])
    (plan,) = json.loads(cli("plans", "--json"))["plans"]
    assert plan["decision"] == "approved"
    cli("refuse-plan", node.plan.digest()[:8], "--reason", "no consent")
    assert "refused by" in cli("plans")
    assert "8 hexadecimal" not in cli("approve", "beef", code=3)


def test_approving_what_the_policy_forbids_names_the_rule(cli, site, node):
    (site / "policy.toml").write_text("format = 1\n")
    assert "plans.methods: fedaf (allowed: none)" in cli("approve", node.plan.digest(), code=4)
    (site / "policy.toml").unlink()
    assert "no policy" in cli("approve", node.plan.digest(), code=4)
    assert "policy: NO" in cli("plans")


def test_releases_are_listed_shown_and_decided(cli, tmp_path):
    text = cli("releases")
    assert "held: waits for a person" in text
    first, second = json.loads(cli("releases", "--json"))["releases"]
    assert (first["state"], second["state"]) == ("logged", "held")
    made = json.loads(cli("preview", first["payload"]["sha256"][:10], "--out", str(tmp_path / "out"), "--json"))
    assert set(made) == {"release", "html", "png"}
    assert cli("preview", str(second["release"]), "--out", str(tmp_path / "out")).strip().endswith("release-2.html")
    assert "released by" in cli("release", "2", "--reason", "looked")
    assert "cannot be refused now" in cli("refuse", "2", "--reason", "late", code=8)
    assert "there is no release 99" in cli("release", "99", code=3)
    assert "names no release" in cli("release", "../x", code=3)


def test_verify_log_says_yes_or_names_the_record(cli, site, tmp_path):
    assert "3 records of 2 releases" in cli("verify-log")
    found = json.loads(cli("verify-log", "--json"))
    assert (found["ok"], found["records"], len(found["head"])) == (True, 3, 64)
    cli("verify-log", "--identity", str(site / "identity.pub"))
    path = site / "store" / "releases.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"toy"', b'"toz"', 1))
    assert "record 1" in cli("verify-log", code=18)
    assert "record 1" in cli("releases", code=18)


def test_a_copied_store_is_verified_without_its_node(site, tmp_path, capsys):
    shutil.copytree(site / "store", tmp_path / "copy")
    arguments = ["node", "verify-log", "--dir", str(tmp_path / "copy"), "--identity", str(site / "identity.pub")]
    assert run(arguments) == 0
    assert "3 records" in capsys.readouterr().out
    assert run(arguments[:4]) == 6
    assert "identity.pub" in capsys.readouterr().err


def test_verifying_leaves_a_store_as_it_is(site, cli):
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in (site / "store").rglob("*.*") if p.is_file()}
    cli("verify-log")
    after = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in before}
    assert after == before


def test_check_reports_each_thing(cli):
    assert "certificate" in cli("check", code=6)


def test_init_prints_the_next_step(tmp_path, capsys):
    folder = tmp_path / "new"
    given = ["node", "init", "hospital-b", "--federation", "heart-study", "--coordinator", "c.example.org:1"]
    assert run([*given, "--dir", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "node enroll" in out
    assert out.count("SHA256:") == 2
    assert run([*given, "--dir", str(folder)]) == 3
    assert run([*given[:2], "Hospital B", *given[3:], "--dir", str(tmp_path / "x")]) == 3
    assert "node" in capsys.readouterr().err


def test_verbs_before_the_first_start(tmp_path, capsys):
    folder = tmp_path / "new"
    init_node(folder, node="a", federation="f", coordinator="h:1")
    for verb in (["plans"], ["releases"], ["approve", "0" * 64], ["release", "1"]):
        assert run(["node", *verb, "--dir", str(folder)]) == 3
        assert "no store yet" in capsys.readouterr().err
    assert run(["node", "plans", "--dir", str(tmp_path / "nowhere")]) == 3


def test_help_needs_no_torch():
    import subprocess
    import sys

    heavy = ("torch", "grpc", "numpy", "pydantic")
    code = f"import sys, fedsecure_node.cli.app; sys.exit(any(m in sys.modules for m in {heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
