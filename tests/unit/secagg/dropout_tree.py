"""Every session of a cohort, whoever vanishes when, as one tree: sessions that are the same up to a leg share it, and
the process forks where they part, so that each goes on with machines of its own.

    python dropout_tree.py FILE SEED NODES AWAY_0 AWAY_1 [MOST]

walks those sessions that end in a sum and in which AWAY_0 of NODES vanish before leg 0 and AWAY_1 before leg 1 ("any":
however many). With MOST it walks those in which at most so many vanish, whether they end in a sum or not. Each adds a
line of JSON to FILE, its drop-outs, once it was found to end as it is due. One that does not ends the walk, with exit
code 1. A node that vanishes in a leg has answered it here, and the answer is lost: for the others that is the same.
"""

from __future__ import annotations

import copy
import gc
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import combinations
from pathlib import Path

from rehearsal import STREAMS, Rehearsal, breaks_off, check_end, deliver_part

from fedsecure.errors import SecAggError
from fedsecure.secagg.machines.coordinator import SecAggCoordinator
from fedsecure.secagg.machines.node import SecAggNode
from fedsecure.secagg.machines.session import deliver
from fedsecure.secagg.machines.vectors import Masked


class Walk:
    """The tree of one cohort. ``away``: how many nodes vanish before leg 0, before leg 1; ``None``: however many.
    ``most``: how many may vanish in all; ``None``: as many as a sum can do without."""

    def __init__(self, rehearsal: Rehearsal, away: tuple[int | None, ...], out: Path, most: int | None = None) -> None:
        self.rehearsal, self.away, self.out = rehearsal, away, out
        self.most = len(rehearsal.names) - rehearsal.threshold if most is None else most

    def go_on(self, coordinator: SecAggCoordinator, nodes: Mapping[str, SecAggNode], vanish: dict[str, int]) -> None:
        """Every session that goes on from here, where a leg is open that nobody has answered yet."""
        if coordinator.done:
            self._end(coordinator, nodes, vanish)
            return
        leg = coordinator.leg
        answers = {name: nodes[name].answer(leg, coordinator.message(name)) for name in coordinator.waiting}
        going_on = []
        for lost in self._lost(leg, tuple(answers), gone=len(vanish)):
            if len(self.rehearsal.names) - len(vanish) - len(lost) >= self.rehearsal.threshold:
                going_on.append(lost)
                continue
            failing = copy.deepcopy(coordinator)  # no node is asked again: a copy does, without a process
            with suppress(SecAggError):
                close_leg(failing, answers, lost)
            self._end(failing, nodes, vanish | dict.fromkeys(lost, leg))
        *others, last = going_on
        for lost in others:
            if os.fork() == 0:
                with ending_with_the_process():
                    close_leg(coordinator, answers, lost)
                    self.go_on(coordinator, nodes, vanish | dict.fromkeys(lost, leg))
            elif os.wait()[1]:
                raise SystemExit(1)  # the child said why
        close_leg(coordinator, answers, last)
        self.go_on(coordinator, nodes, vanish | dict.fromkeys(last, leg))

    def _end(self, coordinator: SecAggCoordinator, nodes: Mapping[str, SecAggNode], vanish: dict[str, int]) -> None:
        check_end(self.rehearsal, coordinator, nodes, vanish)
        with self.out.open("a") as file:
            file.write(json.dumps(vanish, sort_keys=True) + "\n")

    def _lost(self, leg: int, names: tuple[str, ...], *, gone: int) -> Iterator[tuple[str, ...]]:
        """Whose answers may be lost in ``leg``, where ``gone`` nodes vanished before."""
        most = self.most - gone
        due = self.away[leg] if leg < len(self.away) else None
        for count in range(most + 1) if due is None else (due,):
            yield from combinations(names, count)


def close_leg(coordinator: SecAggCoordinator, answers: Mapping[str, bytes | Masked], lost: Collection[str]) -> None:
    """Hand over all answers to the open leg but those that are lost, or break off, and close it."""
    for name, answer in answers.items():
        if name not in lost:
            deliver(coordinator, name, coordinator.leg, answer)
        elif isinstance(answer, Masked) and breaks_off(name):
            deliver_part(coordinator, name, answer)
    coordinator.advance()


@contextmanager
def ending_with_the_process() -> Iterator[None]:
    """The whole work of a child: nothing of what its parent has still to do is done in it."""
    code = 1
    try:
        yield
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)


def walked(out: Path, *words: object) -> list[dict[str, int]]:
    """The drop-outs of every session that this program walks when it is given ``words``: in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "error", __file__, str(out), *map(str, words)],
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        check=False,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in out.read_text().splitlines()]


def in_order(found: Iterable[Mapping[str, int]]) -> list[list[tuple[str, int]]]:
    """Drop-outs of many sessions, to be compared."""
    return sorted(sorted(vanish.items()) for vanish in found)


def main(out: str, seed: str, nodes: str, away_0: str, away_1: str, most: str = "") -> None:
    rehearsal = Rehearsal(int(nodes), seed=int(seed), streams=STREAMS[:2])
    away = tuple(None if count == "any" else int(count) for count in (away_0, away_1))
    walk = Walk(rehearsal, away, Path(out), int(most) if most else None)
    gc.freeze()  # a collection in a child would copy every page of its parent
    walk.go_on(rehearsal.coordinator(), rehearsal.nodes(), {})


if __name__ == "__main__":
    main(*sys.argv[1:])
