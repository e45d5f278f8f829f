"""The privacy ledger as a picture: epsilon over time, for each history that it holds."""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from fedsecure.errors import ConfigError
from fedsecure.files import PUBLIC_FILE, shown, write_durably
from fedsecure_node.cli.budget_view import Account

__all__ = ["plot_budget"]

#: Suffixes that are written.
FORMATS = ("png", "svg", "pdf")


def plot_budget(accounts: Sequence[Account], path: Path) -> None:
    """Draw into ``path``, a PNG, SVG or PDF by its name: steps of epsilon as it was told at each charge, and the cap.
    Raises ``ConfigError`` without matplotlib or for another suffix, ``StoreError`` when it cannot be written."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise ConfigError(f"{shown(path)}: not a kind of picture that is written", hint="name a .png, .svg or .pdf")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError(
            "--plot: matplotlib is not installed", hint="pip install matplotlib, or read the table or --json"
        ) from None
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for account in accounts:
        _draw(axes, account)
    caps = {account.cap for account in accounts if account.cap is not None and account.charges}
    for cap in sorted(caps):
        axes.axhline(cap, color="black", linestyle="--", linewidth=1, label=f"cap {cap:g}")
    axes.set_xlabel("time (UTC)")
    axes.set_ylabel("epsilon of all that was spent")
    axes.set_ylim(bottom=0)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower right", fontsize="small")
    axes.tick_params(axis="x", labelrotation=20)
    drawn = io.BytesIO()
    figure.savefig(drawn, format=kind, dpi=150)
    write_durably(path, drawn.getvalue(), mode=PUBLIC_FILE)


def _draw(axes, account: Account) -> None:  # type: ignore[no-untyped-def]
    """One history. A clock that went back stands still here: the order is the ledger's."""
    charges = account.charges
    if not charges:
        return
    times = itertools.accumulate((entry.time_ms for entry in charges), max)
    when = [datetime.fromtimestamp(time / 1000, UTC) for time in times]
    spent = [entry.epsilon_after for entry in charges]
    axes.step([when[0], *when], [charges[0].epsilon_before, *spent], where="post", marker=".",
              label=f"data set {account.data_sets[-1].id[:12]}")  # fmt: skip
