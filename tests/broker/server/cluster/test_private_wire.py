"""Frames between brokers, and the proof that comes first."""

from __future__ import annotations

import pytest

from broker.protocol.request import parse_header
from broker.server.cluster.private_wire import (
    MAX_HEAD_BYTES,
    PrivateKey,
    correlation_id_of,
    encode_answer,
    encode_request,
    is_proof,
    new_nonce,
    proof,
    split_answer,
    split_body,
)


def test_a_request_has_kafkas_frame_and_header() -> None:
    frame = encode_request(PrivateKey.PULL_IMAGE, 7, {"epoch": 1})
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header = parse_header(memoryview(frame)[4:])
    assert (header.api_key, header.api_version, header.correlation_id) == (31001, 0, 7)
    assert frame[4 + header.body_offset :] == b'{"epoch":1}'


@pytest.mark.parametrize("batches", [b"", b"\n", b"batches, with\na line feed" * 3])
def test_batches_come_behind_what_is_asked_and_stay_as_they_are(batches: bytes) -> None:
    body = {"topic": "with a \n in its name", "at": 3}
    frame = encode_request(PrivateKey.IMPORT, 7, body, batches)
    header = parse_header(memoryview(frame)[4:])
    assert split_body(memoryview(frame)[4 + header.body_offset :]) == (body, bytearray(batches))


def test_what_has_no_batches_behind_it_has_none() -> None:
    assert split_body(memoryview(b'{"at":1}')) == ({"at": 1}, bytearray())


def test_a_head_that_does_not_end_is_refused() -> None:
    with pytest.raises(ValueError, match="Unterminated"):
        split_body(memoryview(b'{"topic":"' + b"x" * MAX_HEAD_BYTES))


def test_an_answer_comes_out_as_it_went_in() -> None:
    frame = encode_answer(7, b"{}")
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert correlation_id_of(memoryview(frame)[4:]) == 7
    assert split_answer(frame[4:]) == (7, b"{}")


def test_a_proof_holds_for_its_secret_its_side_and_its_nonces() -> None:
    mine, others = new_nonce(), new_nonce()
    shown = proof(b"secret", "caller", mine, others)
    assert is_proof(shown, proof(b"secret", "caller", mine, others))
    assert not is_proof(shown, proof(b"another", "caller", mine, others))
    assert not is_proof(shown, proof(b"secret", "called", mine, others))
    assert not is_proof(shown, proof(b"secret", "caller", others, mine))
    assert not is_proof(None, shown)
    assert not is_proof("ü", shown)
