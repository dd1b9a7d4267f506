"""Tables of Kafka's topic and broker settings, what they resolve to, and how they are shown.

``definition``      what a setting is; how its text is parsed, checked and rendered
``topic_keys``      the table of topic settings
``broker_keys``     the table of broker settings, put together from ``tables``, and facts about names
``properties``      Java's ``.properties`` format
``listeners``       addresses to listen on and to advertise
``broker_checks``   settings that contradict each other; what may change while the broker runs
``broker_config``   static and dynamic settings of this broker -> typed ``BrokerConfig``
``topic_config``    overrides of a topic over the broker's defaults -> typed ``TopicConfig``
``describe``        the same, as DescribeConfigs shows it: value, source, synonyms
``alter``           what AlterConfigs and IncrementalAlterConfigs make of the stored overrides
``documentation``   the tables as a page of Markdown

Values are kept as text and read where they are used first; nothing here does any I/O. A test sees to
it that ``has_effect`` in the tables is the truth.
"""
