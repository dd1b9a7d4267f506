"""What a refusal is about, in words."""

from dashboard.cluster import KafkaFailure
from dashboard.refusals import refusal_of


def test_a_setting_is_found_by_the_longest_name_in_the_message() -> None:
    message = "Invalid value x for configuration local.retention.ms: expected a whole number"
    refusal = refusal_of(
        KafkaFailure("INVALID_CONFIG", message), ["retention.ms", "local.retention.ms"]
    )

    assert refusal.field == "local.retention.ms"
    assert refusal.text == f"{message}."


def test_a_bare_code_is_said_in_words_with_what_to_do_next() -> None:
    refusal = refusal_of(KafkaFailure("POLICY_VIOLATION", "policy violation"))

    assert "cleanup policy" in refusal.text
    assert "delete" in refusal.hint


def test_a_cluster_that_does_not_answer_is_no_refusal_of_a_value() -> None:
    failure = KafkaFailure("INVALID_CONFIG", "connection refused", is_transport=True)
    refusal = refusal_of(failure, ["retention.ms"])

    assert refusal.text == "The cluster did not answer: connection refused."
    assert "before you repeat" in refusal.hint
