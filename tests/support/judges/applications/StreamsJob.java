import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * A Kafka Streams application that runs until it is killed; says RUNNING each time that it does.
 * Arguments: count or join, the bootstrap address, the replicas of internal topics, the application's
 * id, its directory, the topic of results, the topics of input.
 */
public class StreamsJob {
    /** How far two records that are joined may be from each other. */
    private static final Duration WINDOW = Duration.ofSeconds(10);

    public static void main(String[] args) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> input = builder.stream(args[6]);
        KStream<String, String> results = args[0].equals("count")
                ? count(input)
                : join(input, builder.stream(args[7]));
        results.to(args[5]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[1]);
        settings.put("replication.factor", args[2]);
        settings.put("application.id", args[3]);
        settings.put("state.dir", args[4]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        settings.put("num.stream.threads", "2");
        settings.put("commit.interval.ms", "100");
        settings.put("repartition.purge.interval.ms", "100");
        // Each change of a result is told, so that one that is made twice shows.
        settings.put("statestore.cache.max.bytes", "0");
        // Whoever was killed is to be missed soon.
        settings.put("consumer.session.timeout.ms", "3000");
        settings.put("consumer.heartbeat.interval.ms", "500");
        settings.put("consumer.auto.offset.reset", "earliest");
        settings.put("consumer.max.poll.records", "100");
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                System.out.println(now);
            } else if (now == KafkaStreams.State.ERROR) {
                Runtime.getRuntime().halt(1);
            }
        });
        streams.start();
    }

    private static KStream<String, String> count(KStream<String, String> lines) {
        return lines
                .flatMap((key, line) -> Arrays.stream(line.split(" "))
                        .map(word -> KeyValue.pair(word, word))
                        .toList())
                .groupByKey(Grouped.as("words"))
                .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts"))
                .toStream()
                .mapValues(String::valueOf);
    }

    private static KStream<String, String> join(KStream<String, String> left, KStream<String, String> right) {
        JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(WINDOW, Duration.ofDays(1));
        return left.join(right, (one, other) -> one + "+" + other, windows);
    }
}
