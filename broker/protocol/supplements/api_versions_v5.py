"""ApiVersions request version 5 (KIP-1242): the client may name the node that it believes to reach.

The response of version 5 has the layout of version 4.
"""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequest:
    __version__: ClassVar[int] = 5
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 18
    client_software_name: str = field(metadata={"kafka_type": "string"})
    client_software_version: str = field(metadata={"kafka_type": "string"})
    cluster_id: str | None = field(metadata={"kafka_type": "string"}, default=None)
    node_id: int = field(metadata={"kafka_type": "int32"}, default=-1)
