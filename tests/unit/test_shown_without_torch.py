"""A person looks at a plan in a second, and not in five: PyTorch is not imported for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fedsecure.cli import run
from fedsecure.plan import load_plan
from fedsecure.plan.examples import EXAMPLES, read_example
from fedsecure_node.settings import load_settings
from fedsecure_node.store.store import Store

SCRIPT = """
import sys
from fedsecure.cli import run

node, *plans = sys.argv[1:]
for plan in plans:
    assert run(["plan", "show", plan]) == 0
    assert run(["plan", "check", plan]) == 0
assert run(["node", "plans", "--dir", node]) == 0
heavy = {"torch", "torchvision", "sklearn", "opacus", "matplotlib"}
print(sorted({module.split(".")[0] for module in sys.modules} & heavy), file=sys.stderr)
"""


def test_plans_are_shown_without_torch(tmp_path: Path) -> None:
    node, plans = tmp_path / "node", [tmp_path / f"{name}.toml" for name in EXAMPLES]
    assert run(["node", "init", "a", "--dir", str(node), "--federation", "f", "--coordinator", "localhost:1"]) == 0
    with Store(load_settings(node).store) as store:
        for path in plans:
            path.write_text(read_example(path.stem))
            plan = load_plan(path)[0]
            store.plans.record(plan, plan.digest(), "joining", 1)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(node), *map(str, plans)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == "[]"
    assert done.stdout.count("leaves in the whole run") == 2 * len(plans)
