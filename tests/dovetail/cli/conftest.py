"""A user with a key, whose commands ask the test's REST API."""

import pytest

from tests.dovetail.conftest import FakeApi, Run


@pytest.fixture
def with_key(run: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("keygen").code == 0
    monkeypatch.setenv("DOVETAIL_URL", api.url)
