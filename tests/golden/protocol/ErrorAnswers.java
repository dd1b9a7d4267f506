// Asks Apache Kafka's own classes how a whole request is refused.
//
// Reads lines "api_key version request_hex", writes lines "api_key version response_hex": the answer
// of the request's getErrorResponse to an UnknownServerException, with its header, at that version.
// Run by make_error_answers.py with kafka-clients 4.4.0 on the class path.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.errors.UnknownServerException;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.ResponseHeader;

public class ErrorAnswers {
    public static void main(String[] args) throws Exception {
        Method serialize =
                AbstractResponse.class.getDeclaredMethod("serializeWithHeader", ResponseHeader.class, short.class);
        serialize.setAccessible(true);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] part = line.split(" ", -1);
            ApiKeys key = ApiKeys.forId(Integer.parseInt(part[0]));
            short version = Short.parseShort(part[1]);
            ByteBuffer body = ByteBuffer.wrap(HexFormat.of().parseHex(part[2]));
            AbstractRequest request =
                    AbstractRequest.parseRequest(key, version, new ByteBufferAccessor(body)).request;
            AbstractResponse response = request.getErrorResponse(0, new UnknownServerException("it broke"));
            if (response == null) {
                System.out.println(part[0] + " " + part[1] + " none");
                continue;
            }
            ResponseHeader header = new ResponseHeader(77, key.responseHeaderVersion(version));
            ByteBuffer out = (ByteBuffer) serialize.invoke(response, header, version);
            byte[] bytes = new byte[out.remaining()];
            out.get(bytes);
            System.out.println(part[0] + " " + part[1] + " " + HexFormat.of().formatHex(bytes));
        }
    }
}
