"""The errors of wrong settings."""

from dataclasses import fields, replace
from typing import Any

import pytest

from dovetail.rest_api.config import POSITIVE_KEYS, RestConfig, split_bind


@pytest.mark.parametrize("bind", ["8080", ":8080", "host:", "host:x", "host:65536", "::1:8080", "host:٣", "host:-1"])
def test_a_wrong_bind_names_key_and_value(bind: str) -> None:
    with pytest.raises(ValueError, match="bind: "):
        RestConfig(bind=bind)


def test_a_bind_splits_into_host_and_port() -> None:
    assert split_bind("127.0.0.1:0") == ("127.0.0.1", 0)
    assert split_bind("[::1]:8080") == ("::1", 8080)


def test_wrong_settings_name_key_and_value() -> None:
    with pytest.raises(ValueError, match=r"trusted_proxies: 'proxy\.example'"):
        RestConfig(trusted_proxies=("proxy.example",))
    numbers = [field.name for field in fields(RestConfig) if field.type is int]
    assert sorted(numbers) == sorted(POSITIVE_KEYS)
    for key in numbers:
        wrong: dict[str, Any] = {key: 0}
        with pytest.raises(ValueError, match=f"{key}: 0"):
            replace(RestConfig(), **wrong)
