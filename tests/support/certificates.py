"""Certificates for tests: an authority, and whom it has signed; PEM files made by openssl."""

import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.support import judge


class Certificates(NamedTuple):
    """Each signed file holds its key and its certificate; the strangers' authority is another."""

    authority: Path
    server: Path
    client: Path
    stranger: Path


def make_certificates(directory: Path) -> Certificates:
    authority = _authority(directory, "authority")
    strangers = _authority(directory, "strangers")
    return Certificates(
        authority.with_suffix(".crt"),
        _signed(authority, "server"),
        _signed(authority, "client"),
        _signed(strangers, "stranger"),
    )


def _authority(directory: Path, name: str) -> Path:
    path = directory / name
    _openssl(
        *("req", "-x509", *_new_key(path), "-days", "2", "-out", f"{path}.crt"),
        *("-addext", "basicConstraints=critical,CA:TRUE"),
    )
    return path


def _signed(authority: Path, name: str) -> Path:
    path = authority.with_name(name)
    _openssl("req", *_new_key(path), "-out", f"{path}.csr")
    extensions = path.with_suffix(".ext")
    extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    _openssl(
        *("x509", "-req", "-in", f"{path}.csr", "-out", f"{path}.crt", "-days", "2"),
        *("-CA", f"{authority}.crt", "-CAkey", f"{authority}.key", "-CAcreateserial"),
        *("-extfile", str(extensions)),
    )
    whole = path.with_suffix(".pem")
    whole.write_text(path.with_suffix(".key").read_text() + path.with_suffix(".crt").read_text())
    return whole


def _new_key(path: Path) -> tuple[str, ...]:
    key = ("-newkey", "rsa:2048", "-nodes", "-keyout", f"{path}.key")
    return (*key, "-subj", f"/CN={path.name}")


def _openssl(*arguments: str) -> None:
    openssl = judge.program("openssl", "Debian: openssl")
    subprocess.run([openssl, *arguments], check=True, capture_output=True)
