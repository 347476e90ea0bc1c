"""docs/reference/configuration.md, checked against the configuration: a row for each setting, with its default."""

import json
import re
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

import pytest

from dovetail.ledger.limits import Limits
from dovetail.node.config import ProcessorConfig, load
from dovetail.rest_api.config import RestConfig
from dovetail.validator.config import ValidatorConfig
from tests.dovetail.conftest import Run

_PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
_TABLES = {"validator": ValidatorConfig, "rest_api": RestConfig, "processor": ProcessorConfig, "limits": Limits}
_BESIDE_THE_LEDGER = {"data_dir": '"~/.dovetail/data"', "key_file": '"DATA_DIR/keys/validator.priv"'}
"""The settings whose defaults follow from the place of the user's files."""


def _settings(kind: Any) -> list[Field[Any]]:
    return [field for field in fields(kind) if field.name != "limits"]


def _rows(table: str) -> dict[str, list[str]]:
    """The cells after the key of a section's rows, by key."""
    section = re.search(rf"(?ms)^## \[{table}\]$(.*?)(?=^## |\Z)", _PAGE)
    assert section, f"docs/reference/configuration.md has no section [{table}]"
    found = re.findall(r"(?m)^\| `(\w+)` \| (.*) \|$", section[1])
    assert len(dict(found)) == len(found), f"a row of [{table}] stands there twice"
    return {key: cells.split(" | ") for key, cells in found}


@pytest.mark.parametrize("table", _TABLES)
def test_each_setting_has_its_row_and_no_row_is_left_over(table: str) -> None:
    wanted = {field.name for field in _settings(_TABLES[table])}
    rows = _rows(table)
    assert wanted == set(rows), (
        f"docs/reference/configuration.md [{table}]: rows missing for {sorted(wanted - set(rows))}, "
        f"rows without a setting: {sorted(set(rows) - wanted)}"
    )


@pytest.mark.parametrize(
    ("table", "field"),
    [(table, field) for table, kind in _TABLES.items() for field in _settings(kind)],
    ids=lambda value: getattr(value, "name", value),
)
def test_each_row_tells_variable_default_and_meaning(table: str, field: Field[Any]) -> None:
    variable, default, meaning, *readers = _rows(table)[field.name]
    assert variable == f"`DOVETAIL_{table}_{field.name}`".upper()
    value = _BESIDE_THE_LEDGER[field.name] if field.default is MISSING else json.dumps(field.default)
    shown, _, unit = default.removeprefix("`").partition("`")
    assert shown == value
    assert unit or not value.isdigit(), f"{field.name}: {default} has no unit"
    words = {"bytes": " bytes", "ms": " ms", "s": " s"}
    for word in set(field.name.split("_")) & set(words):
        assert f"{unit} ".startswith(f"{words[word]} ")
    assert meaning
    assert (table == "limits") == bool(readers)
    assert set(readers) <= {"validator", "REST API", "both"}


def test_the_example_is_a_configuration(tmp_path: Path) -> None:
    example = re.search(r"(?s)```toml\n(.*?)```", _PAGE)
    assert example
    file = tmp_path / "node.toml"
    file.write_text(example[1])
    assert load(config_file=file, environ={}, flags={}).processor.connect == "tcp://10.0.0.4:4004"


@pytest.mark.parametrize("command", ["up", "validator", "rest-api", "processor", "genesis"])
def test_help_names_the_page(run: Run, command: str) -> None:
    assert "configuration.md,indocs/reference" in "".join(re.split(r"[\s│]+", run(command, "--help").out))
