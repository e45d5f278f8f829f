"""The heart-disease example: its plans parse, differ in the method alone, and deal four hospitals' own records."""

import os
import re
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest

from fedsecure.config import Settings, validate
from fedsecure.data.check import check_dataset
from fedsecure.data.partition import deal
from fedsecure.data.settings import AnySource
from fedsecure.data.table import load_table
from fedsecure.plan import load_plan

FOLDER = Path(__file__).parents[2] / "examples" / "heart-disease"
METHODS = ("fedspm", "feddrm", "fedavg")
#: node -> records, and how many of them are ill (UCI Machine Learning Repository, doi 10.24432/C52P4X).
HOSPITALS = {"budapest": (294, 106), "cleveland": (303, 139), "long-beach": (200, 149), "zurich-basel": (123, 115)}


def records_folder() -> Path:
    """Where the four hospitals' files lie; they are not part of the repository."""
    folder = Path(os.environ.get("FEDSECURE_HEART_DISEASE", FOLDER))
    if not all((folder / f"{node}.csv").is_file() for node in HOSPITALS):
        pytest.skip(f"{folder}: no heart-disease records (see examples/heart-disease/README.md)")
    return folder


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The example's folder with the hospitals' records in it."""
    source = records_folder()
    for node in HOSPITALS:
        shutil.copy(source / f"{node}.csv", tmp_path)
    for method in METHODS:
        shutil.copy(FOLDER / f"heart-{method}.toml", tmp_path)
    return tmp_path


HEADER = "age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,num\n"
ROWS = (
    "63,1,1,145,233,1,2,150,0,2.3,3,0,6,0\n", "67,1,4,160,286,0,2,108,1,1.5,2,3,3,2\n",
    "32,1,1,95,0,,0,127,0,.7,1,,,1\n",
    "29,0,2,120,243,0,0,160,0,0,,,,0\n", "54,0,3,0,201,0,1,142,1,-0.5,2,,7,4\n",
)  # fmt: skip


def test_made_up_records_of_that_form_are_dealt(tmp_path: Path) -> None:
    """Without the hospitals' files: the same header, marks and odd values."""
    for node in HOSPITALS:
        (tmp_path / f"{node}.csv").write_text(HEADER + "".join(ROWS) * 4, encoding="utf-8")
    shutil.copy(FOLDER / "heart-fedspm.toml", tmp_path)
    plan, simulation = load_plan(tmp_path / "heart-fedspm.toml")
    assert simulation is not None
    dealt = deal(simulation, plan.task, plan.seed)
    assert list(dealt.train) == list(HOSPITALS)
    for node in HOSPITALS:
        assert len(dealt.train[node]) + len(dealt.tests[node]) == 20
        assert int(dealt.train[node].counts()[1] + dealt.tests[node].counts()[1]) == 12
        check_dataset(dealt.train[node], plan)


class Node(Settings):
    data: AnySource


@pytest.mark.parametrize("method", METHODS)
def test_a_plan_deals_each_hospital_its_own_records(example: Path, method: str) -> None:
    plan, simulation = load_plan(example / f"heart-{method}.toml")
    assert simulation is not None
    assert plan.method.name == method
    assert plan.cohort.nodes == tuple(HOSPITALS)
    dealt = deal(simulation, plan.task, plan.seed)
    assert list(dealt.train) == list(dealt.tests) == list(HOSPITALS)
    for node, (records, ill) in HOSPITALS.items():
        train, test = dealt.train[node], dealt.tests[node]
        assert len(train) + len(test) == records
        assert int(train.counts()[1] + test.counts()[1]) == ill
        assert abs(len(test) - 0.3 * records) <= 1
        assert np.isfinite(train.x).all()
        check_dataset(train, plan)
    assert len(dealt.test) == sum(map(len, dealt.tests.values())) == 276


def test_the_plans_differ_in_the_method_alone() -> None:
    texts = [tomllib.loads((FOLDER / f"heart-{method}.toml").read_text(encoding="utf-8")) for method in METHODS]
    for text in texts:
        del text["method"], text["name"]
    assert texts[0] == texts[1] == texts[2]


def test_a_missing_value_is_not_a_measurement(example: Path) -> None:
    plan, simulation = load_plan(example / "heart-fedavg.toml")
    assert simulation is not None
    names = [c.name for c in plan.task.columns for _ in range(c.width)]
    chol = names.index("chol")
    for node, source in simulation.partition.nodes.items():
        x = load_table(source, plan.task).x
        missing = int(x[:, chol + 1].sum())
        assert missing == {"budapest": 23, "cleveland": 0, "long-beach": 56, "zurich-basel": 123}[node]
        assert (x[x[:, chol + 1] == 1, chol] == 0).all()
    assert sum(c.width for c in plan.task.columns) == len(names) == x.shape[1]


def test_scales_are_not_those_of_the_records() -> None:
    """Round numbers: a mean computed from the hospitals' records would not be one."""
    plan, _ = load_plan(FOLDER / "heart-fedspm.toml")
    numeric = [c for c in plan.task.columns if c.kind == "numeric"]
    assert [c.name for c in numeric] == ["age", "trestbps", "chol", "thalach", "oldpeak", "ca"]
    assert all(c.mean == round(c.mean) and c.std == round(c.std) for c in numeric)


def test_the_readmes_node_table_reads_a_file_with_those_names(tmp_path: Path) -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    block = re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    source = validate(Node, tomllib.loads(block[0]), "README.md").data
    path = tmp_path / "cardiology.csv"
    path.write_text(
        "age,sex,cp,systolic_at_rest,cholesterol,fbs,restecg,peak_heart_rate,exang,oldpeak,slope,ca,thal,diagnosis\n"
        "61,f,4,0,0,n/a,1,120,1,1.5,,,7,positive\n"
    )
    plan, _ = load_plan(FOLDER / "heart-fedspm.toml")
    data = load_table(source.model_copy(update={"path": path}), plan.task)
    assert data.y.tolist() == [1]


def test_where_the_records_come_from_is_said() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    for words in ("Janosi", "Steinbrunn", "Pfisterer", "Detrano", "10.24432/C52P4X", "CC BY 4.0"):
        assert words in text
    plan, _ = load_plan(FOLDER / "heart-fedspm.toml")
    assert all(f"| `{column.name}` |" in text for column in plan.task.columns)
