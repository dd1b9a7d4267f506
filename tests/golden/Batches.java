// Writes record batches with Apache Kafka's own classes, one file each, into the given directory:
//   java -cp 'LIBS/*' tests/golden/Batches.java DIRECTORY
// (capture_batches.py runs it). They hold SMALL and LARGE of capture_batches.py.

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.internals.BufferSupplier;

public class Batches {
    private static Path directory;

    public static void main(String[] args) throws Exception {
        directory = Path.of(args[0]);
        String[] names = {"none", "gzip", "snappy", "lz4", "zstd"};
        Compression[] codecs = {
            Compression.NONE, Compression.gzip().build(), Compression.snappy().build(),
            Compression.lz4().build(), Compression.zstd().build()
        };
        for (int i = 0; i < codecs.length; i++) {
            write("java-" + names[i], MemoryRecords.withRecords(codecs[i], small()));
            if (i > 0)
                write("java-" + names[i] + "-large", MemoryRecords.withRecords(codecs[i], large()));
        }
        write("java-gzip-level-9", MemoryRecords.withRecords(
            Compression.gzip().level(9).build(), small()));
        write("java-lz4-level-17", MemoryRecords.withRecords(
            Compression.lz4().level(17).build(), large()));
        write("java-zstd-level-minus-5", MemoryRecords.withRecords(
            Compression.zstd().level(-5).build(), large()));
        write("java-idempotent", MemoryRecords.withIdempotentRecords(
            Compression.zstd().build(), 4711L, (short) 3, Integer.MAX_VALUE - 1, small()));
        write("java-transactional", MemoryRecords.withTransactionalRecords(
            1000L, Compression.NONE, 4711L, (short) 3, 7, 12, small()));
        write("java-log-append-time", MemoryRecords.withRecords(
            RecordBatch.MAGIC_VALUE_V2, 5L, Compression.lz4().build(),
            TimestampType.LOG_APPEND_TIME, small()));
        write("java-commit-marker", MemoryRecords.withEndTransactionMarker(
            77L, 1_700_000_000_000L, 9, 4711L, (short) 3,
            new EndTransactionMarker(ControlRecordType.COMMIT, 42)));
        write("java-abort-marker", MemoryRecords.withEndTransactionMarker(
            78L, 1_700_000_000_000L, 9, 4711L, (short) 3,
            new EndTransactionMarker(ControlRecordType.ABORT, 42)));
        write("java-compacted", filtered(MemoryRecords.withRecords(100L, codecs[4], small()), 1));
        write("java-compacted-empty", filtered(MemoryRecords.withIdempotentRecords(
            100L, codecs[1], 4711L, (short) 3, 7, 12, small()), 99));
        write("java-delete-horizon", withDeleteHorizon());
    }

    private static SimpleRecord[] small() {
        Header[] headers = {
            new RecordHeader("name", "value".getBytes(StandardCharsets.UTF_8)),
            new RecordHeader("empty", new byte[0]),
            new RecordHeader("null", null),
            new RecordHeader("\u00e9\u4e16", new byte[] {0, (byte) 0xff})
        };
        return new SimpleRecord[] {
            new SimpleRecord(1_700_000_000_000L, bytes("key"), bytes("value ".repeat(40))),
            new SimpleRecord(1_700_000_000_500L, bytes("with headers"), bytes("v"), headers),
            new SimpleRecord(1_699_999_999_000L, null, bytes("no key, earlier")),
            new SimpleRecord(1_700_000_000_001L, bytes("tombstone"), null),
            new SimpleRecord(1_700_000_000_002L, new byte[0], new byte[0]),
            new SimpleRecord(1_700_000_000_003L, (byte[]) null, null)
        };
    }

    private static SimpleRecord[] large() {
        List<SimpleRecord> records = new ArrayList<>();
        for (int i = 0; i < 300; i++)
            records.add(new SimpleRecord(1_700_000_000_000L + i, bytes("key-" + i),
                bytes(("line " + i + " ").repeat(200))));
        return records.toArray(new SimpleRecord[0]);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static MemoryRecords filtered(MemoryRecords records, int keepModulo) {
        ByteBuffer output = ByteBuffer.allocate(1 << 16);
        records.filterTo(new MemoryRecords.RecordFilter(0L, 0L) {
            @Override
            protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                return new BatchRetentionResult(BatchRetention.RETAIN_EMPTY, false);
            }

            @Override
            protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                return keepModulo == 1 && record.offset() % 2 == 1;
            }
        }, output, BufferSupplier.NO_CACHING, 1 << 30);
        output.flip();
        return MemoryRecords.readableRecords(output);
    }

    private static MemoryRecords withDeleteHorizon() {
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
            new org.apache.kafka.common.utils.internals.ByteBufferOutputStream(1024),
            RecordBatch.MAGIC_VALUE_V2, Compression.NONE, TimestampType.CREATE_TIME, 100L,
            RecordBatch.NO_TIMESTAMP, RecordBatch.NO_PRODUCER_ID, RecordBatch.NO_PRODUCER_EPOCH,
            RecordBatch.NO_SEQUENCE, false, false, 5, 1024, 1_800_000_000_000L);
        builder.append(small()[3]);
        return builder.build();
    }

    private static void write(String name, MemoryRecords records) throws Exception {
        ByteBuffer buffer = records.buffer().duplicate();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        int batches = 0;
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            batches++;
        }
        if (batches != 1)
            throw new IllegalStateException(name + " has " + batches + " batches");
        Files.write(directory.resolve(name + ".bin"), bytes);
    }
}
