"""Tables of Kafka's topic and broker settings, what they resolve to, and how they are shown.

``definition``      what a setting is; how its text is parsed, checked and rendered
``topic_keys``      the table of topic settings
``broker_keys``     the table of broker settings, put together from ``tables``
``broker_config``   static and dynamic settings of this broker -> typed ``BrokerConfig``
``topic_config``    overrides of a topic over the broker's defaults -> typed ``TopicConfig``
``listeners``       addresses to listen on and to advertise
``describe``        the same, as DescribeConfigs shows it: value, source, synonyms
``alter``           what AlterConfigs and IncrementalAlterConfigs make of the stored overrides
``documentation``   the tables as a page of Markdown
"""
