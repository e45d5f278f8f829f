"""With ``--json`` an error is one JSON object on stderr, in every group of commands; nothing steers a terminal."""

from __future__ import annotations

import json
import re

import pytest

from fedsecure.cli import run
from fedsecure.commands.output import emit_json, note, say
from fedsecure.errors import EXIT_CODES

ABSENT = [
    (["node", "plans", "--dir", "absent"], 3, "ConfigError"),
    (["node", "approve", "0" * 64, "--dir", "absent"], 3, "ConfigError"),
    (["node", "verify-log", "--dir", "absent"], 3, "ConfigError"),
    (["node", "releases", "--dir", "absent"], 3, "ConfigError"),
    (["node", "enroll", "--cert", "a", "--ca-cert", "b", "--fingerprint", "c"], 6, "CertificateError"),
    (["node", "init", "Not A Name", "--federation", "f", "--coordinator", "h:1"], 3, "ConfigError"),
    (["coordinator", "status", "--dir", "absent"], 3, "ConfigError"),
    (["coordinator", "abort", "x", "--dir", "absent"], 3, "ConfigError"),
    (["coordinator", "enroll", "--cert", "a", "--ca-cert", "b", "--fingerprint", "c"], 6, "CertificateError"),
    (["ca", "list", "--ca", "absent"], 6, "CertificateError"),
    (["ca", "sign", "absent", "--out", "c"], 6, "CertificateError"),
    (["analyst", "models", "--dir", "absent"], 3, "ConfigError"),
    (["plan", "check", "absent.toml"], 3, "ConfigError"),
    (["plan", "show", "absent.toml"], 3, "ConfigError"),
    (["predict", "absent.npz", "--run", "0" * 8, "--dir", "absent"], 3, "ConfigError"),
    (["node", "plans", "--no-such-option"], 2, "UsageError"),
    (["node", "approve"], 2, "UsageError"),
    (["coordinator", "no-such-command"], 2, "UsageError"),
]


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("arguments", "code", "name"), ABSENT, ids=[" ".join(a[:3]) for a, _, _ in ABSENT])
def test_an_error_is_one_object_with_json_and_words_without(elsewhere, capsys, arguments, code, name):
    assert run(arguments) == code
    plain = capsys.readouterr()
    assert run([*arguments, "--json"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    fault = json.loads(err)
    assert err.count("\n") == 1
    assert list(fault) == ["error", "message", "hint", "exit_code"]
    assert (fault["error"], fault["exit_code"]) == (name, code)
    if code != 2:
        assert EXIT_CODES[code][0] == name
        assert plain.err.splitlines()[0] == f"error: {fault['message']}"
        assert fault["hint"] == "\n".join(plain.err.splitlines()[1:]).removeprefix("hint: ")
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(plain.err)


def test_after_two_dashes_it_is_no_option(elsewhere, capsys):
    assert run(["plan", "check", "--", "--json"]) == 3
    assert capsys.readouterr().err.startswith("error: --json: ")


def test_the_form_does_not_outlive_its_command(elsewhere, capsys):
    assert run(["plan", "check", "absent", "--json"]) == 3
    assert run(["plan", "check", "absent"]) == 3
    assert capsys.readouterr().err.splitlines()[1].startswith("error: absent: ")


def test_help_and_version_are_what_they_were(capsys):
    assert run(["plan", "check", "--json", "--help"]) == 0
    assert "Usage: " in capsys.readouterr().out


STEERING = "a\nb\t\x1b[31m\x9b2J\u202ec\x7f"


def test_lines_cannot_steer_a_terminal(capsys):
    say(STEERING)
    note(STEERING)
    for text in capsys.readouterr():
        assert text == "a\\nb\\t\\x1b[31m\\x9b2J\\u202ec\\x7f\n"


def test_json_is_the_same_value_without_what_steers(capsys):
    emit_json({"path": STEERING, "odd": "\udcff", "far": "\U000e0001", "kept": "Süd ü"})
    out = capsys.readouterr().out
    assert json.loads(out) == {"path": STEERING, "odd": "\udcff", "far": "\U000e0001", "kept": "Süd ü"}
    assert "Süd ü" in out
    assert all(c.isprintable() or c == "\n" for c in out)


def test_errors_cannot_steer_either(elsewhere, capsys):
    for more in ([], ["--json"]):
        assert run(["plan", "check", f"x{STEERING}", *more]) == 3
        err = capsys.readouterr().err
        assert all(c.isprintable() or c == "\n" for c in err), err


@pytest.mark.parametrize(
    "arguments",
    [
        ["node", "init", "h", "--federation", "f", "--coordinator", "h:1", "--dir"],
        ["node", "check", "--dir"],
        ["node", "verify-log", "--dir"],
        ["ca", "init", "--federation", "f", "--no-passphrase", "--ca"],
        ["ca", "list", "--ca"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("place", ["file", "y" * 300])
def test_a_file_or_a_name_too_long_as_folder_has_a_hint(elsewhere, capsys, arguments, place):
    (elsewhere / "file").touch()
    assert run([*arguments, place]) in (3, 6)
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ")
    assert re.match("hint: (check the path: |give the folder|give the CA's folder)", hint), hint


def test_commands_to_copy_quote_paths(elsewhere, capsys):
    folder = "a b"
    assert run(["node", "init", "h", "--federation", "f", "--coordinator", "h:1", "--dir", folder]) == 0
    assert "fedsecure node enroll --dir 'a b' --cert" in capsys.readouterr().out
    (elsewhere / folder / "tls.key").chmod(0o644)
    (elsewhere / folder / "tls.crt").write_text("x")
    assert run(["node", "check", "--dir", folder]) == 6
    assert re.search(r"hint: chmod 600 '.*/a b/tls\.key'", capsys.readouterr().err)
