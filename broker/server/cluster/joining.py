"""What brokers must agree on before any of them is controller: the cluster's id and its secret.

Both are nodes that whoever comes first creates.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.metadata import znodes
from broker.metadata.store import Create, MetadataStore, Node
from broker.server.data_directory import Identity, find_identity
from broker.server.start_error import StartError
from broker.server.tasks import called_back

SECRET_BYTES: Final = 32
#: Others create the same nodes at the same time; one of us is first.
MAX_ATTEMPTS: Final = 5


class Agreed(NamedTuple):
    identity: Identity
    secret: bytes


async def agree(store: MetadataStore, log_dirs: Sequence[str]) -> Agreed:
    """Raises StartError."""
    for _ in range(MAX_ATTEMPTS):
        moving = await called_back(store.get, znodes.CLUSTER_MOVING)
        if isinstance(moving, Node):
            raise StartError(
                "a cluster is being moved there: `odradek cluster move-to-zookeeper` on its node ends it"
            )
        identity = await find_identity(store, log_dirs)
        secret = await called_back(store.get, znodes.CLUSTER_SECRET)
        if not identity.is_new and isinstance(secret, Node):
            return Agreed(identity, secret.data)
        # Each by itself: any of them may be there.
        for node in (
            Create(znodes.CLUSTER),
            Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(identity.cluster_id)),
            Create(znodes.CLUSTER_SECRET, secrets.token_bytes(SECRET_BYTES)),
        ):
            await called_back(store.submit, [node])
    raise StartError("the cluster's id cannot be read from ZooKeeper, or not be written")
