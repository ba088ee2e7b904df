// SPDX-License-Identifier: Apache-2.0
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** For every codec two transactions and a plain writer in turn: see `turns` in segment_scenes.py. */
public class TransactionScene {
    private static KafkaProducer<byte[], byte[]> producer(String bootstrap, String codec, String transactionalId) {
        var settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("compression.type", codec);
        settings.put("linger.ms", "50");
        if (transactionalId != null) {
            settings.put("transactional.id", transactionalId);
        }
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static void send(KafkaProducer<byte[], byte[]> to, String topic, String tag, int count) {
        for (int n = 0; n < count; n++) {
            byte[] key = n % 3 == 0 ? null : bytes("key " + tag);
            byte[] value = n % 4 == 3 ? null : bytes((tag + " " + n + " ").repeat(n * 5));
            List<Header> headers = n % 2 == 0
                ? List.of()
                : List.of(new RecordHeader("n", bytes("" + n)), new RecordHeader("größe", (byte[]) null));
            to.send(new ProducerRecord<>(topic, 0, 1_700_000_000_000L + 1000L * n, key, value, headers));
        }
        to.flush();
    }

    public static void main(String[] arguments) {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        for (int place = 2; place < arguments.length; place++) {
            String codec = arguments[place];
            try (var one = producer(bootstrap, codec, "java-one-" + codec);
                 var two = producer(bootstrap, codec, "java-two-" + codec);
                 var plain = producer(bootstrap, codec, null)) {
                one.initTransactions();
                two.initTransactions();
                for (int round = 0; round < 2; round++) {
                    one.beginTransaction();
                    send(one, topic, codec + " one", 5);
                    two.beginTransaction();
                    send(two, topic, codec + " two", 4);
                    send(plain, topic, codec + " plain", 3);
                    send(one, topic, codec + " one again", 2);
                    if (round == 0) {
                        one.commitTransaction();
                        two.abortTransaction();
                    } else {
                        two.commitTransaction();
                        one.abortTransaction();
                    }
                }
            }
        }
    }
}
