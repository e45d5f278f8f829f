"""Messages about configuration speak of the file's keys, in words, once for each fault."""

from __future__ import annotations

import pytest
from pydantic import Field

from fedsecure.config import Settings, named_pattern, validate
from fedsecure.errors import ConfigError
from fedsecure.plan import Plan


class Inner(Settings):
    low: float
    name: str = Field("x", pattern=named_pattern("^[a-z]$", "one lower-case letter"))


class Outer(Settings):
    rows: tuple[Inner, ...] = Field(min_length=1, max_length=2)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({"rows": [{"low": "a"}]}, "here: rows.0.low: 'a' should be number"),
        ({"rows": []}, "here: rows: has too few entries (allowed: >= 1)"),
        ({"rows": [{"low": 1}] * 3}, "here: rows: has too many entries (allowed: <= 2)"),
        ({"rows": [{"low": 1, "name": "AB"}]}, "here: rows.0.name: 'AB' is not one lower-case letter"),
        ({"rows": [{"low": 1, "nam": "a"}]}, "here: rows.0.nam: unknown key (known: low, name)"),
        ({}, "here: rows: missing"),
    ],
)
def test_each_fault_once_in_words(raw: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate(Outer, raw, "here")
    assert str(caught.value) == says


def test_many_faults_point_to_an_example() -> None:
    with pytest.raises(ConfigError) as caught:
        validate(Plan, {}, "plan.toml")
    assert "plan example" in caught.value.hint


def test_one_expression_can_mean_two_things_each_in_its_own_words():
    class Both(Settings):
        first: str = Field("a", pattern=named_pattern(r"^[a-c]$", "a first thing"))
        second: str = Field("a", pattern=named_pattern(r"^[a-c]$", "a second thing"))
        third: str = Field("a", pattern=named_pattern(r"^[a-c]$", "a first thing"))

    assert validate(Both, {"first": "b", "second": "c", "third": "a"}, "both").second == "c"
    with pytest.raises(ConfigError, match="first: 'x' is not a first thing") as caught:
        validate(Both, {"first": "x", "second": "y", "third": "z"}, "both")
    assert "second: 'y' is not a second thing" in str(caught.value)
    assert "third: 'z' is not a first thing" in str(caught.value)
