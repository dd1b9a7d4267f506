"""Frames between brokers, and the proof that comes first."""

from __future__ import annotations

import pytest

from broker.protocol.request import parse_header
from broker.server.cluster.private_wire import (
    MAX_ANSWER_BYTES,
    PrivateKey,
    decode_length,
    encode_answer,
    encode_request,
    is_proof,
    new_nonce,
    proof,
    split_answer,
)


def test_a_request_has_kafkas_frame_and_header() -> None:
    frame = encode_request(PrivateKey.PULL_IMAGE, 7, {"epoch": 1})
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header = parse_header(memoryview(frame)[4:])
    assert (header.api_key, header.api_version, header.correlation_id) == (31001, 0, 7)
    assert frame[4 + header.body_offset :] == b'{"epoch":1}'


def test_an_answer_comes_out_as_it_went_in() -> None:
    frame = encode_answer(7, b"{}")
    assert decode_length(frame[:4]) == len(frame) - 4
    assert split_answer(frame[4:]) == (7, b"{}")


@pytest.mark.parametrize("length", [-1, 0, 3, MAX_ANSWER_BYTES + 1])
def test_an_answer_of_a_length_that_none_has_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="bytes"):
        decode_length(length.to_bytes(4, "big", signed=True))


def test_a_proof_holds_for_its_secret_its_side_and_its_nonces() -> None:
    mine, others = new_nonce(), new_nonce()
    shown = proof(b"secret", "caller", mine, others)
    assert is_proof(shown, proof(b"secret", "caller", mine, others))
    assert not is_proof(shown, proof(b"another", "caller", mine, others))
    assert not is_proof(shown, proof(b"secret", "called", mine, others))
    assert not is_proof(shown, proof(b"secret", "caller", others, mine))
    assert not is_proof(None, shown)
    assert not is_proof("ü", shown)
