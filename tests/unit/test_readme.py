"""README's claims that can be checked by reading: help blocks, exit codes, links, and the tests it names."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fedsecure.config import validate
from fedsecure.policy import Policy

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted(
    page
    for page in ROOT.rglob("*.md")
    if not any(part[0] == "." or part in {"demo-out", "audit-demo-out", "out"} for part in page.relative_to(ROOT).parts)
)


def test_help_blocks_and_exit_codes_are_current() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "update_help.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"`[^`\n]*`", "", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", ["README.md", "SECURITY.md", "docs/secagg.md"])
def test_every_test_that_a_claim_names_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[a-z_/]+\.py)(?:::(\w+))?`", text)
    assert named
    for path, function in named:
        assert (ROOT / path).is_file(), path
        if function:
            assert f"def {function}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{function}"


def _examples() -> list[Path]:
    found = [p for p in ROOT.rglob("*.toml") if not {".venv", "demo-out", "out"} & set(p.relative_to(ROOT).parts)]
    return sorted(p for p in found if p.name != "pyproject.toml")


@pytest.mark.parametrize("path", _examples(), ids=[str(p.relative_to(ROOT)) for p in _examples()])
def test_every_example_toml_is_accepted_by_the_real_parser(path: Path) -> None:
    from fedsecure.config import validate
    from fedsecure.plan import load_plan
    from fedsecure.policy import load_policy

    if path.name.startswith("policy"):
        assert load_policy(path).plans is not None
    elif path.name.startswith("node"):
        from fedsecure_node.settings import NodeSettings

        validate(NodeSettings, tomllib.loads(path.read_text(encoding="utf-8")), str(path))
    elif path.name.startswith("coordinator"):
        from fedsecure_coordinator.settings import CoordinatorSettings

        validate(CoordinatorSettings, tomllib.loads(path.read_text(encoding="utf-8")), str(path))
    elif path.name.startswith("audit"):
        from fedsecure_attacks.mechanism.sweepfile import load_sweep, merged

        assert merged(load_sweep(path), {}, str(path)).shadows >= 4
    else:
        assert load_plan(path)[0].rounds >= 1


def test_what_readme_asks_make_for_is_there_and_in_its_help() -> None:
    told = subprocess.run(
        ["make", "-s", "-C", str(ROOT), "help"], capture_output=True, text=True, timeout=240, check=False
    ).stdout
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    asked = set(re.findall(r"^\$ make ([a-z-]+)", README, re.MULTILINE))
    assert {"install", "demo", "test"} <= asked
    for target in asked:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
        assert re.search(rf"^make {target} ", told, re.MULTILINE), target


def test_pip_is_never_asked_for_before_its_environment_is_made() -> None:
    (line,) = [line for line in README.splitlines() if "pip install torch" in line]
    assert line.index("-m venv .venv") < line.index(".venv/bin/pip install torch")


def test_the_policy_for_routed_prediction_allows_its_methods_and_names_an_analyst() -> None:
    section = README[README.index("### Routed prediction") :]
    (block,) = re.findall(r"```toml\n(.*?)```", section[: section.index("\n## ")], re.DOTALL)
    policy = validate(Policy, {"format": 1, **tomllib.loads(block)}, "README")
    assert {"fedspm", "feddrm"} <= set(policy.plans.methods)
    assert policy.prediction.analysts
