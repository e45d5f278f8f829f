"""``analyst.toml``: what init writes is accepted; what does not fit is named by file and key."""

from __future__ import annotations

import pytest

from fedsecure.analyst.settings import init_analyst, load_settings
from fedsecure.errors import CertificateError, ConfigError


@pytest.fixture
def folder(tmp_path):
    init_analyst(tmp_path / "x", name="dr-weber", federation="heart", coordinator="localhost:7443")
    return tmp_path / "x"


def test_what_init_writes_is_read(folder):
    settings = load_settings(folder)
    assert (settings.analyst, settings.federation, settings.coordinator) == ("dr-weber", "heart", "localhost:7443")
    assert settings.tls.key == folder / "tls.key"
    assert settings.tls.crl is None
    reading = settings.reading()
    assert (reading.resize, reading.grey, reading.table.delimiter) == (False, False, ",")


def test_a_revocation_list_counts_once_it_is_there(folder):
    (folder / "crl.pem").write_text("")
    assert load_settings(folder).tls.crl == folder / "crl.pem"


def test_tables_are_written_as_the_settings_say(folder):
    path = folder / "analyst.toml"
    path.write_text(path.read_text() + '\n[table]\ndelimiter = ";"\ncolumns = { "age" = "Age (years)" }\n')
    table = load_settings(folder).reading().table
    assert (table.delimiter, table.columns) == (";", {"age": "Age (years)"})


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("[table]\ndelimiter = ';;'", "table: delimiter"),
        ("[table]\nlabel = 'y'", "table.label: unknown key"),
        ("[table]\npath = 'y.csv'", "table.path: unknown key"),
        ("[table]\nodd = 1", "odd: unknown key"),
        ("[other]\nx = 1", "other: unknown key"),
    ],
)
def test_faults_are_named(folder, line, fault):
    path = folder / "analyst.toml"
    path.write_text(path.read_text() + f"\n{line}\n")
    with pytest.raises(ConfigError, match=fault) as caught:
        load_settings(folder)
    assert "analyst.toml" in str(caught.value)


def test_nothing_is_overwritten(folder):
    before = (folder / "tls.key").read_bytes()
    with pytest.raises(ConfigError, match="exists already"):
        init_analyst(folder, name="dr-rot", federation="heart", coordinator="localhost:7443")
    (folder / "analyst.toml").unlink()
    with pytest.raises(CertificateError, match="exists already"):
        init_analyst(folder, name="dr-rot", federation="heart", coordinator="localhost:7443")
    assert (folder / "tls.key").read_bytes() == before
    assert not (folder / "analyst.toml").exists()
