import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.StringDeserializer;

/** tests/support/group_member.py by Kafka's own client. */
public class GroupMember {
    public static void main(String[] args) {
        Properties reading = new Properties();
        reading.put("bootstrap.servers", args[0]);
        reading.put("group.id", args[1]);
        reading.put("group.protocol", args[3]);
        reading.put("auto.offset.reset", "earliest");
        reading.put("enable.auto.commit", "false");
        if (args[3].equals("classic")) {
            reading.put("session.timeout.ms", "6000");
            reading.put("heartbeat.interval.ms", "500");
            reading.put("partition.assignment.strategy",
                    "org.apache.kafka.clients.consumer.RangeAssignor");
        }
        try (KafkaConsumer<String, String> consumer =
                     new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(args[2]));
            while (true) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                for (ConsumerRecord<String, String> each : records) {
                    System.out.println(each.value());
                }
                System.out.flush();
                if (!records.isEmpty()) {
                    try {
                        consumer.commitSync();
                    } catch (CommitFailedException | RetriableException error) {
                        System.err.println(error); // somebody else has the partition by now
                    }
                }
            }
        } catch (RuntimeException error) {
            System.err.println(error);
            Runtime.getRuntime().halt(1);
        }
    }
}
