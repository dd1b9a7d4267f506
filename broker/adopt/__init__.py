"""A stopped Apache Kafka's log directories become a data directory of ours.

    source           what lies in Kafka's directories; their locks
    metadata_log     ``__cluster_metadata-0``: newest checkpoint, then its log
    metadata_record  bytes of one metadata record (``record_layouts`` is generated)
    kafka_metadata   what the records add up to
    settings         Kafka's server.properties, as far as it concerns data
    judgement        all of that to a ``plan``, or a ``refusal``; ``topic_judgement`` topic by topic
    partition_files  which files of a partition are taken, and how
    execution        the plan carried out, in steps that may be interrupted (``disk``)
    store_writer     the metadata store of the new data directory
    adoption         from beginning to end; ``python -m broker.adopt`` calls it

Kafka's directories are never written to, unless they are to be moved. The broker refuses to start
on a data directory whose adoption is not finished (``names.STAGING``).
"""
