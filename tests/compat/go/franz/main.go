// SPDX-License-Identifier: Apache-2.0
// A client with franz-go: create, produce, consume, offsets, group; copy: a topic to another in transactions;
// changes: topics created and altered, and described at once by any node. Answers are JSON on standard output.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type record struct {
	Partition int32             `json:"partition"`
	Offset    int64             `json:"offset"`
	Key       string            `json:"key"`
	Value     string            `json:"value"`
	Headers   map[string]string `json:"headers"`
}

type bounds struct {
	Earliest int64 `json:"earliest"`
	Latest   int64 `json:"latest"`
}

var (
	mode       = flag.String("mode", "", "create, produce, consume, offsets, group, copy or changes")
	bootstrap  = flag.String("bootstrap", "", "host:port, or several of them")
	topic      = flag.String("topic", "", "the topic")
	codec      = flag.String("codec", "none", "compression of produced batches")
	partitions = flag.Int("partitions", 1, "how many to create")
	partition  = flag.Int("partition", 0, "the one to consume")
	offset     = flag.Int64("offset", 0, "where consuming begins")
	count      = flag.Int("count", 1, "how many records to consume")

	groupName    = flag.String("group", "", "the group")
	balancerName = flag.String("balancer", "range", "how its members share partitions")
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func main() {
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	modes := map[string]func(context.Context) (any, error){
		"create": create, "produce": produce, "consume": consume, "offsets": offsets, "group": group,
		"changes": changes, "copy": copyTopic,
	}
	run, known := modes[*mode]
	if !known {
		fail(fmt.Errorf("no mode %q", *mode))
	}
	answer, err := run(ctx)
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func connect(options ...kgo.Opt) (*kgo.Client, error) {
	protected, err := security()
	if err != nil {
		return nil, err
	}
	options = append(options, protected...)
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(strings.Split(*bootstrap, ",")...))...)
	if err != nil {
		return nil, err
	}
	return client, reachable(client)
}

// reachable returns why no broker can be used; producers and consumers would try again and again.
func reachable(client *kgo.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return client.Ping(ctx)
}

func create(ctx context.Context) (any, error) {
	client, err := connect()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	created, err := kadm.NewClient(client).CreateTopic(ctx, int32(*partitions), 1, nil, *topic)
	if err != nil {
		return nil, err
	}
	return created.NumPartitions, created.Err
}

func produce(ctx context.Context) (any, error) {
	var wanted []record
	if err := json.NewDecoder(os.Stdin).Decode(&wanted); err != nil {
		return nil, err
	}
	client, err := connect(kgo.ProducerBatchCompression(codecs[*codec]), kgo.ProducerLinger(50*time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	sent := make([]*kgo.Record, 0, len(wanted))
	for _, one := range wanted {
		message := &kgo.Record{Topic: *topic, Key: []byte(one.Key), Value: []byte(one.Value)}
		for name, value := range one.Headers {
			message.Headers = append(message.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
		sent = append(sent, message)
	}
	results := client.ProduceSync(ctx, sent...)
	if err := results.FirstErr(); err != nil {
		return nil, err
	}
	for i, message := range sent {
		wanted[i].Partition, wanted[i].Offset = message.Partition, message.Offset
	}
	return wanted, nil
}

func consume(ctx context.Context) (any, error) {
	start := kgo.NewOffset().At(*offset)
	client, err := connect(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		*topic: {int32(*partition): start},
	}))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	seen := []record{}
	for len(seen) < *count {
		fetched := client.PollRecords(ctx, *count-len(seen))
		if errors := fetched.Errors(); len(errors) > 0 {
			return nil, errors[0].Err
		}
		fetched.EachRecord(func(message *kgo.Record) {
			headers := map[string]string{}
			for _, header := range message.Headers {
				headers[header.Key] = string(header.Value)
			}
			seen = append(seen, record{
				message.Partition, message.Offset, string(message.Key), string(message.Value), headers,
			})
		})
	}
	return seen, nil
}

func offsets(ctx context.Context) (any, error) {
	client, err := connect()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	starts, err := admin.ListStartOffsets(ctx, *topic)
	if err != nil {
		return nil, err
	}
	ends, err := admin.ListEndOffsets(ctx, *topic)
	if err != nil {
		return nil, err
	}
	found := map[int32]bounds{}
	starts.Each(func(start kadm.ListedOffset) {
		end, _ := ends.Lookup(*topic, start.Partition)
		found[start.Partition] = bounds{start.Offset, end.Offset}
	})
	return found, nil
}

// What other nodes did not know when a change was acknowledged: -count topics, each created and altered.
func changes(ctx context.Context) (any, error) {
	client, err := connect()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	stale := []string{}
	for i := 0; i < *count; i++ {
		name, value := fmt.Sprintf("%s-%d", *topic, i), strconv.Itoa(1000000+i)
		if _, err := admin.CreateTopic(ctx, int32(*partitions), -1, nil, name); err != nil {
			return nil, err
		}
		known, err := admin.ListTopics(ctx, name)
		if err != nil {
			return nil, err
		}
		if len(known[name].Partitions) != *partitions {
			stale = append(stale, name)
		}
		altered, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: &value}}, name)
		if err == nil {
			_, err = altered.On(name, func(one *kadm.AlterConfigsResponse) error { return one.Err })
		}
		if err != nil {
			return nil, err
		}
		described, err := admin.DescribeTopicConfigs(ctx, name)
		if err != nil {
			return nil, err
		}
		one, err := described.On(name, nil)
		if err != nil {
			return nil, err
		}
		for _, config := range one.Configs {
			if config.Key == "retention.ms" && config.MaybeValue() != value {
				stale = append(stale, name+" retention.ms="+config.MaybeValue())
			}
		}
	}
	return stale, nil
}
