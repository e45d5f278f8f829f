"""What a person at a terminal sees of a sweep: what it would take, a bar with the time that is left while it runs, a
table at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fedsecure.commands.output import note, say
from fedsecure_attacks.cli.progress import minutes
from fedsecure_attacks.mechanism.costs import Clock
from fedsecure_attacks.mechanism.planning import CHANCE
from fedsecure_attacks.mechanism.scoring import PRIMARY
from fedsecure_attacks.mechanism.sweep import Finished, Watch
from fedsecure_attacks.statistics.roc import Rate

__all__ = ["print_plan", "print_report", "watching"]


class _Said(Watch):
    """A line for each cell, on stderr."""

    def __init__(self) -> None:
        self._left: float | None = None

    def began(self, what: str) -> None:
        note(f"{what} …")

    def moved(self, clock: Clock) -> None:
        self._left = clock.left

    def finished(self, done: Finished, number: int, of: int) -> None:
        primary = done.result.attacks[PRIMARY]
        left = f"; about {minutes(self._left)} left" if self._left and number < of else ""
        said = " (read)" if done.read else ""
        note(f"cell {number} of {of}{said}: {done.cell.words}: area {primary.auc:.3f}{left}")


class _Bar(_Said):
    """The same, above a bar."""

    def __init__(self, progress: Any, task: Any) -> None:
        super().__init__()
        self._progress, self._task = progress, task

    def began(self, what: str) -> None:
        self._progress.console.print(f"{what} …", markup=False, highlight=False)

    def moved(self, clock: Clock) -> None:
        super().moved(clock)
        left = f"{minutes(clock.left)} left" if clock.left else ""
        self._progress.update(self._task, completed=clock.done, total=clock.total, left=left)

    def finished(self, done: Finished, number: int, of: int) -> None:
        primary = done.result.attacks[PRIMARY]
        said = " (read)" if done.read else ""
        self._progress.console.print(
            f"cell {number} of {of}{said}: {done.cell.words}: area {primary.auc:.3f}", markup=False, highlight=False
        )


@contextmanager
def watching(*, quiet: bool) -> Iterator[Watch]:
    """What a sweep is to tell its progress to: stderr, as a bar where that is a terminal, or nobody."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    if quiet:
        yield Watch()
        return
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _Said()
        return
    columns = (
        TextColumn("condensing and attacking"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield _Bar(progress, progress.add_task("", total=None, left=""))


def print_report(report: dict[str, Any], cells: Sequence[Finished]) -> None:
    """The verdict, the controls, the notes, and a line for each cell."""
    say(f"{report['verdict']}: {report['reason']}")
    for name, control in report["controls"].items():
        say(f"control {name}: {'as it must be' if control['passed'] else 'FAILED'}: {control['found']}")
    for line in report["notes"]:
        say(f"note: {line}")
    if not cells:
        return
    head = ("ipc", "init", "sigma", "rounds", "curve", "residual", "accuracy", "area", "95 %", "TPR", "verdict")
    rows = [head, *(_row(one, raw) for one, raw in zip(cells, report["sweep"], strict=True))]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    for row in rows:
        say("  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)))
    fpr = report["plan"]["thresholds"]["fpr"]
    say(f"area and TPR (at a false-positive rate of {fpr:g}): of the attack '{PRIMARY}', fixed beforehand")


def _row(one: Finished, raw: dict[str, Any]) -> tuple[str, ...]:
    attack, setting = one.result.attacks[PRIMARY], one.cell.setting
    rate = f"{attack.tpr.value:.3f}" if isinstance(attack.tpr, Rate) else "–"
    between = "–" if attack.interval is None else f"{attack.interval.low:.3f}..{attack.interval.high:.3f}"
    return (
        str(setting.ipc or "–"), setting.init, f"{setting.sigma:g}", str(one.cell.rounds), one.cell.curve,
        f"{one.result.residual:.3g}", "–" if one.result.accuracy is None else f"{one.result.accuracy:.3f}",
        f"{attack.auc:.3f}", between, rate, raw["verdict"],
    )  # fmt: skip


def print_plan(found: dict[str, Any]) -> None:
    """For a person."""
    say(
        f"{found['cells']} cells, {found['shadows']} shadows and {found['sets_of_others']} sets of other people"
        + (f"; {found['cells_in_the_cache']} cells are in the cache" if found["cells_in_the_cache"] else "")
    )
    seconds = found["seconds_of_one_processor"]
    say(
        f"time: about {minutes(seconds / found['jobs'])} of {found['jobs']} idle processors ({minutes(seconds)} of one)"
    )
    for line in found["notes"]:
        say(f"note: {line}")
    say(f"people: {found['members']} members and as many others in each cell, over its shadows")
    needed, accepted = found["needed"], found["plan"]["thresholds"]
    policy = f"a rate of at most {accepted['tpr']:g} at {accepted['fpr']:g} and an area of at most {accepted['auc']:g}"
    if needed["members"] is None:
        say(f"to say that none was detected ({policy}): {needed['reason']}")
    else:
        say(
            f"to say that none was detected ({policy}): {needed['members']} members and {needed['nonmembers']} others, "
            f"{found['shadows_needed']} shadows of this pool; chance with what is planned "
            f"{found['chance_to_say_none_detected']:.2f}"
        )
    least = found["smallest_area_seen"]
    say(f"leak that is seen with a chance of {CHANCE:g}: " + ("none" if least is None else f"an area of {least:.3f}"))
    for area, chance in found["chance_to_see_an_area_of"].items():
        say(f"chance to see an area of {area}: {chance:.2f}")
    planted = found["planted_needed"]
    say("copied people that stand out in one shadow: " + ("none would" if planted is None else f"{planted} and more"))
    say(f"largest epsilon that could be certified: {found['largest_certifiable_epsilon']:.2f}")
