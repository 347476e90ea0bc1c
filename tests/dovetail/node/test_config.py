"""The sources of the configuration, their order, and refusals."""

import re
from pathlib import Path

import pytest

from dovetail.common.errors import Refused
from dovetail.node.config import Flag, load


def _write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "node.toml"
    file.write_text(text)
    return file


def test_defaults(home: Path) -> None:
    config = load(config_file=None, environ={"DOVETAIL_HOME": str(home)}, flags={})
    assert config.validator.data_dir == home / "data"
    assert config.validator.key_file == home / "data" / "keys" / "validator.priv"
    assert config.validator.bind == config.rest_api.validator == config.processor.connect == "tcp://127.0.0.1:4004"
    assert config.rest_api.bind == "127.0.0.1:8080"


def test_file_then_environment_then_flag(tmp_path: Path) -> None:
    file = _write(
        tmp_path,
        """
        [validator]
        bind = "tcp://127.0.0.1:1001"
        verifier_processes = 1
        data_dir = "from-file"
        [limits]
        body_bytes_max = 10
        page_items_max = 5
        """,
    )
    environ = {
        "DOVETAIL_VALIDATOR_BIND": "tcp://127.0.0.1:1002",
        "DOVETAIL_VALIDATOR_VERIFIER_PROCESSES": "2",
        "DOVETAIL_LIMITS_BODY_BYTES_MAX": "20",
        "DOVETAIL_REST_API_TRUSTED_PROXIES": "10.0.0.0/8, ::1",
    }
    flags = {
        "validator.bind": Flag("--bind", "tcp://127.0.0.1:1003"),
        "rest_api.bind": Flag("--rest", None),
        "processor.max_occupancy": Flag("--max-occupancy", 7),
    }
    config = load(config_file=file, environ=environ, flags=flags)
    assert config.validator.bind == "tcp://127.0.0.1:1003"
    assert config.validator.verifier_processes == 2
    assert config.validator.data_dir == Path("from-file")
    assert config.validator.key_file == Path("from-file/keys/validator.priv")
    assert config.validator.limits is config.rest_api.limits
    assert (config.rest_api.limits.body_bytes_max, config.rest_api.limits.page_items_max) == (20, 5)
    assert config.rest_api.trusted_proxies == ("10.0.0.0/8", "::1")
    assert config.rest_api.bind == "127.0.0.1:8080"
    assert config.processor.max_occupancy == 7


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[validater]\n", "unknown table [validater]; did you mean validator?"),
        ('[validator]\nbnid = "x"', "unknown key bnid in [validator]; did you mean bind?"),
        ("[processor]\nzzz = 1", "unknown key zzz in [processor]; known are apply_timeout_ms, build_id, connect"),
        ("limits = 3", "limits = 3 is no table; write [limits] on a line of its own"),
        ("[validator\n", "is no TOML"),
        ("[validator]\nbind = 4004", "validator.bind = 4004 ({file}): must be tcp://HOST:PORT"),
        ('[validator]\nbind = "127.0.0.1:4004"', "validator.bind = '127.0.0.1:4004' ({file}): must be tcp://HOST:PORT"),
        ('[validator]\nbind = "tcp://127.0.0.1:0"', "PORT from 1 to 65535"),
        ('[rest_api]\nbind = "::1:80"', "rest_api.bind = '::1:80' ({file}): must be HOST:PORT"),
        ('[rest_api]\ntrusted_proxies = "10.0.0.1"', "must be a list of addresses or networks"),
        ('[rest_api]\ntrusted_proxies = ["ten"]', "rest_api.trusted_proxies = ['ten'] ({file}): must be a list"),
        ("[limits]\nbody_bytes_max = 0", "limits.body_bytes_max = 0 ({file}): must be a whole number from 1"),
        ("[limits]\nbody_bytes_max = true", "limits.body_bytes_max = True ({file}): must be a whole number from 1"),
        ("[limits]\nbody_bytes_max = 1.5", "limits.body_bytes_max = 1.5"),
        ("[limits]\nbody_bytes_max = 20_000_000", "limits: body_bytes_max = 20000000 must be at most half of"),
        ("[rest_api]\nanswer_s_max = 86401", "rest_api.answer_s_max = 86401 ({file}): must be a whole"),
        ('[validator]\ndata_dir = ""', "validator.data_dir = '' ({file}): must be a path"),
    ],
)
def test_a_wrong_file_is_refused_with_key_value_origin_and_what_is_allowed(
    tmp_path: Path, text: str, reason: str
) -> None:
    file = _write(tmp_path, text)
    with pytest.raises(Refused, match=re.escape(reason.replace("{file}", str(file)))):
        load(config_file=file, environ={}, flags={})


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(Refused, match=r"^cannot read the configuration nowhere\.toml: No such file or directory$"):
        load(config_file=Path("nowhere.toml"), environ={}, flags={})


def test_a_wrong_variable_and_a_wrong_flag_are_named() -> None:
    with pytest.raises(
        Refused, match=r"= 'many' \(environment variable DOVETAIL_LIMITS_PAGE_ITEMS_MAX\): must be a whole"
    ):
        load(config_file=None, environ={"DOVETAIL_LIMITS_PAGE_ITEMS_MAX": "many"}, flags={})
    with pytest.raises(Refused, match=r"processor.max_occupancy = 0 \(flag --max-occupancy\): must be a whole number"):
        load(config_file=None, environ={}, flags={"processor.max_occupancy": Flag("--max-occupancy", 0)})


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("DOVETAIL_VALIDATOR_BNID", "DOVETAIL_VALIDATOR_BIND"),
        ("DOVETAIL_VALIDTOR_BIND", "DOVETAIL_VALIDATOR_BIND"),
        ("DOVETAIL_LIMITS_BODY_BYTES_MAXX", "DOVETAIL_LIMITS_BODY_BYTES_MAX"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest(variable: str, meant: str) -> None:
    with pytest.raises(Refused, match=f"^unknown environment variable {variable}; did you mean {meant}\\?$"):
        load(config_file=None, environ={variable: "1"}, flags={})


@pytest.mark.parametrize(
    "variable",
    [
        "DOVETAIL_HOME",
        "DOVETAIL_URL",
        "DOVETAIL_LOG_FORMAT",
        "DOVETAIL_VALIDATOR_SERVICE_HOST",
        "DOVETAIL_VALIDATOR_SERVICE_PORT_ZMQ",
        "DOVETAIL_VALIDATOR_PORT",
        "DOVETAIL_REST_API_PORT_8080_TCP_ADDR",
    ],
)
def test_variables_that_are_not_configuration_are_left_alone(variable: str) -> None:
    load(config_file=None, environ={variable: "anything"}, flags={})


@pytest.mark.parametrize(
    ("variable", "key"),
    [("DOVETAIL_LIMITS_BODY_BYTES_MAX", "limits.body_bytes_max"), ("DOVETAIL_VALIDATOR_BIND", "validator.bind")],
)
def test_bytes_in_the_environment_that_are_no_text_are_refused(home: Path, variable: str, key: str) -> None:
    value = b"9\xb6".decode(errors="surrogateescape")
    with pytest.raises(Refused, match=re.escape(rf"{key} = '9\udcb6' (environment variable {variable}): must be ")):
        load(config_file=None, environ={"DOVETAIL_HOME": str(home), variable: value}, flags={})
