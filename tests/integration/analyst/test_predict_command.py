"""``fedsecure analyst`` and ``fedsecure predict`` as they are typed: output, exit codes, one line for every fault."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from fedsecure.crypto import authority

FOR_A, FOR_B = [3.0, 1.0], [1.0, 3.0]


def test_json(predict, world, queries):
    path = queries([FOR_A, FOR_B])
    code, out, err = predict(path, "--json", "--scores")
    assert (code, err) == (0, "")
    said = json.loads(out)
    assert (said["run"], said["route_at"]) == (world.plan.digest(), "analyst")
    first, second = said["answers"]
    assert list(first) == ["record", "node", "class", "probabilities", "components", "fallback", "best", "scores"]
    assert (first["record"], first["node"], first["class"], first["fallback"]) == (f"{path}:0", "a", "yes", False)
    assert first["probabilities"] == {"yes": pytest.approx(0.6), "no": pytest.approx(0.4)}
    assert (first["components"], first["best"], first["scores"]) == ([0.5, 0.5], "a", {"a": 3.0, "b": 1.0})
    assert (second["node"], second["class"]) == ("b", "no")


def test_json_without_scores_and_by_the_coordinator(predict, queries):
    _, out, _ = predict(queries([FOR_A]), "--json", "--route-at", "coordinator")
    said = json.loads(out)
    assert said["route_at"] == "coordinator"
    assert "scores" not in said["answers"][0]


def test_the_table_marks_a_fallback(predict, world, queries, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    world.nodes["b"].up = False
    code, out, _ = predict(queries([FOR_B]), "--fallback", "next", "--scores")
    assert code == 0
    assert "fallback: b cannot be reached" in out
    assert "b 3.00, a 1.00" in out
    assert "0.600" in out


def test_a_killed_node_and_a_refused_analyst(predict, world, queries):
    world.nodes["b"].up = False
    code, out, err = predict(queries([FOR_B]))
    assert (code, out) == (20, "")
    assert err.startswith("error: node b cannot be reached")
    assert "hint: try again later, or take --fallback next" in err
    world.nodes["a"].analysts = set()
    code, out, err = predict(queries([FOR_A]))
    assert (code, out) == (4, "")
    assert err.startswith("error: node a: prediction.analysts: dr-weber is not among them")


def test_scores_that_are_not_finite_name_file_and_record(predict, world, queries, toy_method, monkeypatch):
    table = world.folder / "patients.csv"
    table.write_text("u,v\n3,1\n1,3\n")
    for path, record in ((queries([FOR_A, FOR_B]), 1), (table, 3)):

        def overflow(self, routing, x, *, device="cpu"):
            return np.where(x[:, :1] == 1, np.inf, x.astype(np.float64))

        monkeypatch.setattr(type(toy_method(None)), "route", overflow)
        code, out, err = predict(path)
        assert (code, out) == (15, "")
        assert err.startswith(f"error: {path}:{record}: its routing scores are not finite\n")
    assert world.asked() == []


def test_without_a_revocation_list_one_line_says_so(cli, predict, world, queries):
    code, _, err = predict(queries([FOR_A]))
    assert (code, err) == (0, "")
    assert cli("analyst", "models", "--dir", world.folder)[2] == ""
    (world.folder / "crl.pem").unlink()
    for command in ("predict", "models"):
        code, out, err = (
            predict(queries([FOR_A]), "--json")
            if command == "predict"
            else cli("analyst", "models", "--dir", world.folder, "--json")
        )
        assert code == 0
        json.loads(out)
        assert err.startswith(f"note: no revocation list in {world.folder}: a revoked node would still be trusted")
        assert err.count("\n") == 1


def test_a_revoked_node_is_not_asked_by_an_analyst_who_has_the_list(predict, world, queries):
    authority.revoke(world.federation.ca, "a", passphrase=None, now=world.federation.now)
    shutil.copy(world.federation.crl, world.folder)
    code, out, err = predict(queries([FOR_A, FOR_B]), "--json")
    assert code == 6
    assert [a["node"] for a in json.loads(out)["answers"]] == ["b"]
    said = json.loads(err)
    assert "revoked: the certificate of" in said["message"]
    assert said["hint"].startswith("nobody is to trust node a until it has a certificate for a fresh key")
    assert world.asked() == ["b"]


def test_bad_inputs_have_one_line_each(predict, world, queries, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    damaged = tmp_path / "damaged.npz"
    damaged.write_bytes(b"PK\x03\x04")
    for arguments, code, fault in (
        ([tmp_path / "nowhere.csv"], 15, "nowhere.csv: no such file"),
        ([empty], 15, "the plan's records are rows of a table"),
        ([queries([FOR_A], "k.npz", key="images")], 15, "has no array 'x' (it has 'images')"),
        ([queries([[1.0, float("nan")]], "n.npz")], 15, "not finite"),
        ([queries([[1.0, 2.0, 3.0]], "w.npz")], 15, "records of shape [3]"),
        ([damaged], 15, "not a whole .npz archive"),
    ):
        got, out, err = predict(*arguments)
        assert (got, out) == (code, ""), err
        assert fault in err
        assert err.count("\n") == err.count("hint: ") + 1
    for digest, fault in (("0" * 12, "no model of this digest"), ("abc", "is not a digest")):
        got, _, err = predict(queries([FOR_A]), digest=digest)
        assert got == 3
        assert fault in err
    got, _, err = predict(queries([FOR_A]), digest="0" * 12)
    assert f"these do: {world.plan.digest()[:12]}" in err
    assert predict(queries([FOR_A]), "--fallback", "maybe")[0] == 2
    assert predict(queries([FOR_A]), "--wait", "0")[0] == 2
    code, _, err = predict(queries([FOR_A]), "--wait", "nan")
    assert code == 2
    assert "nan is not a number of seconds" in err


def test_models(cli, world):
    world.nodes["b"].up = False
    code, out, _ = cli("analyst", "models", "--dir", world.folder)
    assert code == 0
    assert world.plan.digest() in out
    assert "a, b (not reachable)" in out
    _, out, _ = cli("analyst", "models", "--dir", world.folder, "--json")
    (model,) = json.loads(out)["models"]
    assert model == {
        "run": world.plan.digest(),
        "name": "toy",
        "method": "fedavg",
        "classes": ["yes", "no"],
        "nodes": {"a": True, "b": False},
    }


def test_init_and_enroll(cli, federation_of, tmp_path):
    federation, folder = federation_of(tmp_path), tmp_path / "weber"
    init = ["analyst", "init", "--dir", folder, "--federation", "heart", "--name", "dr-weber"]
    code, out, _ = cli(*init, "--coordinator", "localhost:7443", "--json")
    assert code == 0
    made = json.loads(out)
    assert (made["analyst"], made["csr"]) == ("dr-weber", str(folder / "tls.csr"))
    assert (folder / "tls.key").stat().st_mode & 0o777 == 0o600
    pem = authority.sign_request(
        federation.ca, (folder / "tls.csr").read_bytes(), role="analyst", name="dr-weber", days=9, passphrase=None,
        now=federation.now,
    )  # fmt: skip
    (tmp_path / "weber.crt").write_bytes(pem)
    enroll = ["analyst", "enroll", "--dir", folder, "--cert", tmp_path / "weber.crt"]
    enroll += ["--ca-cert", federation.ca / "ca.crt", "--fingerprint"]
    assert cli(*enroll, "SHA256:" + "0" * 64)[0] == 6
    code, out, _ = cli(*enroll, federation.authority.fingerprint)
    assert code == 0
    assert out.startswith("enrolled as analyst dr-weber of heart")
    code, _, err = cli(*init, "--coordinator", "localhost:7443")
    assert code == 3
    assert "analyst.toml: exists already" in err


def test_init_refuses_what_would_not_work(cli, tmp_path):
    base = ["analyst", "init", "--dir", tmp_path / "x", "--federation", "heart"]
    for extra, fault in (
        (["--name", "Dr Weber", "--coordinator", "localhost:1"], "analyst name 'Dr Weber' is malformed"),
        (["--name", "dr-weber", "--coordinator", "localhost"], "is not HOST:PORT"),
    ):
        code, _, err = cli(*base, *extra)
        assert code == 3
        assert fault in err
        assert not (tmp_path / "x").exists()
    code, _, err = cli("predict", tmp_path, "--dir", tmp_path, "--run", "0" * 8)
    assert code == 3
    assert "analyst.toml: no such file" in err
    assert "fedsecure analyst init" in err
