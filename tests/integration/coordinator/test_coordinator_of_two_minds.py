"""A coordinator whose coordinator.toml names another federation than its certificate serves nobody."""

from __future__ import annotations


def test_another_federation_in_the_settings(coordinator_folder, run_cli):
    path = coordinator_folder / "coordinator.toml"
    text = path.read_text()
    line = next(line for line in text.splitlines() if line.startswith("federation = "))
    path.write_text(text.replace(line, 'federation = "lung-study"'))
    said = run_cli("run", "--dir", coordinator_folder, code=3)
    assert "error: the certificate is that of the coordinator of " in said
    assert "coordinator.toml says the coordinator of lung-study" in said
    assert "hint: correct coordinator.toml" in said
