"""``odradek support-bundle``: what somebody who helps needs to see, in one file, without secrets.

Nothing of it is records. Settings that are secrets are left out by their kind, those of clients and brokers by their
names; what is known to be a secret here is struck out of everything else, too.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import click

from appliance import VERSION, build_facts, client_config, control
from appliance.config import ApplianceConfig, ConfigError, LoadedConfig, load_for_serve
from appliance.failure import EXIT_USAGE, CommandError
from appliance.options import command, data_option, pass_session
from appliance.output import Report, format_size
from appliance.session import Session
from broker.clock import SystemClock
from dashboard.probe import split_address

MAX_RUN_LOGS: Final = 50
TIMEOUT_S: Final = 5.0
SECRET_FILES: Final = ("secret_key", "initial-admin-password")
STRUCK: Final = "***"
_SECRET_NAME: Final = re.compile(
    r"passw(or)?d|passphrase|secret|token|jaas|credential|api_?key|[._]key$|private", re.I
)
#: Passwords that stand in a value with other things around them.
_INSIDE: Final = (
    re.compile(r"://[^/\s:@]*:([^\s@]+)@"),
    re.compile(r"""password\s*=\s*["']([^"']+)["']""", re.I),
)
_SHORT: Final = 6
"""Characters of a secret that is struck out as a word only: half of the text may hold it otherwise."""
#: What looks like a secret, whoever wrote it; the first group stays.
_IN_ANY_TEXT: Final = (
    re.compile(r"(://[^/\s:@\"']*:)[^\s@/\"']+(?=@)"),
    re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?=-----END|\Z)", re.DOTALL),
)
_IN_LOGS: Final = (
    re.compile(
        r"""([\w.-]*(?:passw(?:or)?d|passphrase|secret|token|credential|api_?key)[\w.-]*["']?\s*[=:]\s*)"""
        r"""(?:"[^"]*"|'[^']*'|[^\s,;&"']+)""",
        re.I,
    ),
    re.compile(r"(\b(?:Bearer|Basic)\s+)[\w.+/=~-]+", re.I),
)


@command("support-bundle")
@click.argument(
    "file", required=False, type=click.Path(path_type=Path, dir_okay=False), metavar="[FILE]"
)
@data_option("The data directory of the node.", takes_any_version=True)
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="The configuration that `odradek serve` has.",
)
@pass_session
def support_bundle(session: Session, file: Path | None, data: Path, config: Path | None) -> int:
    """Gather versions, settings without secrets, doctor's findings, metrics and logs of runs in a .tar.gz.

    The first file in it, listing.txt, tells what else is there; records are not. What `odradek serve` writes to
    stderr is where you had it written (`journalctl -u odradek`): add that yourself.
    """
    try:
        loaded = load_for_serve({"data": data}, config)
    except ConfigError as error:
        raise CommandError(str(error), code="CONFIG", exit_code=EXIT_USAGE) from None
    path = file or Path(f"odradek-support-{SystemClock().wall_ms() // 1000}.tar.gz")
    secrets = _secrets(loaded, data)
    parts = {name: _struck(text, secrets) for name, text in _parts(loaded, data.absolute(), config)}
    listing = "".join(f"{len(text.encode()):>10}  {name}\n" for name, text in parts.items())
    try:
        with (
            open(path, "wb", opener=_for_the_owner_alone) as file_of_it,
            tarfile.open(fileobj=file_of_it, mode="w:gz") as archive,
        ):
            for name, text in {"listing.txt": listing, **parts}.items():
                content = text.encode()
                entry = tarfile.TarInfo(f"odradek-support/{name}")
                entry.size, entry.mode = len(content), 0o600
                entry.mtime = SystemClock().wall_ms() // 1000
                archive.addfile(entry, io.BytesIO(content))
    except OSError as error:
        path.unlink(missing_ok=True)
        raise CommandError(
            f"{path}: {error.strerror}",
            hint="`odradek support-bundle FILE` writes it elsewhere; it is some kilobytes, and what runs have logged.",
            code="NOT_WRITTEN",
        ) from None
    row = {"file": str(path), "bytes": path.stat().st_size, "parts": list(parts)}
    return session.emit(
        Report(data=[row], text=f"{listing}{path}, {format_size(path.stat().st_size)}\n")
    )


def _for_the_owner_alone(path: str, flags: int) -> int:
    """Logs of runs may tell of records."""
    return os.open(path, flags, 0o600)


def _parts(loaded: LoadedConfig, data: Path, config: Path | None) -> Iterator[tuple[str, str]]:
    yield "versions.json", _json(_versions())
    yield "config.json", _json(_settings(loaded))
    yield "doctor.json", _doctor(data, config)
    for name in ("node", "stats", "offline", "cleaner"):
        try:
            yield f"broker/{name}.json", _json(control.ask(data, name))
        except CommandError as error:
            yield f"broker/{name}.json", _json({"error": str(error)})
    yield "metrics.txt", _metrics(loaded.values.broker_metrics)
    yield "data.txt", _tree(data)
    for name in ("odradek.json", "children.json", "serve.lock"):
        if (data / name).is_file():
            yield name, (data / name).read_text(errors="replace")
    logs = [path for path in (data / "run-logs").rglob("*") if path.is_file()]
    logs.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in logs[:MAX_RUN_LOGS]:
        text = path.read_text(errors="replace")
        for pattern in _IN_LOGS:
            text = pattern.sub(rf"\1{STRUCK}", text)
        yield str(path.relative_to(data)), text


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, default=str) + "\n"


def _versions() -> dict[str, Any]:
    from importlib.metadata import distributions

    return {
        "odradek": VERSION,
        "commit": build_facts.commit(),
        "is_compiled": build_facts.is_compiled(),
        "python": sys.version,
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "packages": dict(sorted((each.name, each.version) for each in distributions())),
    }


def _settings(loaded: LoadedConfig) -> dict[str, Any]:
    found = {}
    for name in ApplianceConfig.model_fields:
        value = getattr(loaded.values, name)
        if hasattr(value, "get_secret_value"):
            value = STRUCK if value.get_secret_value() else ""
        elif isinstance(value, Mapping):
            value = {key: _shown(key, each) for key, each in value.items()}
        found[name] = {"value": value, "source": loaded.sources[name]}
    return found


def _shown(key: str, value: str) -> str:
    return STRUCK if _SECRET_NAME.search(key) else value


def _doctor(data: Path, config: Path | None) -> str:
    """In a process of its own: it may hang on what it looks at."""
    try:
        return subprocess.run(
            [sys.executable, "-P", "-m", "appliance", "doctor", "--data", str(data),
             "--format", "json", *(["--config", str(config)] if config else [])],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
        ).stdout  # fmt: skip
    except subprocess.TimeoutExpired:
        return _json({"error": "doctor did not end in 60 s"})


def _metrics(address: str) -> str:
    if not address:
        return "the broker answers Prometheus nowhere\n"
    connection = http.client.HTTPConnection(*split_address(address), timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return f"{address}: {error}\n"
    finally:
        connection.close()


def _tree(data: Path) -> str:
    """Names and sizes of what lies at the top of the data directory."""
    lines = []
    try:
        for path in sorted(data.iterdir()):
            status = path.lstat()
            count = f"{sum(1 for _ in path.iterdir())} entries" if path.is_dir() else ""
            lines.append(f"{status.st_mode:o} {status.st_size:>12} {path.name} {count}".rstrip())
    except OSError as error:
        lines.append(f"{error.filename}: {error.strerror}")
    return "\n".join(lines) + "\n"


def _secrets(loaded: LoadedConfig, data: Path) -> list[str]:
    """Values that must not be told, wherever they turn up; the longest first."""
    found = {value for name, value in os.environ.items() if _SECRET_NAME.search(name)}
    for name in ApplianceConfig.model_fields:
        value = getattr(loaded.values, name)
        if hasattr(value, "get_secret_value"):
            found.add(value.get_secret_value())
        elif isinstance(value, Mapping):
            found |= {each for key, each in value.items() if _SECRET_NAME.search(key)}
    if loaded.values.broker_config is not None:
        try:
            of_broker = client_config.parse_properties(loaded.values.broker_config.read_text())
        except (OSError, UnicodeDecodeError):
            of_broker = {}
        found |= {each for key, each in of_broker.items() if _SECRET_NAME.search(key)}
    for name in SECRET_FILES:
        try:
            found.add((data / name).read_text().strip())
        except OSError:
            continue
    for value in tuple(found):
        for inside in (each for pattern in _INSIDE for each in pattern.findall(value)):
            found |= {inside, unquote(inside)}
    return sorted((each for each in found if each), key=len, reverse=True)


def _struck(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        if len(secret) < _SHORT:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", STRUCK, text)
        else:
            text = text.replace(secret, STRUCK)
    for pattern in _IN_ANY_TEXT:
        text = pattern.sub(rf"\1{STRUCK}", text)
    return text
