"""Generate ``fedsecure/*/v1/*_pb2*`` from the ``.proto`` files; with ``--check``, fail when what is checked in
differs. A file without services gets no gRPC module, so its package need not import grpc."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


def generate(out: Path) -> list[Path]:
    """Write the generated modules under ``out``; returns their paths relative to it."""
    protos = sorted(HERE.rglob("*.proto"))
    served = [p for p in protos if any(line.startswith("service ") for line in p.read_text("utf-8").splitlines())]
    for files, options in (
        (protos, [f"--python_out={out}", f"--pyi_out={out}"]),
        (served, [f"--grpc_python_out={out}"]),
    ):
        if protoc.main(["protoc", f"-I{HERE}", *options, *map(str, files)]) != 0:
            raise SystemExit("protoc failed")
    return sorted(p.relative_to(out) for p in out.rglob("*_pb2*.py*"))


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        generate(ROOT)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        fresh = generate(Path(folder))
        stale = [
            p for p in fresh if not (ROOT / p).exists() or (ROOT / p).read_bytes() != (Path(folder) / p).read_bytes()
        ]
    if stale:
        print("out of date, run `make proto`: " + ", ".join(map(str, stale)), file=sys.stderr)  # noqa: T201
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
