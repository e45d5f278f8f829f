"""Methods side by side, from plans in ``benchmarks/plans``; resumable.

Every plan runs through ``fedsecure simulate`` into ``benchmarks/out/<plan>``; a plan that was cut short goes on from
its last finished round, one that is finished is only read. The table is printed, and written to
``benchmarks/out/<name>.md``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="of the table")
    parser.add_argument("plans", nargs="+", help="names in benchmarks/plans, without .toml")
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    rows = []
    for name in arguments.plans:
        out = HERE / "out" / name
        plan = HERE / "plans" / f"{name}.toml"
        command = [sys.executable, "-m", "fedsecure", "simulate", str(plan), "--out", str(out)]
        if code := subprocess.run([*command, "--threads", str(arguments.threads)], check=False).returncode:
            return code
        rows.append(json.loads((out / "result.json").read_text(encoding="utf-8")))
    text = table(rows)
    (HERE / "out" / f"{arguments.name}.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


def table(results: list[dict[str, object]]) -> str:
    """Markdown: accuracy after each round, the last and the best, seconds and megabytes."""
    most = max(len(r["rounds"]) for r in results)  # type: ignore[arg-type]
    head = ["plan", "method", *(f"round {i + 1}" for i in range(most)), "last", "best", "seconds", "MB up", "MB down"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for result in results:
        rounds: list[dict[str, float]] = result["rounds"]  # type: ignore[assignment]
        cells = [str(result["plan"]), str(result["method"])]
        cells += [f"{r['accuracy']:.3f}" for r in rounds] + ["–"] * (most - len(rounds))
        cells += [f"{result['final_accuracy']:.3f}", f"{result['best_accuracy']:.3f}"]
        cells += [f"{sum(r['seconds'] for r in rounds):.0f}"]
        cells += [f"{sum(r[key] for r in rounds) / 1e6:.1f}" for key in ("bytes_up", "bytes_down")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
