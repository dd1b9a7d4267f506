"""A process with a session, for a test that kills it: registers an ephemeral node and waits.

Arguments: address, session file, path. Prints a line when the node is there.
"""

import sys
from pathlib import Path

from broker.metadata.store import Create, SessionState
from broker.metadata.zookeeper_address import ZooKeeperAddress
from broker.metadata.zookeeper_session import SessionFile
from broker.metadata.zookeeper_store import ZooKeeperStore
from tests.support.thread_turns import ThreadTurns


def main(address: str, session_file: str, path: str) -> None:
    turns = ThreadTurns()
    store = ZooKeeperStore(
        ZooKeeperAddress(address, session_timeout_ms=60_000),
        SessionFile(Path(session_file)),
        turns.post,
    )
    store.open()
    turns.wait(lambda: store.session_state is SessionState.CONNECTED, "a session")
    store.submit([Create(path, is_ephemeral=True)], lambda outcome: print(outcome, flush=True))
    turns.wait(lambda: False, "the end of this process", seconds=3600)


main(*sys.argv[1:])
