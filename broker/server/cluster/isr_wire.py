"""ISRs that leaders propose, on the wire to the controller (``PrivateKey.ALTER_ISR``): as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from broker.metadata.requests import AlteredIsr
from broker.model.error_code import ErrorCode
from broker.model.ids import BrokerId
from broker.model.leadership import IsrMember, IsrProposal, LeaderAndIsr


class AskedIsr(NamedTuple):
    topic: str
    index: int  # type: ignore[assignment]  # hides a method that nobody calls
    proposal: IsrProposal


def encode_proposals(asked: Sequence[AskedIsr]) -> dict[str, Any]:
    return {"partitions": [[topic, index, *proposal] for topic, index, proposal in asked]}


def decode_proposals(body: dict[str, Any]) -> list[AskedIsr]:
    """Raises ValueError, KeyError or TypeError at anything else."""
    asked = []
    for topic, index, leader_id, broker_epoch, leader_epoch, epoch, members in body["partitions"]:
        proposal = IsrProposal(
            BrokerId(int(leader_id)),
            int(broker_epoch),
            int(leader_epoch),
            int(epoch),
            tuple(IsrMember(BrokerId(int(member)), int(of)) for member, of in members),
        )
        asked.append(AskedIsr(str(topic), int(index), proposal))
    return asked


def encode_altered(results: Sequence[AlteredIsr]) -> dict[str, Any]:
    return {
        "results": [
            [int(each.error), None if each.state is None else _state_as_json(each.state)]
            for each in results
        ]
    }


def decode_altered(body: dict[str, Any]) -> list[tuple[ErrorCode, LeaderAndIsr | None]]:
    """Raises ValueError, KeyError or TypeError at anything else."""
    return [
        (ErrorCode(code), None if state is None else _state_from_json(state))
        for code, state in body["results"]
    ]


def _state_as_json(state: LeaderAndIsr) -> list[Any]:
    return [*state[:3], list(state.replicas), sorted(state.isr)]


def _state_from_json(state: Any) -> LeaderAndIsr:
    leader_id, leader_epoch, partition_epoch, replicas, isr = state
    return LeaderAndIsr(
        BrokerId(int(leader_id)),
        int(leader_epoch),
        int(partition_epoch),
        tuple(BrokerId(int(each)) for each in replicas),
        frozenset(BrokerId(int(each)) for each in isr),
    )
