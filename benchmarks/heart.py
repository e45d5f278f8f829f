"""FedSPM, FedDRM and FedAvg on the heart-disease records of four hospitals, over seeds.

The records are not part of the repository: see ``examples/heart-disease/README.md``. They are looked for there, or in
the folder that the environment variable ``FEDSECURE_HEART_DISEASE`` names.
"""

from __future__ import annotations

import argparse
import os
import tomllib
from pathlib import Path
from typing import Any

from cells import run_cell, table

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "heart-disease"
OUT = Path(__file__).resolve().parent / "out" / "heart"
METHODS = ("fedavg", "feddrm", "fedspm")


def plan_of(method: str, seed: int, records: Path) -> dict[str, Any]:
    """The example's plan with another seed, and the records' folder written out."""
    plan = tomllib.loads((EXAMPLE / f"heart-{method}.toml").read_text(encoding="utf-8"))
    for node, source in plan["simulation"]["partition"]["nodes"].items():
        path = records / str(source["path"])
        if not path.is_file():
            raise SystemExit(f"{path}: no records of {node}; {EXAMPLE / 'README.md'} says where to get them")
        source["path"] = str(path)
    return {**plan, "seed": seed, "randomness": "plan"}


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    seeds = parser.parse_args().seeds
    records = Path(os.environ.get("FEDSECURE_HEART_DISEASE", EXAMPLE)).resolve()
    text = table(
        (method, run_cell(OUT / method / f"seed{seed}", plan_of(method, seed, records)))
        for method in METHODS
        for seed in seeds
    )
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "table.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
