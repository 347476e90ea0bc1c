"""The real nginx with the configuration of ``deploy/nginx``, on loopback, as the user who runs the tests.

This module changes that configuration, starts the process, and sends requests. Rules on the answers do not belong here.
"""

import base64
import http.client
import os
import re
import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import httpx

from tests.system.e2e.clients import Api
from tests.system.e2e.network import ReservedPort
from tests.system.e2e.process import DEADLINE_S, ROOT, Process, ProcessFailed

DEPLOY = ROOT / "deploy" / "nginx"
NAME = "localhost"
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
OPENSSL = shutil.which("openssl")

# Replaces Debian's nginx.conf. A worker of root's nginx would run as nobody, who cannot read a test's folder.
_MAIN = """
daemon off;
{user}
pid nginx.pid;
error_log stderr notice;
worker_processes 2;
events {{ worker_connections 512; }}
http {{
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    include conf.d/*.conf;
    access_log access.log dovetail;
    include sites-enabled/*;
}}
"""


class Proxy:
    """One listening nginx in front of REST APIs at ``upstreams`` (HOST:PORT).

    ``site`` and the default server are enabled. ``url``: where clients reach the API, with ``prefix``. The commands of
    the README make the certificate and the password.
    """

    def __init__(self, folder: Path, upstreams: list[str], *, site: str) -> None:
        self._folder = folder
        shutil.copytree(DEPLOY, folder)
        self._port = ReservedPort()
        self.bind = f"{NAME}:{self._port.number}"
        self.prefix = "/ledger" if site == "dovetail-prefix" else ""
        self.url = f"https://{self.bind}{self.prefix}"
        self._configure(upstreams, site)
        for block in re.findall(r"^```sh\n(.*?)^```", (DEPLOY / "README.md").read_text(), re.DOTALL | re.MULTILINE):
            self._run_shell(block.replace("ledger.example", NAME))
        self.auth = self.auth_of("alice")
        self.certificate = folder / "dovetail" / "proxy.crt"
        self._trusting = ssl.create_default_context(cafile=self.certificate)
        assert NGINX is not None
        command = [NGINX, "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")]
        self._process = Process("nginx", command, dict(os.environ))
        try:
            # nginx listens before it starts workers.
            self._process.wait_for_line(r"start worker process \d+")
        except ProcessFailed as error:
            error.add_note(self.transcript())
            self.close()
            raise

    def auth_of(self, user: str) -> tuple[str, str]:
        """The name and password of one of the README's users."""
        return user, (self._folder / f"{user}.password").read_text().strip()

    def client(self, auth: tuple[str, str] | None) -> httpx.Client:
        """An HTTP client of the REST API through the proxy."""
        return httpx.Client(base_url=self.url, auth=auth, verify=self._trusting, timeout=DEADLINE_S, trust_env=False)

    def api(self) -> Api:
        """An ``Api`` through the proxy, with the password."""
        api = Api(self.url)
        api.http.close()
        api.http = self.client(self.auth)
        return api

    @property
    def pid(self) -> int:
        return self._process.pid

    def connect(self) -> ssl.SSLSocket:
        """A new connection on which nothing was sent."""
        plain = socket.create_connection(("127.0.0.1", self._port.number), DEADLINE_S)
        return self._trusting.wrap_socket(plain, server_hostname=NAME)

    def send(self, head: str, body: bytes = b"") -> ssl.SSLSocket:
        """An open connection on which ``head`` (complete lines), the password and ``body`` were sent unchanged."""
        password = base64.b64encode(":".join(self.auth).encode()).decode()
        connection = self.connect()
        connection.sendall(f"{head}Authorization: Basic {password}\r\n\r\n".encode() + body)
        return connection

    def ask(self, head: str) -> tuple[int, str]:
        """Status and body of the answer to a request with ``head``."""
        with self.send(head) as connection, http.client.HTTPResponse(connection) as answer:
            answer.begin()
            return answer.status, answer.read().decode()

    def transcript(self) -> str:
        log = self._folder / "access.log"
        return f"=== nginx\n{self._process.text}\n{log.read_text() if log.exists() else ''}"

    def close(self) -> None:
        self._process.close()
        self._port.close()

    def _configure(self, upstreams: list[str], site: str) -> None:
        (self._folder / "nginx.conf").write_text(_MAIN.format(user="user root;" if os.geteuid() == 0 else ""))
        servers = "\n".join(f"    server {address} max_fails=1 fail_timeout=2s;" for address in upstreams)
        _replace(
            self._folder / "conf.d" / "dovetail.conf",
            r"^    server 127\.0\.0\.1:8080 max_fails=1 fail_timeout=2s;$",
            servers,
        )
        enabled = self._folder / "sites-enabled"
        enabled.mkdir()
        for name in (site, "dovetail-default"):
            shutil.copy(self._folder / "sites-available" / name, enabled)
            _replace(enabled / name, r"^    listen \[::\]:443 .*$", "")
            _replace(enabled / name, r"\blisten 443\b", f"listen 127.0.0.1:{self._port.number}")
        _replace(enabled / site, r"\bserver_name (ledger|www)\.example;", f"server_name {NAME};")

    def _run_shell(self, script: str) -> None:
        done = subprocess.run(
            ["sh", "-eu"], input=script, cwd=self._folder, capture_output=True, text=True, timeout=DEADLINE_S
        )
        assert done.returncode == 0, f"{script}\n{done.stderr}"


def _replace(file: Path, pattern: str, text: str) -> None:
    replaced, count = re.subn(pattern, text, file.read_text(), flags=re.MULTILINE)
    assert count, f"{file.name} has no /{pattern}/"
    file.write_text(replaced)
