"""Addresses of REST APIs."""

import pytest

from dovetail.bench.connection import Target
from dovetail.common.errors import Refused


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "localhost:8080", "ftp://x", "http:///x", ""])
def test_a_url_that_is_no_address_of_a_rest_api_is_refused(url: str) -> None:
    with pytest.raises(Refused, match="must begin with http"):
        Target.of(url)
