"""A node whose node.toml and certificate name different participants dials nobody, and check says the same as run."""

from __future__ import annotations

import pytest

from fedsecure.cli import run as command


@pytest.mark.parametrize(
    ("key", "ours", "theirs"),
    [("node", "hospital-a", "hospital-b"), ("federation", "heart-study", "lung-study")],
)
def test_check_and_run_agree_before_anybody_is_dialled(site, script, capsys, key, ours, theirs):
    path = site.folder / "node.toml"
    path.write_text(path.read_text().replace(f'{key} = "{ours}"', f'{key} = "{theirs}"'))
    said = []
    for verb in ("check", "run"):
        assert command(["node", verb, "--dir", str(site.folder)]) == 3
        said.append([line for line in capsys.readouterr().err.splitlines() if line.startswith(("error:", "hint:"))])
    assert said[0] == said[1]
    assert said[0][0].startswith("error: the certificate is that of node hospital-a of heart-study, node.toml says ")
    assert theirs in said[0][0]
    assert said[0][1] == "hint: correct node.toml, or enrol this node"
    assert script.hellos == 0
