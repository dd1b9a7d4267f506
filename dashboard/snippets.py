"""Lines to copy: how clients reach one topic, with the addresses that the brokers advertise."""

from __future__ import annotations

from typing import NamedTuple

from django.conf import settings

from dashboard import clusters
from dashboard.probe import join_address
from dashboard.snapshots import ClusterSnapshot

SERVERS = 3
"""As many brokers as a client needs to find the others."""
SPARK_CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"


class Snippet(NamedTuple):
    name: str
    text: str


class Snippets(NamedTuple):
    bootstrap: str
    security: str
    """``security.protocol`` where it is not plaintext: clients need settings of their own then."""
    snippets: list[Snippet]


def snippets_of(snapshot: ClusterSnapshot | None, topic: str) -> Snippets:
    brokers = list(snapshot.brokers.values())[:SERVERS] if snapshot is not None else []
    addresses = [join_address(broker.host, broker.port) for broker in brokers]
    bootstrap = ",".join(addresses) or clusters.bootstrap()
    protocol = str(settings.ODRADEK_CLIENT_PROPERTIES.get("security.protocol", ""))
    is_plain = protocol.lower() in ("", "plaintext")
    return Snippets(bootstrap, "" if is_plain else protocol.upper(), _all(bootstrap, topic))


def _all(bootstrap: str, topic: str) -> list[Snippet]:
    return [
        Snippet(
            "kcat",
            f"# produce: one record a line, key and value parted by a colon\n"
            f"kcat -b {bootstrap} -t {topic} -P -K:\n\n"
            f"# consume from the beginning, and end at the end\n"
            f"kcat -b {bootstrap} -t {topic} -C -o beginning -e",
        ),
        Snippet(
            "Odradek",
            f"odradek produce {topic} -b {bootstrap}\nodradek consume {topic} -b {bootstrap}",
        ),
        Snippet(
            "Kafka's console tools",
            f"bin/kafka-console-producer.sh --bootstrap-server {bootstrap} --topic {topic}\n\n"
            f"bin/kafka-console-consumer.sh --bootstrap-server {bootstrap} --topic {topic} \\\n"
            f"  --from-beginning",
        ),
        Snippet(
            "Python (confluent-kafka)",
            f"""from confluent_kafka import Consumer, Producer

producer = Producer({{"bootstrap.servers": "{bootstrap}"}})
producer.produce("{topic}", key="key", value="value")
producer.flush()

consumer = Consumer(
    {{
        "bootstrap.servers": "{bootstrap}",
        "group.id": "my-group",
        "auto.offset.reset": "earliest",
    }}
)
consumer.subscribe(["{topic}"])
while True:
    record = consumer.poll(1.0)
    if record is not None and record.error() is None:
        print(record.partition(), record.offset(), record.key(), record.value())""",
        ),
        Snippet(
            "Java",
            f"""Properties properties = new Properties();
properties.put("bootstrap.servers", "{bootstrap}");
properties.put("group.id", "my-group");
properties.put("auto.offset.reset", "earliest");
properties.put("key.deserializer", StringDeserializer.class.getName());
properties.put("value.deserializer", StringDeserializer.class.getName());
try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties)) {{
    consumer.subscribe(List.of("{topic}"));
    while (true) {{
        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {{
            System.out.println(record.offset() + " " + record.key() + " " + record.value());
        }}
    }}
}}""",
        ),
        Snippet(
            "Spark (Odradek's helper)",
            f"""# eval "$(odradek spark env)"
from spark_tasks.reading import read, read_result, read_stream, start_session

spark = start_session()
records = read(spark, "{topic}", bootstrap="{bootstrap}", since="-1h")
records.selectExpr("partition", "offset", "timestamp", "CAST(value AS STRING)").show()

# as a stream that reads what is there, ends, and goes on there the next time
query = (
    read_stream(spark, "{topic}", bootstrap="{bootstrap}")
    .writeStream.format("parquet")
    .option("path", "{topic}.out")
    .option("checkpointLocation", "{topic}.checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
read_result(spark, "{topic}.out").show()""",
        ),
        Snippet(
            "Spark (PySpark)",
            f"""# pyspark --packages {SPARK_CONNECTOR}
records = (
    spark.read.format("kafka")
    .option("kafka.bootstrap.servers", "{bootstrap}")
    .option("subscribe", "{topic}")
    .option("startingOffsets", "earliest")
    .option("includeHeaders", "true")
    .load()
)
records.selectExpr("partition", "offset", "timestamp", "CAST(value AS STRING)").show()""",
        ),
    ]
