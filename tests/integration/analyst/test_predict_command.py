"""``fedsecure analyst`` and ``fedsecure predict`` as they are typed: output, exit codes, one line for every fault."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time

import numpy as np
import pytest

from fedsecure.cli import run
from fedsecure.crypto import authority
from fedsecure.errors import DataError, PolicyError, WireError
from fedsecure.prediction.answers import encode_refusal

FOR_A, FOR_B = [3.0, 1.0], [1.0, 3.0]


@pytest.fixture
def cli(capsys):
    """Runs a command line; (exit code, stdout, stderr)."""

    def call(*arguments):
        code = run([str(a) for a in arguments])
        got = capsys.readouterr()
        return code, got.out, got.err

    return call


@pytest.fixture
def predict(cli, world, toy_method, monkeypatch):
    """``fedsecure predict … --dir DIR --run DIGEST``."""
    monkeypatch.setattr("fedsecure.commands.predict._build_method", toy_method)
    shutil.copy(world.federation.crl, world.folder)

    def call(*arguments, digest=None):
        return cli("predict", *arguments, "--dir", world.folder, "--run", digest or world.plan.digest())

    return call


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


def over_the_hour(outcome):
    return encode_refusal(PolicyError("prediction.max_records_per_hour: 1 record after 0", hint="wait"))


@pytest.mark.parametrize("route_at", ["analyst", "coordinator"])
def test_what_was_answered_is_printed_whatever_the_rest_came_to(predict, world, queries, monkeypatch, route_at):
    monkeypatch.setenv("COLUMNS", "200")
    world.nodes["b"].twist = over_the_hour
    path = queries([FOR_A, FOR_B, FOR_A, FOR_B])
    code, out, err = predict(path, "--json", "--route-at", route_at)
    said = json.loads(out)
    assert code == 4
    assert [(a["record"], a["node"]) for a in said["answers"]] == [(f"{path}:0", "a"), (f"{path}:2", "a")]
    message = "node b: prediction.max_records_per_hour: 1 record after 0"
    assert said["unanswered"] == [
        {"record": f"{path}:{row}", "error": "PolicyError", "message": message, "hint": "wait"} for row in (1, 3)
    ]
    assert json.loads(err) == {"error": "PolicyError", "message": message, "hint": "wait", "exit_code": 4}
    code, out, err = predict(path, "--route-at", route_at)
    assert code == 4
    assert f"{path}:2" in out
    assert f"{path}:1" not in out
    assert f"not answered, 2 of 4 records ({path}:1, {path}:3): {message}\nerror: {message}\nhint: wait\n" == err


def test_a_fault_of_a_record_names_it_even_where_it_is_the_only_one(predict, world, queries):
    world.nodes["a"].twist = lambda outcome: encode_refusal(DataError("tensor x: record 0: no"))
    path = queries([FOR_A])
    for route_at in ("analyst", "coordinator"):
        code, out, err = predict(path, "--route-at", route_at)
        assert (code, out) == (15, "")
        assert err.startswith(
            f"not answered, 1 of 1 record ({path}:0): node a: tensor x: record 0: no\nerror: node a: "
        )


def test_every_reason_is_told(predict, world, queries):
    world.nodes["a"].twist = over_the_hour
    world.nodes["b"].up = False
    path = queries([FOR_B, FOR_A])
    code, out, err = predict(path)
    assert (code, out) == (20, "")
    first, second, last, hint = err.splitlines()
    assert first.startswith(f"not answered, 1 of 2 records ({path}:0): node b cannot be reached")
    assert second.startswith(f"not answered, 1 of 2 records ({path}:1): node a: prediction.max_records_per_hour")
    assert last.startswith("error: node b cannot be reached")
    assert hint.startswith("hint: ")


@pytest.mark.parametrize("route_at", ["analyst", "coordinator"])
def test_a_coordinator_that_goes_away_midway(predict, world, queries, route_at):
    def gone():
        raise WireError("the coordinator is shutting down", hint="try again later")

    world.nodes["b"].read = lambda *_: gone()
    path = queries([FOR_A, FOR_B, FOR_B])
    code, out, err = predict(path, "--json", "--route-at", route_at)
    said = json.loads(out)
    if route_at == "coordinator":  # else the fake coordinator says that the node did not take it
        assert (code, json.loads(err)["error"]) == (7, "WireError")
    assert [a["record"] for a in said["answers"]] == [f"{path}:0"]
    assert [u["record"] for u in said["unanswered"]] == [f"{path}:1", f"{path}:2"]


@pytest.mark.parametrize("route_at", ["analyst", "coordinator"])
@pytest.mark.parametrize("form", [["--json"], []])
def test_an_interruption_keeps_what_was_answered(predict, world, queries, monkeypatch, route_at, form):
    def interrupt(outcome):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
        return outcome

    monkeypatch.setenv("COLUMNS", "200")
    world.nodes["b"].twist = interrupt
    path = queries([FOR_A, FOR_B])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code, out, err = predict(path, *form, "--route-at", route_at)
    finally:
        signal.signal(signal.SIGINT, before)
    assert code == 130
    if not form:
        assert "0.600" in out
        assert err == f"not answered, 1 of 2 records ({path}:1): interrupted\nerror: interrupted\n"
        return
    said = json.loads(out)
    assert json.loads(err)["error"] == "KeyboardInterrupt"
    assert [a["record"] for a in said["answers"]] == [f"{path}:0"]
    assert [(u["record"], u["error"]) for u in said["unanswered"]] == [(f"{path}:1", "KeyboardInterrupt")]


def test_a_node_that_takes_few_records_at_once_is_asked_in_parts(predict, world, queries):
    node = world.nodes["a"]
    decide = node.decide

    def few(query):
        if len(query.x["x"]) > 5:
            return encode_refusal(
                PolicyError("prediction.max_records_per_query: too many", hint="ask in smaller parts")
            )
        return decide(query)

    node.decide = few
    code, out, _ = predict(queries([FOR_A] * 20), "--json")
    assert code == 0
    assert len(json.loads(out)["answers"]) == 20
    assert max(node.served) == 5


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
