"""nginx in front of the session's node or of given upstreams. Tests are skipped without nginx."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.e2e.clients import Api
from tests.system.e2e.conftest import Shared
from tests.system.e2e.nginx.proxy import NGINX, OPENSSL, Proxy

Proxies = Callable[..., Proxy]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    absent = "nginx" if NGINX is None else "openssl" if OPENSSL is None else ""
    for item in items:
        if absent and item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.skip(reason=f"{absent} is not installed (Debian: nginx-light, openssl)"))


class Made:
    """The nginx processes that were started. They end together."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: list[Proxy] = []

    def __call__(self, upstreams: list[str], *, site: str = "dovetail") -> Proxy:
        self._made.append(Proxy(self._folder / f"nginx{len(self._made)}", upstreams, site=site))
        return self._made[-1]

    def transcript(self) -> str:
        return "\n".join(proxy.transcript() for proxy in self._made)

    def close(self) -> None:
        for proxy in self._made:
            proxy.close()


@pytest.fixture(scope="session")
def _session_proxies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    made = Made(tmp_path_factory.mktemp("proxies"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def _named_proxy(_session_proxies: Made, _session_node: Shared) -> Proxy:
    return _session_proxies([_session_node.network.rest_bind])


@pytest.fixture(scope="session")
def _prefix_proxy(_session_proxies: Made, _session_node: Shared) -> Proxy:
    return _session_proxies([_session_node.network.rest_bind], site="dovetail-prefix")


@pytest.fixture
def proxy(_named_proxy: Proxy) -> Proxy:
    """nginx in front of the session's node, with a host name of its own."""
    return _named_proxy


@pytest.fixture(params=["_named_proxy", "_prefix_proxy"])
def either(request: pytest.FixtureRequest) -> Proxy:
    """As ``proxy``, and once more under a path of another site."""
    proxy = request.getfixturevalue(request.param)
    assert isinstance(proxy, Proxy)
    return proxy


@pytest.fixture
def through(either: Proxy) -> Iterator[Api]:
    """The session's REST API through ``either``, with the password."""
    api = either.api()
    yield api
    api.close()


@pytest.fixture
def proxies(tmp_path: Path) -> Iterator[Made]:
    """Makes nginxes that end with the test: ``proxies([HOST:PORT, …])``."""
    made = Made(tmp_path)
    yield made
    made.close()
