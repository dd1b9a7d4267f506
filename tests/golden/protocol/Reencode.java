// Reads messages with Apache Kafka's own classes and writes them again.
//
// Reads lines "api_key version request|response hex", writes the same lines with the bytes that Kafka
// makes of what it read. Run by make_sample_digests.py with kafka-clients 4.4.0 on the class path.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;

public class Reencode {
    public static void main(String[] args) throws Exception {
        Method serialize = AbstractResponse.class.getDeclaredMethod("serialize", short.class);
        serialize.setAccessible(true);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] part = line.split(" ", -1);
            ApiKeys key = ApiKeys.forId(Integer.parseInt(part[0]));
            short version = Short.parseShort(part[1]);
            ByteBuffer body = ByteBuffer.wrap(HexFormat.of().parseHex(part[3]));
            ByteBufferAccessor readable = new ByteBufferAccessor(body);
            ByteBufferAccessor written = part[2].equals("request")
                    ? AbstractRequest.parseRequest(key, version, readable).request.serialize()
                    : (ByteBufferAccessor)
                            serialize.invoke(AbstractResponse.parseResponse(key, readable, version), version);
            if (body.hasRemaining()) throw new IllegalStateException(line);
            ByteBuffer out = written.buffer();
            byte[] bytes = new byte[out.remaining()];
            out.get(bytes);
            System.out.println(part[0] + " " + part[1] + " " + part[2] + " " + HexFormat.of().formatHex(bytes));
        }
    }
}
