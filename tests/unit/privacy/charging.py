"""What tests of the ledger charge, and processes that do so until they are stopped."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedsecure.errors import PrivacyBudgetExceeded
from fedsecure.privacy.entries import ChargedFor, Entry
from fedsecure.privacy.ledger import Ledger
from fedsecure.privacy.spend import Spend

WHAT = ChargedFor("ab" * 32, "heart", 0, "update", 0, "hospital-a", "csprng", "dp-sgd")
ONE = Spend(1.0, 1.0, 1)


def composed(history: Iterable[Spend], delta: float) -> float:
    """An epsilon that is easy to add up: 1 for each step at sigma 1."""
    return sum(spend.q * spend.steps / spend.sigma for spend in history)


def records(*names: str) -> tuple[bytes, ...]:
    """A digest for each name."""
    return tuple(name.encode().rjust(32, b"\0") for name in names)


def charge(ledger: Ledger, data_set: str, steps: int = 1, *, cap: float = 1e6, what: ChargedFor = WHAT) -> Entry:
    return ledger.charge(
        data_set, (Spend(1.0, 1.0, steps),), cap=cap, delta=1e-5, what=what, epsilon=composed
    )  # fmt: skip


def _charge_for_ever(path: Path, told: int) -> None:
    """Charge, and write the entry's hash to ``told`` only after that: as a node computes only after that."""
    with Ledger(path) as ledger:
        data_set = ledger.data_set(records("a", "b"))
        while True:
            os.write(told, f"{charge(ledger, data_set).hash}\n".encode())


def kill_many(path: Path, acknowledged: Path, kills: int, seed: int) -> None:
    """Let ``kills`` processes in turn charge, each until it is killed (kill -9) at a random moment of about its first
    three charges, and more until one was killed inside a transaction. Prints a line of JSON: how many, how many inside,
    and the faults found after."""
    moments, done, inside, faults = random.Random(seed), 0, 0, 0
    began = time.monotonic()
    with Ledger(path.with_name("rehearsal.db")) as ledger:
        data_set = ledger.data_set(records("a", "b"))
        for _ in range(3):
            charge(ledger, data_set)
    longest = time.monotonic() - began
    journal = path.with_name(f"{path.name}-journal")
    while done < kills or (not inside and done < 10 * kills):
        told = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if not (child := os.fork()):
            with contextlib.suppress(BaseException):
                _charge_for_ever(path, told)
            os._exit(1)
        os.close(told)
        time.sleep(moments.uniform(0.0, longest))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        done, inside = done + 1, inside + journal.exists()
        with Ledger(path) as ledger:
            held = {entry.hash for entry in ledger.entries()}
        paid = set(acknowledged.read_text().split())
        faults += not (os.WIFSIGNALED(status) and paid <= held and len(held) <= len(paid) + done)
    print(json.dumps({"kills": done, "inside": inside, "faults": faults}))


def charge_until_refused(path: Path, cap: float, gate: Path) -> None:
    """Charge one at a time until the cap refuses; prints how often it was paid."""
    paid = 0
    with Ledger(path) as ledger:
        data_set = ledger.data_set(records("a", "b"))
        while not gate.exists():
            time.sleep(0.001)
        with contextlib.suppress(PrivacyBudgetExceeded):
            while True:
                charge(ledger, data_set, cap=cap)
                paid += 1
    print(paid)


def hold(path: Path, names: Sequence[str]) -> None:
    """Hold a data set until the process is killed."""
    with Ledger(path) as ledger, ledger.lease(ledger.data_set(records(*names))):
        print("held", flush=True)
        time.sleep(600)


if __name__ == "__main__":
    verb, where, *rest = sys.argv[1:]
    if verb == "kill":
        kill_many(Path(where), Path(rest[0]), int(rest[1]), int(rest[2]))
    elif verb == "charge":
        charge_until_refused(Path(where), float(rest[0]), Path(rest[1]))
    else:
        hold(Path(where), rest)
