"""nginx and Caddy before the dashboard, with the very lines that docs/reverse_proxy.md tells people.

TLS ends in them, by a certificate that is made here for `HOST`, a name that leads to loopback.
"""

import os
import re
import signal
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support import judge, processes

REPOSITORY = Path(__file__).resolve().parents[2]
HOST = "tools.localhost"
PREFIX = "/odradek"
_NGINX = """
daemon off;
{user}
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/error.log warn;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    {map}
    server {{
        listen 127.0.0.1:{port} ssl;
        server_name {host};
        ssl_certificate {directory}/cert.pem;
        ssl_certificate_key {directory}/key.pem;
        {locations}
    }}
}}
"""
_CADDY = """
{{
    admin off
    auto_https off
    storage file_system {directory}/caddy
}}
https://{host}:{port} {{
    bind 127.0.0.1
    tls {directory}/cert.pem {directory}/key.pem
    {inside}
}}
"""


@dataclass(frozen=True)
class Proxy:
    """A proxy that listens. `certificate` is the one that it shows."""

    port: int
    certificate: Path

    @property
    def origin(self) -> str:
        return f"https://{HOST}:{self.port}"

    @property
    def url(self) -> str:
        return self.origin + PREFIX

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.certificate))


@contextmanager
def running(name: str, directory: Path, port: int, web_port: int) -> Iterator[Proxy]:
    """`name` is nginx or caddy. `port` is where it listens, `web_port` where the dashboard does."""
    path = judge.program(name, f"Debian: {name}")
    directory.mkdir(parents=True, exist_ok=True)
    _make_certificate(directory)
    config = directory / "config"
    config.write_text(_config(name, directory, port, web_port))
    command = {
        "nginx": [path, "-c", str(config), "-p", str(directory), "-e", f"{directory}/error.log"],
        "caddy": [path, "run", "--config", str(config), "--adapter", "caddyfile"],
    }[name]
    said = directory / "said.txt"
    with said.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "HOME": str(directory), "XDG_DATA_HOME": str(directory)},
        )
    try:
        processes.wait_until(
            lambda: process.poll() is not None or judge.listens(port), 30, f"{name} listens"
        )
        assert process.poll() is None, processes.tail(said)
        yield Proxy(port, directory / "cert.pem")
    finally:
        # QUIT would wait for open WebSockets.
        processes.end(process, signal.SIGTERM, 20)


def documented(language: str) -> str:
    """The lines of the one code block in this language."""
    text = (REPOSITORY / "docs" / "reverse_proxy.md").read_text()
    found = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert len(found) == 1, language
    block: str = found[0]
    return block


def _config(name: str, directory: Path, port: int, web_port: int) -> str:
    lines = documented(name).replace("127.0.0.1:8080", f"127.0.0.1:{web_port}")
    common = {"directory": directory, "port": port, "host": HOST}
    if name == "nginx":
        of_http, _, of_server = lines.partition("# in server")
        locations = of_server.partition("\n")[2]
        # Its worker would be nobody, who may not write below pytest's directories.
        user = "user root;" if os.geteuid() == 0 else ""
        return _NGINX.format(**common, user=user, map=of_http, locations=locations)
    inside = lines.strip().removeprefix("tools.example.org {").removesuffix("}")
    return _CADDY.format(**common, inside=inside)


def _make_certificate(directory: Path) -> None:
    openssl = judge.program("openssl", "Debian: openssl")
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "2", "-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST},IP:127.0.0.1",
         "-keyout", directory / "key.pem", "-out", directory / "cert.pem"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
