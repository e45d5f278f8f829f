"""The bar of a long batch: on a terminal's stderr alone, and never on stdout."""

from __future__ import annotations

import io
import sys

import pytest

from fedsecure.commands.answers import progress_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "records", "seen"), [(Terminal, 150, True), (Terminal, 64, False), (io.StringIO, 150, False)]
)
def test_who_sees_the_bar(monkeypatch, capsys, stream, records, seen):
    err = stream()
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    with progress_bar() as watch:
        for settled in range(0, records, 8):
            watch(settled, records)
        watch(records, records)
    assert (f"{records}/{records}" in err.getvalue()) is seen
    assert capsys.readouterr().out == ""
