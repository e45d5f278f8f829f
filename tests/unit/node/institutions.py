"""The folders of three institutions, and the commands of ``fedsecure node cohort`` that their people type."""

from __future__ import annotations

import json

from fedsecure.cli import run
from fedsecure.crypto.signatures import load_identity
from fedsecure.secagg.cohort.manifest import read_manifest
from fedsecure_node.cli.first_steps import init_node

NODES = ("hospital-a", "hospital-b", "hospital-c")


class Institutions:
    """The folders of three nodes, and the commands that their people type."""

    def __init__(self, root, capsys):
        self.root, self._capsys = root, capsys
        for name in NODES:
            init_node(self.folder(name), node=name, federation="heart-study", coordinator="localhost:1")
        self.file = root / "cohort.json"

    def folder(self, node):
        return self.root / node

    def key(self, node):
        return self.folder(node) / "identity.pub"

    def identity(self, node):
        return load_identity(self.folder(node) / "identity.key")

    def type(self, *words, at="hospital-a", code=0):
        """One command line; stdout on success, else the error's line with its hint."""
        where = ["--dir", str(self.folder(at))] if words[0] != "merge" else []
        self._capsys.readouterr()
        assert run(["node", "cohort", *map(str, words), *where]) == code, self._capsys.readouterr()
        out, err = self._capsys.readouterr()
        if not code:
            return out
        if "--json" not in words:
            before, sign, fault = err.partition("error: ")
            assert sign, err
            assert fault.count("\n") <= 2
            assert "hint: " in fault or "cohort.json: " in fault  # a malformed file's line says what is allowed
            assert all(line.startswith(("warning: ", "The digest, as another")) for line in before.splitlines())
        return err

    def form(self, cohort="cardiology", *more, at="hospital-a", code=0, out=None):
        others = [f"--node={n}={self.key(n)}" for n in NODES if n != at]
        return self.type("form", cohort, *others, "--out", out or self.file, *more, at=at, code=code)

    def agree(self, *version, cohort="cardiology"):
        """A manifest that all signed, in ``file``."""
        self.file.unlink(missing_ok=True)
        self.form(cohort, *version)
        for node in NODES:
            self.type("sign", self.file, at=node)
        return read_manifest(self.file)

    def trusted(self, *version, cohort="cardiology", at="hospital-a"):
        """A manifest that all signed, trusted by one of them."""
        manifest = self.agree(*version, cohort=cohort)
        self.type("trust", self.file, "--digest", manifest.digest.hex(), at=at)
        return manifest

    def pinned(self, node="hospital-a"):
        return [c["digest"] for c in json.loads(self.type("show", "--json", at=node))["cohorts"]]
