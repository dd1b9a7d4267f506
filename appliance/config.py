"""The appliance's one typed configuration: file, environment and flags, and where each value came from.

Later wins: default, file (TOML), environment (``ODRADEK_<KEY>``, secrets also ``ODRADEK_<KEY>_FILE``),
flags. Keys that nobody knows are refused, with the nearest that exists. Children of the supervisor
load the same configuration: what came by flag reaches them through their environment.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

from dashboard.probe import join_address, split_address

PREFIX = "ODRADEK_"
FILE_SUFFIX = "_FILE"
CONFIG_VARIABLE = "ODRADEK_CONFIG"
UNPREFIXED = {"DATABASE_URL": "database_url"}
"""Names that hosting platforms set by themselves."""
NOT_SETTINGS = frozenset(
    {
        "BOOTSTRAP",
        "SPARK_JARS",
        "MAVEN",
        "COMPILED",
        "PARENT_FD",
        "CONFIG",
        "CACHE",
        "EXECUTABLE",
        "CARRIED_SPARK",
        "REQUIRE_JUDGES",
        "PART",
        "SCREENSHOTS",
    }
)
"""Variables with our prefix that belong to somebody else: the command line, tests, the supervisor,
the single executable."""

Source = Literal["default", "file", "environment", "secret file", "flag"]


def _address(value: Any) -> Any:
    return join_address(*split_address(value)) if isinstance(value, str) and value else value


def _words(value: Any) -> Any:
    """Lists may be written with commas, as the environment has to."""
    return (
        [word.strip() for word in value.split(",") if word.strip()]
        if isinstance(value, str)
        else value
    )


def _pairs(value: Any) -> Any:
    """Tables may be written as lines of ``key=value``, as the environment has to; TOML reads a bare
    ``num.partitions = 3`` as a table in a table."""
    if isinstance(value, str):
        from appliance.client_config import parse_properties

        return parse_properties(value)
    return dict(_flat("", value)) if isinstance(value, dict) else value


def _flat(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{name}.", value)
        elif isinstance(value, bool):
            yield prefix + name, str(value).lower()
        else:
            yield prefix + name, str(value) if isinstance(value, int | float) else value


def _root_path(value: Any) -> Any:
    if not isinstance(value, str) or not value.strip("/"):
        return ""
    return "/" + value.strip("/")


Address = Annotated[str, BeforeValidator(_address)]
Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
Pairs = Annotated[dict[str, str], BeforeValidator(_pairs)]


class ApplianceConfig(BaseModel):
    """What can be set. Field descriptions are what ``odradek config show`` and the docs say."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: Path = Field(Path("data"), description="Where everything is kept.")
    listen: Address | None = Field(
        None,
        description="Where Kafka clients connect; 127.0.0.1:9092 unless broker settings name listeners.",
    )
    advertised: Address | None = Field(
        None,
        description="What clients are told to connect to, when that is not where they came in.",
    )
    open: bool = Field(
        True,
        description="Whether other machines may reach Kafka's listeners, where nobody has to sign in."
        " The container image says no until it is told.",
    )
    web: Address = Field("127.0.0.1:8080", description="Where browsers connect.")
    root_path: Annotated[str, BeforeValidator(_root_path)] = Field(
        "", description="Path prefix behind a reverse proxy, such as /odradek."
    )
    public_url: str = Field(
        "", description="Address of the dashboard as people type it, when a proxy stands before it."
    )
    allowed_hosts: Words = Field(
        (), description="Further host names under which the dashboard answers."
    )
    trusted_proxies: int = Field(
        0, ge=0, le=10, description="Reverse proxies whose X-Forwarded-For is believed."
    )
    cluster: str = Field(
        "", description="Bootstrap servers of the cluster to show; empty: the broker of this node."
    )
    client_properties: Pairs = Field(
        default_factory=dict, description="Properties of librdkafka for reaching the cluster."
    )
    broker_config: Path | None = Field(
        None, description="Broker settings in a file of Java properties."
    )
    broker: Pairs = Field(
        default_factory=dict,
        description="Broker settings by Kafka's names; win over broker_config.",
    )
    broker_metrics: Address = Field(
        "127.0.0.1:9404",
        description="Where the broker answers Prometheus; only loopback; empty: nowhere. Taken by"
        " another program, the default is done without, and one that was chosen ends the start.",
    )
    refresh_s: int = Field(
        10,
        ge=1,
        le=10,
        description="Seconds from one look at the cluster to the next while somebody has a page open."
        " Less makes pages newer, and asks brokers more often.",
    )
    database_url: SecretStr = Field(
        SecretStr(""), description="postgres://…; empty: SQLite in the data directory."
    )
    celery_url: SecretStr = Field(
        SecretStr(""), description="redis://… or amqp://…; empty: files in the data directory."
    )
    secret_key: SecretStr = Field(
        SecretStr(""), description="Signs sessions; empty: made once, kept in the data directory."
    )
    admin_name: str = Field("admin", min_length=1, max_length=150, description="The first admin.")
    admin_password: SecretStr = Field(
        SecretStr(""), description="The first admin's password; empty: made at the first start."
    )
    metrics_token: SecretStr = Field(
        SecretStr(""),
        description="Bearer token for /metrics; empty: only a signed-in admin sees it.",
    )
    smtp_host: str = Field("", description="Mail server for alerts.")
    smtp_port: int = Field(25, ge=1, le=65535, description="Its port.")
    smtp_user: str = Field("", description="User name at the mail server.")
    smtp_password: SecretStr = Field(SecretStr(""), description="Password at the mail server.")
    smtp_from: str = Field("odradek@localhost", description="Sender of alert mails.")
    smtp_security: Literal["none", "starttls", "tls"] = Field(
        "none", description="Encryption towards the mail server."
    )
    spark_home: Path | None = Field(
        None, description="Where `odradek spark prepare` keeps Spark; empty: in the data directory."
    )
    spark_master: str = Field(
        "",
        description="Where reports are computed: spark://host:port, yarn, k8s://…; empty: this node.",
    )
    spark: Pairs = Field(
        default_factory=dict, description="Further settings of Spark, by its names (spark.…)."
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="Least grave log line that is written."
    )


SECRETS = frozenset(
    name for name, field in ApplianceConfig.model_fields.items() if field.annotation is SecretStr
)


class ConfigError(Exception):
    """A configuration that cannot be used; the message names key and source."""


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """The effective configuration, with the source of each key."""

    values: ApplianceConfig
    sources: Mapping[str, Source]
    file: Path | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)

    def as_environment(self) -> dict[str, str]:
        """What children need beside this process's environment to load the same."""
        return as_environment(self.flags, self.file)


def load(
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> LoadedConfig:
    """Merge all sources. ``flags`` that are None were not given. Raises ConfigError."""
    environment = os.environ if environment is None else environment
    if file is None and (named := environment.get(CONFIG_VARIABLE)):
        file = Path(named)
    merged: dict[str, Any] = {}
    sources: dict[str, Source] = dict.fromkeys(ApplianceConfig.model_fields, "default")

    def take(found: Mapping[str, Any], source: Source) -> None:
        for name, value in found.items():
            merged[name] = value
            sources[name] = source

    take(_read_file(file) if file is not None else {}, "file")
    for source, found in _read_environment(environment):
        take(found, source)
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    take(given, "flag")
    try:
        values = ApplianceConfig.model_validate(merged)
    except ValidationError as error:
        raise ConfigError(_explain(error, sources)) from None
    return LoadedConfig(values, sources, file, given)


def load_for_serve(flags: Mapping[str, Any], file: Path | None) -> LoadedConfig:
    """``load`` with serve's own habits: a file of Java properties is the broker's alone, and single
    broker settings add to those of the configuration instead of replacing them."""
    flags = dict(flags)
    if file is not None and not is_toml(file):
        flags["broker_config"] = file.absolute()
        file = None
    properties = flags.pop("broker", {})
    loaded = load(flags, file=file)
    if not properties:
        return loaded
    return load({**flags, "broker": loaded.values.broker | properties}, file=file)


def is_toml(path: Path) -> bool:
    """``.toml`` is, ``.properties`` is not; anything else is if it begins with keys of ours."""
    if path.suffix in (".toml", ".properties"):
        return path.suffix == ".toml"
    try:
        found = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return False
    return bool(found) and all(name in ApplianceConfig.model_fields for name in found)


def as_environment(flags: Mapping[str, Any], file: Path | None) -> dict[str, str]:
    """What children need in their environment to load the same configuration."""
    found = {CONFIG_VARIABLE: str(file.absolute())} if file is not None else {}
    for name, value in flags.items():
        if value is None:
            continue
        if isinstance(value, Mapping):
            text = "\n".join(f"{key}={each}" for key, each in value.items())
        elif isinstance(value, tuple | list):
            text = ",".join(map(str, value))
        else:
            text = str(value)
        found[PREFIX + name.upper()] = text
    return found


@cache
def current() -> LoadedConfig:
    """The configuration of this process, from its environment; read once."""
    return load()


def _read_file(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    for name in found:
        _check_known(name, f"in {path}")
    return found


def _read_environment(environment: Mapping[str, str]) -> list[tuple[Source, dict[str, Any]]]:
    plain: dict[str, Any] = {}
    from_files: dict[str, Any] = {}
    for variable, value in environment.items():
        if variable in UNPREFIXED:
            plain.setdefault(UNPREFIXED[variable], value)
        if not variable.startswith(PREFIX):
            continue
        rest = variable.removeprefix(PREFIX)
        if rest in NOT_SETTINGS:
            continue
        name = rest.lower()
        secret = name.removesuffix(FILE_SUFFIX.lower())
        if secret in SECRETS and rest.endswith(FILE_SUFFIX):
            from_files[secret] = _read_secret(Path(value), variable)
            continue
        _check_known(name, f"in the environment ({variable})")
        plain[name] = value
    return [("environment", plain), ("secret file", from_files)]


def _read_secret(path: Path, variable: str) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{variable}: cannot read {path}: {error}") from None


def _check_known(name: str, where: str) -> None:
    if name in ApplianceConfig.model_fields:
        return
    near = difflib.get_close_matches(name, ApplianceConfig.model_fields, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ConfigError(f"unknown setting {name!r} {where}{hint}")


def _explain(error: ValidationError, sources: Mapping[str, Source]) -> str:
    problems = []
    for problem in error.errors(include_url=False, include_input=False):
        name = str(problem["loc"][0]) if problem["loc"] else "configuration"
        problems.append(f"{name} (from {sources.get(name, 'flag')}): {problem['msg']}")
    return "; ".join(problems)
