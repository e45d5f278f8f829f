"""Class names map by name, as text, never by position."""

import pytest

from fedsecure.data.classes import IGNORED, UNKNOWN, ClassNames, canonical
from fedsecure.errors import DataError


def test_a_name_that_is_not_mapped_stands_for_itself() -> None:
    names = ClassNames({"Katze": "cat"}, ("misc",), ("cat", "dog"), "here")
    assert [names.index(n) for n in ("Katze", "cat", "dog", "misc", "bird")] == [0, 0, 1, IGNORED, UNKNOWN]


def test_own_names_may_swap_the_plans() -> None:
    names = ClassNames({"a": "b", "b": "a"}, (), ("a", "b"), "here")
    assert [names.index("a"), names.index("b")] == [1, 0]


@pytest.mark.parametrize(
    ("left", "right"),
    [("3", "3.0"), ("3", " 3 "), ("-7", "-7.00"), ("0", "0.0"), ("caf\u00e9", "cafe\u0301")],
)
def test_spellings_that_are_equal_as_text(left: str, right: str) -> None:
    assert canonical(left) == canonical(right)


@pytest.mark.parametrize(("left", "right"), [("3", "03"), ("3", "3.1"), ("a", "A"), ("1", "1e0"), ("-0", "0")])
def test_spellings_that_stay_different(left: str, right: str) -> None:
    assert canonical(left) != canonical(right)


def test_unknown_names_are_listed_with_the_plans() -> None:
    names = ClassNames({}, (), ("cat", "dog"), "records.npz")
    with pytest.raises(DataError, match=r"records\.npz: folders 'Cat', 'bird' not among .* 'cat', 'dog'") as caught:
        names.indices(["bird", "dog", "Cat"], "folders")
    assert "ignore" in caught.value.hint


def test_a_great_many_unknown_names_are_counted_not_printed() -> None:
    names = ClassNames({}, (), ("cat", "dog"), "here")
    with pytest.raises(
        DataError, match="labels that are not among the plan's classes .*: 100 different ones$"
    ) as caught:
        names.indices([f"patient-{i}" for i in range(100)], "labels")
    assert "patient" not in str(caught.value)


def test_a_mapping_to_an_unknown_class_is_refused_even_when_unused() -> None:
    with pytest.raises(DataError, match="classes maps to 'bird', not among the plan's classes 'cat', 'dog'"):
        ClassNames({"x": "bird"}, (), ("cat", "dog"), "here")


def test_a_name_both_mapped_and_ignored_is_refused() -> None:
    with pytest.raises(DataError, match="'x' in classes and in ignore"):
        ClassNames({"x": "cat"}, ("x",), ("cat", "dog"), "here")


def test_two_spellings_of_one_name_with_two_meanings_are_refused() -> None:
    with pytest.raises(DataError, match="two spellings"):
        ClassNames({"1": "cat", "1.0": "dog"}, (), ("cat", "dog"), "here")


def test_a_class_of_the_plan_can_be_ignored() -> None:
    assert ClassNames({}, ("dog",), ("cat", "dog"), "here").index("dog") == IGNORED
