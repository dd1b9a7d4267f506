"""Alerts: what is watched, when it fires, and who is told.

``sources`` (looks) -> ``observations`` (judges) -> ``machine`` (decides) -> ``evaluator`` (writes
alerts and the messages about them in one transaction) -> ``delivery`` (sends, in threads of its
own) by ``webhook`` and ``mail``. ``kinds`` is the table of what can be watched; ``start`` in
``watch`` is what the web process calls.
"""
