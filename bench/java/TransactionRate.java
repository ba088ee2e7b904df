// SPDX-License-Identifier: Apache-2.0
import java.util.Arrays;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Commits transactions one after the other and prints how many per second, and p50 and p99 of the commits in
 * milliseconds. Arguments: bootstrap, topic, its partitions, transactional id, records per transaction, bytes of
 * a value, seconds to warm the JVM up, seconds to measure. Everything else is the client's default.
 */
public class TransactionRate {
    private final KafkaProducer<byte[], byte[]> producer;
    private final String topic;
    private final int partitions;
    private final int records;
    private final byte[] value;

    private TransactionRate(String[] arguments) {
        var settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("transactional.id", arguments[3]);
        producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        topic = arguments[1];
        partitions = Integer.parseInt(arguments[2]);
        records = Integer.parseInt(arguments[4]);
        value = new byte[Integer.parseInt(arguments[5])];
        new Random(1).nextBytes(value);
    }

    /** Nanoseconds of the commit alone: the records are acknowledged before. */
    private long transaction() {
        producer.beginTransaction();
        for (int number = 0; number < records; number++) {
            producer.send(new ProducerRecord<>(topic, number % partitions, null, value));
        }
        producer.flush();
        long began = System.nanoTime();
        producer.commitTransaction();
        return System.nanoTime() - began;
    }

    private void run(double seconds, boolean print) {
        long[] commits = new long[1 << 20];
        int count = 0;
        long began = System.nanoTime();
        while (System.nanoTime() - began < seconds * 1e9) {
            commits[count++] = transaction();
        }
        double took = (System.nanoTime() - began) / 1e9;
        if (print) {
            Arrays.sort(commits, 0, count);
            double p50 = commits[(int) Math.ceil(count * 0.50) - 1] / 1e6;
            double p99 = commits[(int) Math.ceil(count * 0.99) - 1] / 1e6;
            System.out.println(count / took + " " + p50 + " " + p99);
        }
    }

    public static void main(String[] arguments) {
        var rate = new TransactionRate(arguments);
        rate.producer.initTransactions();
        rate.run(Double.parseDouble(arguments[6]), false);
        rate.run(Double.parseDouble(arguments[7]), true);
        rate.producer.close();
    }
}
