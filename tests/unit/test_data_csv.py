"""CSV tables, whole and odd. No message may hold what a cell says."""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedsecure.config import Settings, validate
from fedsecure.data import load_dataset
from fedsecure.data.dataset import Dataset
from fedsecure.data.settings import AnySource, CsvSource
from fedsecure.data.table import load_table_by
from fedsecure.errors import ConfigError, DataError
from fedsecure.plan.task import ImageTask, TableTask

TASK = TableTask.model_validate_json(
    """{"kind": "table", "classes": ["no", "yes"], "columns": [
    {"kind": "numeric", "name": "age", "low": 0, "high": 120, "mean": 50, "std": 20},
    {"kind": "categorical", "name": "sex", "levels": ["f", "m"]}]}"""
)
Load = Callable[..., Dataset]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def _load(content: str | bytes, task: TableTask = TASK, **options: object) -> Dataset:
        path = tmp_path / "data.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return load_dataset(CsvSource(kind="csv", path=path, **{"label": "sick", **options}), task)  # type: ignore[arg-type]

    return _load


def refuse(load: Load, content: str | bytes, match: str, task: TableTask = TASK, **options: object) -> DataError:
    with pytest.raises(DataError, match=match) as caught:
        load(content, task, **options)
    assert str(caught.value).startswith(str(caught.value).split("data.csv")[0] + "data.csv: ")
    return caught.value


def said(error: DataError) -> str:
    """Message and hint, without the path."""
    return str(error).split("data.csv: ")[1] + error.hint


def with_missing(numeric: str, categorical: str) -> TableTask:
    age, sex = TASK.columns
    return TASK.model_copy(
        update={
            "columns": (age.model_copy(update={"missing": numeric}), sex.model_copy(update={"missing": categorical}))
        }
    )


GOOD = "age,sex,sick\n70,f,yes\n10,m,no\n"


def test_rows_are_encoded_by_the_plans_columns(load: Load) -> None:
    data = load(GOOD)
    assert data.x.tolist() == [[1.0, 1.0, 0.0], [-2.0, 0.0, 1.0]]
    assert data.x.dtype == np.float32
    assert data.y.tolist() == [1, 0]


def test_order_and_other_columns_do_not_matter(load: Load) -> None:
    data = load("name,sick,sex,note,age\nMüller,yes,f,?,70\nMeier,no,m,,10\n")
    assert data.fingerprint() == load(GOOD).fingerprint()


@pytest.mark.parametrize(
    "content",
    [
        GOOD.encode("utf-8-sig"), GOOD.replace("\n", "\r\n").encode(), GOOD.replace("\n", "\r").encode(),
        GOOD.rstrip().encode(), (GOOD + "\n\n\n").encode(), GOOD.replace("\n", "\n\n").encode(),
        b'"age","sex","sick"\n"70","f","yes"\n"10","m","no"\n', b" age , sex,sick\n 70 ,f , yes\n10, m,no\t\n",
        b"age,sex,sick\n7.0e1,f,yes\n+10.,m,no\n",
    ],
)  # fmt: skip
def test_bom_line_ends_quotes_and_spaces(load: Load, content: bytes) -> None:
    assert load(content).x.tolist() == load(GOOD).x.tolist()


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-16-le", "iso8859-15", "mac-roman"])
def test_encodings(load: Load, encoding: str) -> None:
    text = "größe,sex,sick\n70,weiblich,ja\n10,m,no\n"
    data = load(
        text.encode(encoding),
        encoding=encoding,
        columns={"age": "größe"},
        levels={"sex": {"weiblich": "f"}},
        classes={"ja": "yes"},
    )
    assert data.fingerprint() == load(GOOD).fingerprint()


def test_semicolons_tabs_and_decimal_commas(load: Load) -> None:
    data = load("age;sex;sick\n70,5;f;yes\n", delimiter=";", decimal=",")
    assert data.x[0, 0] == np.float32(20.5 / 20)
    assert load("age\tsex\tsick\n70.5\tf\tyes\n", delimiter="\t").x[0, 0] == data.x[0, 0]
    assert load('age,sex,sick\n"70,5",f,yes\n', decimal=",").x[0, 0] == data.x[0, 0]


def test_a_decimal_comma_that_was_not_announced(load: Load) -> None:
    refuse(
        load,
        "age;sex;sick\n70,5;f;yes\n",
        r"line 2, column age: not a number with decimal '\.' \(it has a ','\)",
        delimiter=";",
    )
    refuse(load, "age;sex;sick\n70.5;f;yes\n", "not a number with decimal ','", delimiter=";", decimal=",")
    refuse(load, "age;sex;sick\n1.070,5;f;yes\n", "column age: not a number", delimiter=";", decimal=",")


@pytest.mark.parametrize(
    "cell", ["seventy", "7 0", "1_0", "inf", "-Infinity", "0x46", "٧٠", "70 years", "1e", ".", "--1", "70%", "1,000"]
)
def test_cells_that_are_no_numbers(load: Load, cell: str) -> None:
    error = refuse(load, f'age,sex,sick\n70,f,yes\n"{cell}",f,yes\n', "line 3, column age: not a number")
    assert len(cell) < 3 or cell not in said(error)


@pytest.mark.parametrize("cell", ["-0.001", "120.0001", "1e999", "-1e999"])
def test_cells_out_of_range(load: Load, cell: str) -> None:
    error = refuse(load, f"age,sex,sick\n{cell},f,yes\n", r"line 2, column age: outside 0\.\.120")
    assert cell not in said(error)


def test_the_ends_of_the_range_are_inside(load: Load) -> None:
    assert load("age,sex,sick\n0,f,yes\n120,f,no\n").x[:, 0].tolist() == [-2.5, 3.5]


@pytest.mark.parametrize("token", ["", "?", "NA", "NaN", "nan", "null"])
def test_missing_cells_by_the_columns_rule(load: Load, token: str) -> None:
    content = f"age,sex,sick\n{token},f,yes\n70,{token},no\n"
    refuse(load, content, "line 2, column age: not recorded.*; line 3, column sex: not recorded")
    assert load(content, with_missing("mean", "zeros")).x.tolist() == [[0, 1, 0], [1, 0, 0]]
    assert load(content, with_missing("indicator", "level")).x.tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]


def test_own_missing_tokens_replace_the_default_ones(load: Load) -> None:
    task = with_missing("mean", "zeros")
    assert load("age,sex,sick\n-99,k.A.,yes\n", task, missing=("-99", "k.A.")).x.tolist() == [[0, 0, 0]]
    refuse(load, "age,sex,sick\n,f,yes\n", "column age: not a number", task, missing=("-99",))


def test_a_level_wins_over_a_missing_token(load: Load) -> None:
    task = TASK.model_copy(
        update={"columns": (TASK.columns[0], TASK.columns[1].model_copy(update={"levels": ("NA", "EU")}))}
    )
    assert load("age,sex,sick\n70,NA,yes\n", task).x.tolist() == [[1, 1, 0]]


def test_unknown_levels(load: Load) -> None:
    error = refuse(load, "age,sex,sick\n70,divers,yes\n", "line 2, column sex: not one of the plan's levels")
    assert "divers" not in f"{error}{error.hint}"
    refuse(load, "age,sex,sick\n70,F,yes\n", "line 2, column sex: not one of")
    assert load("age,sex,sick\n70,F,yes\n", levels={"sex": {"F": "f"}}).x.tolist() == [[1, 1, 0]]


def test_numeric_levels_compare_as_text(load: Load) -> None:
    assert load("age,sex,sick\n70,1.0,yes\n", levels={"sex": {"1": "f", "2": "m"}}).x.tolist() == [[1, 1, 0]]


def test_labels(load: Load) -> None:
    assert load("age,sex,sick\n70,f,1.0\n", classes={"1": "yes", "0": "no"}).y.tolist() == [1]
    error = refuse(load, "age,sex,sick\n70,f,1\n70,f,\n", "line 2, column sick: not one of the plan's classes; line 3")
    assert "'no', 'yes'" in error.hint
    assert load("age,sex,sick\n70,f,\n70,f,yes\n", ignore=("",)).y.tolist() == [1]


def test_an_ignored_record_is_not_looked_at_further(load: Load) -> None:
    assert load("age,sex,sick\nold,x,unclear\n70,f,yes\n", ignore=("unclear",)).y.tolist() == [1]
    refuse(load, "age,sex,sick\nold,x,unclear\n", "holds no records", ignore=("unclear",))


def test_a_wrong_label_column_prints_no_record(load: Load) -> None:
    content = "age,sex,sick,name\n" + "".join(f"70,f,yes,Müller {i}\n" for i in range(100))
    error = refuse(load, content, "line 2, column name: not one of .*; line 4, .*; and 97 more", label="name")
    assert "Müller" not in f"{error}{error.hint}"


def test_many_faults_are_counted(load: Load) -> None:
    error = refuse(load, "age,sex,sick\n" + "x,y,z\n" * 50, "; and 147 more$")
    assert str(error).count("line") == 3


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("", r"is empty \(0 bytes\)"),
        ("\n\n\n", "holds no header line"),
        (",,\n70,f,yes\n", "holds no header line"),
        ("\ufeff", "holds no header line"),
        ("age,sex,sick\n", "holds no records"),
        ("age,sex,sick", "holds no records"),
        ("age,sex\n70,f\n", "line 1: no column 'sick' .label. among the 2 of"),
        ("age,sick\n70,yes\n", "line 1: no column 'sex' .the plan's column 'sex'. among the 2 of"),
        ("sick\nyes\n", "line 1: no columns 'age', 'sex'"),
        ("age,sex,sick,age\n1,f,yes,2\n", "line 1: column 'age' is there 2 times"),
        ("age,sex,sick,sick\n1,f,yes,no\n", "line 1: column 'sick' is there 2 times"),
        ("Age,sex,sick\n1,f,yes\n", "line 1: no column 'age'"),
        ("age,sex,sick\n70,f\n", "line 2: 2 cells where the header line has 3"),
        ("age,sex,sick\n70,f,yes,\n", "line 2: 4 cells where the header line has 3"),
        ("age,sex,sick\n70,f,yes\n \n", "line 3: 1 cells where the header line has 3"),
        ('age,sex,sick\n70,f,"yes\n70,f,yes\n', "line 2: a quote that is never closed"),
        ('age,sex,sick\n70,f,"yes"no\n', "line 2: wrong quoting"),
        (
            'age,sex,sick\n70,f,"' + "x\n" * 100_000,
            "line 2: a cell of more than 131072 characters over many lines: a quote",
        ),
        ("age,sex,sick\n70,f,y\0es\n", "line 2: holds NUL"),
        ("age,sex,sick\n" + "9" * 200_000 + ",f,yes\n", "line 2: a cell of more than 131072 characters$"),
    ],
)
def test_tables_that_are_refused(load: Load, content: str, match: str) -> None:
    refuse(load, content, match)


def test_unused_columns_may_be_named_twice(load: Load) -> None:
    assert load("x,x,,,age,sex,sick\n1,2,3,4,70,f,yes\n").x.tolist() == [[1, 1, 0]]


def test_a_file_without_a_header_line_prints_no_record(load: Load) -> None:
    error = refuse(load, "71,Müller,yes\n70,Meier,no\n", "line 1: no columns 'age', 'sex'")
    assert "Müller" not in f"{error}{error.hint}"


@pytest.mark.parametrize(("delimiter", "named"), [(";", ";"), ("\t", "\\t"), ("|", "|")])
def test_the_delimiter_is_guessed_at_in_the_hint(load: Load, delimiter: str, named: str) -> None:
    one_column = TASK.model_copy(update={"columns": TASK.columns[:1]})
    error = refuse(load, GOOD.replace(",", delimiter), "no column 'age'", one_column)
    assert f'delimiter = "{named}"' in error.hint


def test_line_numbers_count_lines_not_records(load: Load) -> None:
    content = 'age,sex,sick,note\n70,f,yes,"two\nlines"\n\n\n70,f,yes,"a\n\nb"\nold,f,yes,\n'
    refuse(load, content, "line 9, column age: not a number")
    refuse(load, content.replace('70,f,yes,"a', 'x,f,yes,"a'), "line 6, column age: not a number; line 9")


def test_a_wrong_encoding_names_the_line(load: Load) -> None:
    content = ("age,sex,sick,note\n" + "70,f,yes,ok\n" * 3000 + "70,f,yes,gr\xf6\xdfer\n").encode("latin-1")
    error = refuse(load, content, "line 3002: not text in utf-8-sig")
    assert "cp1252" in error.hint
    refuse(load, GOOD.encode("utf-16"), "line 1: not text in utf-8-sig")
    refuse(load, GOOD.encode("utf-16-le"), "line 1: holds NUL characters.*|line 1: no columns")
    refuse(load, GOOD.encode(), "not text in utf-16", encoding="utf-16")


@pytest.mark.parametrize("encoding", ["klingon", "base64", "rot13", "", "hex", "undefined", "a\0b"])
def test_encodings_that_are_none(load: Load, encoding: str) -> None:
    refuse(load, GOOD, "encoding .* is not known", encoding=encoding)


def test_spreadsheets_are_named_as_such(load: Load) -> None:
    refuse(load, b"PK\x03\x04" + b"\0" * 100, "a spreadsheet, not a text table")
    refuse(load, b"\xd0\xcf\x11\xe0" + b"\0" * 100, "a spreadsheet, not a text table")


def test_a_label_is_never_a_feature(load: Load) -> None:
    refuse(load, GOOD, "column 'sex' is used twice", label="sex")
    refuse(load, GOOD, "column 'age' is used twice", columns={"sex": "age"})


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"columns": {"agee": "age"}}, "columns names 'agee', not among the plan's columns 'age', 'sex'"),
        ({"levels": {"gender": {"F": "f"}}}, "levels names 'gender'"),
        ({"levels": {"age": {"old": "70"}}}, "levels names 'age', which the plan has as numeric"),
        ({"levels": {"sex": {"F": "female"}}}, "levels.sex maps to 'female', not among the plan's levels 'f', 'm'"),
        ({"classes": {"1": "ill"}}, "classes maps to 'ill', not among the plan's classes 'no', 'yes'"),
    ],
)
def test_maps_that_lead_nowhere(load: Load, options: dict[str, object], match: str) -> None:
    refuse(load, GOOD, match, **options)


def test_scales_that_leave_no_finite_number(load: Load) -> None:
    task = TASK.model_copy(update={"columns": (TASK.columns[0].model_copy(update={"std": 1e-300}),)})
    with pytest.raises(DataError, match="column age: low and high are no finite numbers once scaled"):
        load(GOOD, task)


def test_memory_is_bounded_while_reading(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsecure.data.files.MAX_DATASET_BYTES", 100)
    refuse(load, "age,sex,sick\n" + "70,f,yes\n" * 10_000, r"10000 records of shape \[3\] need")


@pytest.mark.parametrize("delimiter", ['"', "\n", "\r", "", ";;"])
def test_delimiters_that_are_none(delimiter: str, tmp_path: Path) -> None:
    class File(Settings):
        data: AnySource

    with pytest.raises(ConfigError, match=r"data\.delimiter"):
        validate(File, {"data": {"kind": "csv", "path": "x", "label": "y", "delimiter": delimiter}}, "node.toml")


def test_a_table_does_not_go_with_a_plan_of_images(tmp_path: Path) -> None:
    task = ImageTask(kind="image", classes=("no", "yes"), shape=(1, 4, 4))
    with pytest.raises(DataError, match="kind 'csv' does not go with a plan whose task is of kind 'image'"):
        load_dataset(CsvSource(kind="csv", path=tmp_path, label="sick"), task)


def test_paths_with_odd_names(tmp_path: Path) -> None:
    path = tmp_path / "Öffentliche Daten 北京" / ("n" * 200) / "a b;c'd.csv"
    path.parent.mkdir(parents=True)
    path.write_text(GOOD, encoding="utf-8")
    assert len(load_dataset(CsvSource(kind="csv", path=path, label="sick"), TASK)) == 2


def test_the_column_that_a_simulation_deals_by(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    with path.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows(
            [["age", "sex", "sick", "site"], [70, "f", "yes", "A"], [1, "f", "skip", "B"], [10, "m", "no", "B"]]
        )
    source = CsvSource(kind="csv", path=path, label="sick", ignore=("skip",))
    data, groups = load_table_by(source, TASK, "site")
    assert (len(data), groups) == (2, ["A", "B"])
    with pytest.raises(DataError, match=r"no column 'ward' \(simulation\.partition\.column\)"):
        load_table_by(source, TASK, "ward")
    path.write_text("age,sex,sick,site\n70,f,yes,\n", encoding="utf-8")
    with pytest.raises(DataError, match="line 2, column site: not recorded, so the record belongs to no node"):
        load_table_by(source, TASK, "site")


def test_the_header_line_may_come_late(load: Load) -> None:
    assert load("\n\n" + GOOD).x.tolist() == load(GOOD).x.tolist()
    refuse(load, "\n\nage,sex,x\n", "line 3: no column 'sick'")
    refuse(load, "\n\nage,sex,sick\nx,f,yes\n", "line 4, column age: not a number")


def test_the_first_line_of_some_spreadsheet_exports(load: Load) -> None:
    error = refuse(load, "sep=;\n" + GOOD.replace(",", ";"), "line 1: no columns", delimiter=";")
    assert "sep=" in error.hint


CAFE = TableTask.model_validate_json(
    """{"kind": "table", "classes": ["no", "yes"], "columns": [
    {"kind": "categorical", "name": "caf\\u00e9", "levels": ["f", "m"], "missing": "zeros"}]}"""
)


@pytest.mark.parametrize("header", ["caf\u00e9", "cafe\u0301", " cafe\u0301 "])
@pytest.mark.parametrize("plan", ["caf\u00e9", "cafe\u0301"])
@pytest.mark.parametrize("label", ["p\u00e9", "pe\u0301"])
def test_header_names_are_compared_as_people_read_them(load: Load, header: str, plan: str, label: str) -> None:
    (column,) = CAFE.columns
    task = CAFE.model_copy(update={"columns": (column.model_copy(update={"name": plan}),)})
    for options in (
        {"levels": {"caf\u00e9": {"x": "f"}}, "missing_values": {"cafe\u0301": ("?",)}},
        {"levels": {"cafe\u0301": {"x": "f"}}, "missing_values": {"caf\u00e9": ("?",)}, "columns": {plan: header}},
    ):
        data = load(f"{header},pe\u0301\nx,yes\n?,no\n", task, label=label, **options)
        assert data.x.tolist() == [[1.0, 0.0], [0.0, 0.0]]


def test_names_that_read_alike_are_not_two_columns(load: Load) -> None:
    (column,) = CAFE.columns
    task = CAFE.model_copy(update={"columns": (column, column.model_copy(update={"name": "cafe\u0301"}))})
    refuse(load, "caf\u00e9,sick\nf,yes\n", "two of the plan's columns compare equal", task)
    refuse(load, "caf\u00e9,cafe\u0301,sick\nf,m,yes\n", "is there 2 times", CAFE)


def test_a_cell_beyond_the_readers_limit_is_named_as_that(load: Load) -> None:
    error = refuse(load, f"age,sex,sick\n70,f,yes\n10,{'m' * 200_000},no\n", "line 3: a cell of more than 131072 char")
    assert "mmm" not in said(error)
