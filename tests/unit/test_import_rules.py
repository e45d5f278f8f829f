"""Who may import whom (docs/architecture.md), held by reading the code, and what ``--help`` may load, by running it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "fedsecure": ROOT / "fedsecure",
    "fedsecure_node": ROOT / "node" / "fedsecure_node",
    "fedsecure_coordinator": ROOT / "coordinator" / "fedsecure_coordinator",
    "fedsecure_attacks": ROOT / "attacks" / "fedsecure_attacks",
}
#: part of fedsecure -> the parts of fedsecure it may import. ``errors`` is open to all.
ALLOWED = {
    "errors": set(),
    "rootlogger": set(),
    "warned": set(),
    "writeahead": set(),
    "files": set(),
    "locks": {"files"},
    "threads": set(),
    "signals": {"threads"},
    "tensors": set(),
    "crypto": {"files"},
    "randomness": set(),
    "text": set(),
    "toml_file": {"files"},
    "config": {"files", "toml_file"},
    "compute": {"config"},
    "daemon_settings": {"config", "crypto", "data", "files"},
    "schema": {"tensors"},
    "method": {"schema", "tensors", "data", "privacy"},
    "privacy": {
        "crypto",
        "plan",
        "models",
        "optimizers",
        "condensation",
        "method",
        "schema",
        "tensors",
        "files",
        "locks",
        "randomness",
        "rootlogger",
        "text",
        "warned",
    },
    "plan": {"config", "data", "files", "secagg"},
    "privacy_rules": {"config", "plan"},
    "audit_rules": {"config"},
    "policy": {"audit_rules", "config", "files", "plan", "privacy_rules", "text"},
    "masked_plan": {"method", "schema", "plan", "secagg"},
    "data": {"config", "files", "plan", "randomness", "tensors", "text", "warned"},
    "parameter_specs": {"plan", "schema"},
    "models": {"plan", "tensors", "method", "schema", "randomness", "parameter_specs"},
    "mixture": set(),
    "outliers": set(),
    "optimizers": set(),
    "condensation": {"models", "optimizers", "plan", "randomness", "tensors", "method", "schema", "data"},
    "methods": {
        "method",
        "schema",
        "parameter_specs",
        "condensation",
        "mixture",
        "models",
        "optimizers",
        "plan",
        "tensors",
        "randomness",
        "data",
        "privacy",
    },
    "evaluation": {"data", "models", "plan", "tensors"},
    "system_metrics": {"data", "evaluation", "method", "schema", "plan", "tensors"},
    "rounds": {"config", "plan"},
    "masked_simulation": {"crypto", "masked_plan", "method", "schema", "plan", "secagg", "tensors"},
    "private_simulation": {"data", "plan", "privacy", "tensors"},
    "simulation": {
        "data",
        "evaluation",
        "masked_simulation",
        "private_simulation",
        "method",
        "schema",
        "methods",
        "plan",
        "randomness",
        "rounds",
        "tensors",
    },
    "wire": {"method", "schema", "tensors", "crypto", "text", "threads"},
    "secagg": {"config", "crypto", "files", "schema", "tensors", "text"},
    "prediction": {"crypto", "method", "schema", "tensors", "wire"},
    "analyst": {
        "config",
        "crypto",
        "daemon_settings",
        "data",
        "files",
        "method",
        "schema",
        "plan",
        "prediction",
        "tensors",
        "wire",
    },
}
#: The floors of secure aggregation: each part imports those above it in this list and nothing below.
SECAGG_FLOORS = (("v1",), ("cohort",), ("values",), ("protocol",), ("machines",))
#: The floors of a daemon, likewise: each part imports those above it in this list and nothing below.
COORDINATOR_FLOORS = (
    ("quota", "settings"),
    ("cohorts", "store"),
    ("runs",),
    ("masking",),
    ("service", "views", "work"),
    ("prediction", "setup"),
    ("daemon",),
    ("process",),
    ("cli_cohort",),
    ("cli",),
)
NODE_FLOORS = (
    ("keys", "text", "settings"),
    ("progress",),
    ("log",),
    ("store",),
    ("plans",),
    ("auditing",),
    ("preview", "checking"),
    ("egress",),
    ("link",),
    ("masking",),
    ("guarding",),
    ("spending",),
    ("computing",),
    ("work",),
    ("desk",),
    ("serving",),
    ("daemon",),
    ("assemble",),
    ("cli",),
)
#: The one part of a sibling that a sibling imports, and where: the audit of a release, in the node.
GATE, OF_THE_GATE = "fedsecure_attacks.gate", ("fedsecure_node.auditing", "fedsecure_node.cli.audits")
#: the composition root: may import anything, and nothing imports it.
ROOTS = {"cli", "commands", "__main__", "__init__"}
#: third-party package -> the only places that may import it.
RESERVED = {
    "cryptography": {"fedsecure.crypto"},
    "grpc": {"fedsecure.wire", "fedsecure.analyst", "fedsecure_node", "fedsecure_coordinator"},
    "opacus": {"fedsecure.privacy"},
    "socket": {
        "fedsecure.privacy.lease",
        "fedsecure.wire",
        "fedsecure_node",
        "fedsecure_coordinator",
        "fedsecure.commands",
    },
    "pickle": set(),
    "marshal": set(),
    "shelve": set(),
}


def modules() -> list[tuple[str, Path]]:
    found = []
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            if "v1" not in parts:
                found.append((".".join((package, *(p for p in parts if p != "__init__"))), path))
    return found


def imports(path: Path) -> list[tuple[str, bool]]:
    """(imported module, whether it stands at module level and outside TYPE_CHECKING)."""
    found: list[tuple[str, bool]] = []

    def walk(node: ast.AST, top: bool) -> None:
        for child in ast.iter_child_nodes(node):
            inner = top and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                inner = False
            if isinstance(child, ast.Import):
                found.extend((alias.name, inner) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{path}: relative import"
                base = child.module or ""
                found.extend((f"{base}.{alias.name}", inner) for alias in child.names)
            walk(child, inner)

    walk(ast.parse(path.read_text(encoding="utf-8")), True)
    return found


def part(module: str) -> str:
    pieces = module.split(".")
    return pieces[1] if len(pieces) > 1 else "__init__"


@pytest.mark.parametrize(("module", "path"), modules(), ids=[m for m, _ in modules()])
def test_dependency_rule(module: str, path: Path) -> None:
    package = module.split(".", maxsplit=1)[0]
    for imported, _ in imports(path):
        top = imported.split(".")[0]
        if top in RESERVED:
            allowed = RESERVED[top]
            assert any(module == a or module.startswith(a + ".") for a in allowed), f"{module} imports {top}"
        if top not in PACKAGES:
            continue
        if package == "fedsecure":
            if part(module) in ROOTS:
                continue
            assert top == "fedsecure", f"the library imports {imported}"
            target = part(imported)
            if target in {"__init__", "errors", "__version__", part(module)}:
                continue
            assert target in ALLOWED[part(module)], f"{module} imports {imported}"
        else:
            if imported.startswith(GATE) and any(module.startswith(m) for m in OF_THE_GATE):
                continue
            assert top in {"fedsecure", package}, f"{module} imports its sibling {imported}"
            if top == "fedsecure":
                allowed_root = module.endswith(".cli") or ".commands" in module or "cli" in module
                assert part(imported) not in ROOTS - {"__init__"} or allowed_root, f"{module} imports {imported}"


def test_the_rule_sees_a_planted_violation(tmp_path: Path) -> None:
    planted = tmp_path / "x.py"
    planted.write_text("def f():\n    import fedsecure_node.daemon\n    from fedsecure import simulation\n")
    assert [name for name, _ in imports(planted)] == ["fedsecure_node.daemon", "fedsecure.simulation"]


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys\nfrom fedsecure.cli import run\nassert run(['--help']) == 0\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'torchvision', 'sklearn', 'scipy', 'numpy', "
        "'grpc', 'cryptography', 'matplotlib'}), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=240)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("package", "floors"),
    [
        ("fedsecure.secagg", SECAGG_FLOORS),
        ("fedsecure_coordinator", COORDINATOR_FLOORS),
        ("fedsecure_node", NODE_FLOORS),
    ],
)
def test_floors(package: str, floors: tuple[tuple[str, ...], ...]) -> None:
    floor = {name: level for level, names in enumerate(floors) for name in names}

    def at(module: str) -> str:
        return module.removeprefix(f"{package}.").split(".")[0]

    inside = [(module, path) for module, path in modules() if module.startswith(f"{package}.")]
    assert len(inside) > len(floor)
    for module, path in inside:
        assert at(module) in floor, f"{module}: on no floor"
        for imported, _ in imports(path):
            if imported.startswith(f"{package}.") and at(imported) != at(module):
                assert floor[at(imported)] < floor[at(module)], f"{module} imports {imported}"
