"""The form of a new topic: what was typed, what it means, and what is wrong with which field.

Numbers and units are read here; whether values are good is for the cluster to say, whose refusal is
put beside the field that it is about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dashboard import topic_settings
from dashboard.cluster import KafkaFailure
from dashboard.refusals import Refusal, refusal_of
from dashboard.selectors.topic_detail import NewTopicDefaults
from dashboard.topic_settings import Words

SETTING = "setting:"
"""Before the name of a setting in the form."""
NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
MOST_PARTITIONS = 100_000


@dataclass(slots=True)
class SettingField:
    words: Words
    default: str | None
    value: str = ""
    """As typed; empty: not said, so that the default holds."""
    is_empty: bool = False
    """The empty list is wanted, which is not the same as nothing said."""
    error: Refusal | None = None

    @property
    def input_name(self) -> str:
        return f"{SETTING}{self.words.name}"

    @property
    def element_id(self) -> str:
        return "setting-" + self.words.name.replace(".", "-")

    @property
    def default_in_words(self) -> str:
        return topic_settings.in_words(self.words.name, self.default)

    @property
    def unit_help(self) -> str:
        unit = topic_settings.unit_of(self.words.name)
        if unit is topic_settings.Unit.TIME:
            return "ms, or 90 s, 36 h, 7 d"
        return "bytes, or 512 KiB, 1 GiB" if unit is topic_settings.Unit.SIZE else ""


EMPTY_OPTION = "(empty)"
"""How a form says the empty list; an empty value means the default."""


@dataclass(slots=True)
class NewTopicForm:
    defaults: NewTopicDefaults
    name: str = ""
    partitions: str = ""
    replicas: str = ""
    settings: dict[str, SettingField] = field(default_factory=dict)
    errors: dict[str, Refusal] = field(default_factory=dict)
    """By field; those of a setting stand in its own field, those of none under ``form``."""

    def __post_init__(self) -> None:
        for name in self.defaults.names:
            words = topic_settings.words_of(name)
            self.settings[name] = SettingField(words, self.defaults.settings.get(name))

    def take(self, data: Mapping[str, str]) -> None:
        """What came from the page."""
        self.name = data.get("name", "").strip()
        self.partitions = data.get("partitions", "").strip()
        self.replicas = data.get("replicas", "").strip()
        for one in self.settings.values():
            typed = data.get(one.input_name, "").strip()
            one.is_empty = typed == EMPTY_OPTION
            one.value = "" if one.is_empty else typed
        if not NAME.fullmatch(self.name) or self.name in (".", ".."):
            self.refuse(KafkaFailure("INVALID_TOPIC_EXCEPTION", "That is not a name for a topic"))
        for name in ("partitions", "replicas"):
            typed = getattr(self, name)
            is_number = typed.isascii() and typed.isdigit() and len(typed) <= 6
            if typed and not (is_number and 0 < int(typed) <= MOST_PARTITIONS):
                self.errors[name] = Refusal(
                    name,
                    f"It takes a whole number from 1 to {MOST_PARTITIONS}; empty: the default.",
                    "",
                )

    def copy_from(self, partitions: int, replicas: int, settings: Mapping[str, str]) -> None:
        """Start from another topic's."""
        self.partitions, self.replicas = str(partitions), str(replicas)
        for name, value in settings.items():
            if name in self.settings:
                self.settings[name].value = value
                self.settings[name].is_empty = value == ""

    def refuse(self, failure: KafkaFailure) -> None:
        refusal = refusal_of(failure, self.settings)
        if refusal.field in self.settings:
            self.settings[refusal.field].error = refusal
        else:
            self.errors[refusal.field or "form"] = refusal

    @property
    def is_good(self) -> bool:
        return not self.errors and not any(one.error for one in self.settings.values())

    @property
    def partition_count(self) -> int:
        return int(self.partitions or -1)

    @property
    def replica_count(self) -> int:
        return int(self.replicas or -1)

    @property
    def configs(self) -> dict[str, str]:
        """What was said, in each setting's own unit."""
        return {
            name: topic_settings.read(name, one.value)
            for name, one in self.settings.items()
            if one.value or one.is_empty
        }

    @property
    def main_settings(self) -> list[SettingField]:
        return [self.settings[name] for name in topic_settings.MAIN if name in self.settings]

    @property
    def more_settings(self) -> Iterator[tuple[str, Sequence[SettingField], bool]]:
        """The rest by heading, and whether one of them needs to be seen."""
        groups: dict[str, list[SettingField]] = {group: [] for group in topic_settings.GROUPS}
        for name, one in self.settings.items():
            if name not in topic_settings.MAIN:
                groups.setdefault(topic_settings.group_of(name), []).append(one)
        for group, fields in groups.items():
            if fields:
                is_open = any(one.value or one.is_empty or one.error for one in fields)
                yield group, fields, is_open

    @property
    def preview(self) -> list[tuple[str, str, str]]:
        """(setting, value, value in words) of what would be created."""
        return [
            (name, value, topic_settings.in_words(name, value))
            for name, value in self.configs.items()
        ]
