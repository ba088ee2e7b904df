// SPDX-License-Identifier: Apache-2.0
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;

/**
 * Members of one group, each a KafkaConsumer in a thread. Commands on standard input: "start NAME [key=value...]",
 * "leave NAME", "quit". Each member prints what its rebalance listener is told and the records it processed.
 */
public class GroupScene {
    private static String bootstrap;
    private static String topic;
    private static String group;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        topic = arguments[1];
        group = arguments[2];
        Map<String, Member> members = new HashMap<>();
        var in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null && !line.equals("quit"); line = in.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("start")) {
                var member = new Member(words[1], List.of(words).subList(2, words.length));
                members.put(words[1], member);
                member.start();
            } else {
                members.remove(words[1]).leave();
            }
        }
        for (Member member : members.values()) {
            member.leave();
        }
    }

    private static synchronized void say(String text) {
        System.out.println(text);
    }

    private static String names(Collection<TopicPartition> partitions) {
        return partitions.stream().map(one -> String.valueOf(one.partition())).sorted().collect(Collectors.joining(" "));
    }

    private static class Member extends Thread implements ConsumerRebalanceListener {
        private final KafkaConsumer<String, String> consumer;

        Member(String name, List<String> settings) {
            super(name);
            var properties = new Properties();
            properties.put("bootstrap.servers", bootstrap);
            properties.put("group.id", group);
            properties.put("client.id", name);
            properties.put("auto.offset.reset", "earliest");
            properties.put("enable.auto.commit", "false");
            properties.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
            properties.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
            for (String setting : settings) {
                int at = setting.indexOf('=');
                properties.put(setting.substring(0, at), setting.substring(at + 1));
            }
            consumer = new KafkaConsumer<>(properties);
        }

        void leave() throws InterruptedException {
            consumer.wakeup();
            join();
        }

        @Override
        public void run() {
            try {
                consumer.subscribe(List.of(topic), this);
                while (true) {
                    var records = consumer.poll(Duration.ofMillis(100));
                    for (var record : records) {
                        say(getName() + " record " + record.partition() + " " + record.offset() + " " + record.value());
                    }
                    if (!records.isEmpty()) {
                        consumer.commitSync();
                    }
                }
            } catch (WakeupException told) {
                consumer.close();
                say(getName() + " closed");
            } catch (RuntimeException failure) {
                say(getName() + " failed " + failure);
                consumer.close();
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            say(getName() + " assigned " + names(partitions));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            say(getName() + " revoked " + names(partitions));
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            say(getName() + " lost " + names(partitions));
        }
    }
}
