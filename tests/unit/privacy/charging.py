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


def _acknowledged(path: Path) -> list[str]:
    return path.read_text().split()


def _await_charges(path: Path, count: int, *, longest_s: float = 60.0) -> None:
    """Wait until ``count`` charges have been acknowledged: work is awaited, not hoped for within a time."""
    latest = time.monotonic() + longest_s
    while len(_acknowledged(path)) < count:
        if time.monotonic() > latest:
            raise TimeoutError(f"{path}: fewer than {count} charges within {longest_s:g} s")
        time.sleep(0.0005)


def kill_many(path: Path, acknowledged: Path, kills: int, seed: int) -> None:
    """Let ``kills`` processes in turn charge, each until it is killed (kill -9) at a random moment of the charge that
    follows its first none to two, and more until one was killed inside a transaction. Prints a line of JSON: how many,
    how many inside, how many charges were awaited, and the faults found after."""
    moments, done, inside, awaited, faults = random.Random(seed), 0, 0, 0, 0
    with Ledger(path.with_name("rehearsal.db")) as ledger:
        data_set = ledger.data_set(records("a", "b"))
        charge(ledger, data_set)
        took = []
        for _ in range(5):
            began = time.monotonic()
            charge(ledger, data_set)
            took.append(time.monotonic() - began)
        longest = min(1.5 * min(took), 0.25)
    acknowledged.touch()
    journal = path.with_name(f"{path.name}-journal")
    while done < kills or (not inside and done < 10 * kills):
        before, least = len(_acknowledged(acknowledged)), moments.randrange(3)
        told = os.open(acknowledged, os.O_WRONLY | os.O_APPEND)
        if not (child := os.fork()):
            with contextlib.suppress(BaseException):
                _charge_for_ever(path, told)
            os._exit(1)
        os.close(told)
        try:
            _await_charges(acknowledged, before + least)
            time.sleep(moments.uniform(0.0, longest))
        finally:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        done, inside, awaited = done + 1, inside + journal.exists(), awaited + least
        with Ledger(path) as ledger:
            held = {entry.hash for entry in ledger.entries()}
        paid = set(_acknowledged(acknowledged))
        faults += not (os.WIFSIGNALED(status) and paid <= held and len(held) <= len(paid) + done)
    print(json.dumps({"kills": done, "inside": inside, "awaited": awaited, "faults": faults}))


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
