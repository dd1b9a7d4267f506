import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** tests/support/copy_job.py by Kafka's own clients. Whatever goes wrong ends it: the next one takes over. */
public class CopyJob {
    public static void main(String[] args) {
        String group = args[1];
        String target = args[4];
        Properties common = new Properties();
        common.put("bootstrap.servers", args[0]);
        Properties reading = new Properties();
        reading.putAll(common);
        reading.put("group.id", group);
        reading.put("auto.offset.reset", "earliest");
        reading.put("enable.auto.commit", "false");
        reading.put("isolation.level", "read_committed");
        reading.put("session.timeout.ms", "6000");
        reading.put("max.poll.records", "20");
        Properties writing = new Properties();
        writing.putAll(common);
        writing.put("transactional.id", args[2]);
        writing.put("transaction.timeout.ms", "10000");
        try (KafkaConsumer<String, String> consumer =
                     new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
             KafkaProducer<String, String> producer =
                     new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(args[3]));
            while (true) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
                for (ConsumerRecord<String, String> each : records) {
                    producer.send(new ProducerRecord<>(target, each.partition(), null, "copy of " + each.value()));
                    ends.put(new TopicPartition(each.topic(), each.partition()),
                            new OffsetAndMetadata(each.offset() + 1));
                }
                producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
                producer.commitTransaction();
                System.out.println(records.count());
                System.out.flush();
            }
        } catch (RuntimeException error) {
            System.err.println(error);
            Runtime.getRuntime().halt(1);
        }
    }
}
