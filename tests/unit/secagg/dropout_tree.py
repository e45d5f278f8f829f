"""Every session of a cohort that ends in a sum, whoever vanishes when, as one tree: sessions that are the same up to a
leg share it, and the process forks where they part, so that each goes on with machines of its own.

    python dropout_tree.py FILE SEED NODES AWAY_0 AWAY_1

walks those sessions in which AWAY_0 of NODES vanish before leg 0 and AWAY_1 before leg 1 ("any": however many). Each
adds a line of JSON to FILE, its drop-outs, once its sum was found to be the one that is due. One that fails ends the
walk, with exit code 1. A node that vanishes in a leg has answered it here, and the answer is lost: for the others that
is the same.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path

from rehearsal import STREAMS, Rehearsal, breaks_off, check_end, deliver_part

from fedsecure.secagg.coordinator import SecAggCoordinator
from fedsecure.secagg.node import SecAggNode
from fedsecure.secagg.session import deliver
from fedsecure.secagg.vectors import Masked


class Walk:
    """The tree of one cohort. ``away``: how many nodes vanish before leg 0, before leg 1; ``None``: however many."""

    def __init__(self, rehearsal: Rehearsal, away: tuple[int | None, ...], out: Path) -> None:
        self.rehearsal, self.away, self.out = rehearsal, away, out

    def go_on(self, coordinator: SecAggCoordinator, nodes: Mapping[str, SecAggNode], vanish: dict[str, int]) -> None:
        """Every session that goes on from here, where a leg is open that nobody has answered yet."""
        if coordinator.done:
            check_end(self.rehearsal, coordinator, nodes, vanish)
            with self.out.open("a") as file:
                file.write(json.dumps(vanish, sort_keys=True) + "\n")
            return
        leg = coordinator.leg
        answers = {name: nodes[name].answer(leg, coordinator.message(name)) for name in coordinator.waiting}
        *others, last = self._lost(leg, tuple(answers), gone=len(vanish))
        for lost in others:
            if os.fork() == 0:
                with ending_with_the_process():
                    self._lose(coordinator, nodes, vanish, answers, lost)
            elif os.wait()[1]:
                raise SystemExit(1)  # the child said why
        self._lose(coordinator, nodes, vanish, answers, last)

    def _lose(self, coordinator, nodes, vanish, answers: Mapping[str, bytes | Masked], lost: tuple[str, ...]) -> None:
        """Hand over all answers to the open leg but those that are lost, or break off; close it, and go on."""
        leg = coordinator.leg
        for name, answer in answers.items():
            if name not in lost:
                deliver(coordinator, name, leg, answer)
            elif isinstance(answer, Masked) and breaks_off(name):
                deliver_part(coordinator, name, answer)
        coordinator.advance()
        self.go_on(coordinator, nodes, vanish | dict.fromkeys(lost, leg))

    def _lost(self, leg: int, names: tuple[str, ...], *, gone: int) -> Iterator[tuple[str, ...]]:
        """Whose answers may be lost in ``leg``, for a sum to come of it."""
        most = len(self.rehearsal.names) - self.rehearsal.threshold - gone
        due = self.away[leg] if leg < len(self.away) else None
        for count in range(most + 1) if due is None else (due,):
            yield from combinations(names, count)


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


def main(out: str, seed: str, nodes: str, *away: str) -> None:
    rehearsal = Rehearsal(int(nodes), seed=int(seed), streams=STREAMS[:2])
    walk = Walk(rehearsal, tuple(None if count == "any" else int(count) for count in away), Path(out))
    gc.freeze()  # a collection in a child would copy every page of its parent
    walk.go_on(rehearsal.coordinator(), rehearsal.nodes(), {})


if __name__ == "__main__":
    main(*sys.argv[1:])
