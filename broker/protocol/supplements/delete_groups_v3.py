"""DeleteGroups response version 3: a message beside each group's error.

The request of version 3 has the layout of version 2.
"""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletableGroupResult:
    __version__: ClassVar[int] = 3
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 42
    group_id: str = field(metadata={"kafka_type": "string"})
    error_code: int = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsResponse:
    __version__: ClassVar[int] = 3
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 42
    throttle_time: int = field(metadata={"kafka_type": "timedelta_i32"})
    results: tuple[DeletableGroupResult, ...]
