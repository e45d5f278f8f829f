"""The table at the end of a demonstration."""

from __future__ import annotations

from typing import Any

from fedsecure.commands.demo.report import _accuracy_table


def result(**accuracies: list[float | None]) -> dict[str, Any]:
    methods = {
        name: {"rounds": [{"accuracy": a, "bytes_up": 10} for a in found], "final_system_accuracy": 0.9}
        for name, found in accuracies.items()
    }
    return {"methods": methods, "routed": {}}


def test_a_method_that_no_round_can_measure_is_explained() -> None:
    table = _accuracy_table(result(fedavg=[0.5, 0.6], fedspm=[None, None]))
    assert [list(column.cells) for column in table.columns][1:4] == [["0.500", "–"], ["0.600", "–"], ["0.900", "0.900"]]
    assert "not measured. No round of fedspm can be" in str(table.caption)


def test_nothing_is_explained_where_rounds_are_measured() -> None:
    assert _accuracy_table(result(fedavg=[0.5, 0.6], fedaf=[None, 0.7])).caption is None
