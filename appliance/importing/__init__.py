"""``odradek import``: topics of another cluster become topics here, offset for offset.

``batches`` makes a source's bytes ready, ``progress`` knows where each partition's copy goes on, ``copying`` fetches
and appends, ``here`` asks the broker for it, ``topics`` makes the topics and their settings, ``offsets`` brings the
groups' offsets, ``patience`` asks again while leaders move, ``ledger`` knows what has been finished. The broker's part is ``broker/server/importing.py``.
"""
