// SPDX-License-Identifier: Apache-2.0
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HexFormat;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

/** Reads keys as hexadecimal lines; prints the Java producer's partition of each, for every count given. */
public class PartitionOfKeys {
    public static void main(String[] counts) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in));
        var out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            byte[] key = HexFormat.of().parseHex(line);
            for (String count : counts) {
                out.append(BuiltInPartitioner.partitionForKey(key, Integer.parseInt(count))).append(' ');
            }
            out.append('\n');
        }
        System.out.print(out);
    }
}
