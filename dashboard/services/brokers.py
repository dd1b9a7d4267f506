"""Changes of brokers' dynamic settings; a refusal is a value, every change is audited."""

from __future__ import annotations

from dashboard import clusters
from dashboard.answers import answers
from dashboard.cluster import DEFAULT_BROKER, ConfigChange, ConfigOperation, KafkaFailure
from dashboard.selectors.brokers import key_of
from dashboard.services import audit
from dashboard.services.audit import Actor


def set_setting(
    *, actor: Actor, broker_id: int, key: str, value: str | None, for_all: bool, before: str | None
) -> KafkaFailure | None:
    """None takes the setting away, so that what lies below holds again."""
    name = DEFAULT_BROKER if for_all else str(broker_id)
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    target = f"{'all brokers' if for_all else f'broker {broker_id}'}: {key}"
    with audit.change(actor, "broker.settings", target) as change:
        change.before, change.after = {key: before}, {key: value}
        try:
            failure = clusters.gateway().alter_broker_configs(
                name, [ConfigChange(key, operation, value)]
            )
        except KafkaFailure as error:
            failure = error
        change.failure = str(failure or "")
    answers.forget(key_of(broker_id))
    return failure
