// SPDX-License-Identifier: Apache-2.0
// A client with segmentio/kafka-go: create, produce, consume, offsets, group; changes: topics created through one node
// and written to at once through another. Answers are JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

type record struct {
	Partition int               `json:"partition"`
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
	mode       = flag.String("mode", "", "create, produce, consume, offsets, group or changes")
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

var codecs = map[string]kafka.Compression{
	"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

func main() {
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	modes := map[string]func(context.Context) (any, error){
		"create": create, "produce": produce, "consume": consume, "offsets": offsets, "group": group,
		"changes": changes,
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

func create(ctx context.Context) (any, error) {
	connection, err := kafka.DialContext(ctx, "tcp", *bootstrap)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	config := kafka.TopicConfig{Topic: *topic, NumPartitions: *partitions, ReplicationFactor: 1}
	if err := connection.CreateTopics(config); err != nil {
		return nil, err
	}
	known, err := connection.ReadPartitions(*topic)
	if err != nil {
		return nil, err
	}
	return len(known), nil
}

func produce(ctx context.Context) (any, error) {
	var wanted []record
	if err := json.NewDecoder(os.Stdin).Decode(&wanted); err != nil {
		return nil, err
	}
	byValue := map[string]*record{}
	messages := make([]kafka.Message, 0, len(wanted))
	for i, one := range wanted {
		byValue[one.Value] = &wanted[i]
		message := kafka.Message{Key: []byte(one.Key), Value: []byte(one.Value)}
		for name, value := range one.Headers {
			message.Headers = append(message.Headers, kafka.Header{Key: name, Value: []byte(value)})
		}
		messages = append(messages, message)
	}
	writer := &kafka.Writer{
		Addr:         kafka.TCP(*bootstrap),
		Topic:        *topic,
		Balancer:     &kafka.Murmur2Balancer{},
		RequiredAcks: kafka.RequireAll,
		Compression:  codecs[*codec],
		BatchTimeout: 50 * time.Millisecond,
		Completion: func(done []kafka.Message, err error) {
			for _, message := range done {
				sent := byValue[string(message.Value)]
				sent.Partition, sent.Offset = message.Partition, message.Offset
			}
		},
	}
	if err := writer.WriteMessages(ctx, messages...); err != nil {
		return nil, err
	}
	return wanted, writer.Close()
}

func consume(ctx context.Context) (any, error) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{*bootstrap}, Topic: *topic, Partition: *partition, MaxBytes: 10 << 20,
		MaxWait: 200 * time.Millisecond, // Close waits for the fetch under way
	})
	defer reader.Close()
	if err := reader.SetOffset(*offset); err != nil {
		return nil, err
	}
	seen := []record{}
	for len(seen) < *count {
		message, err := reader.ReadMessage(ctx)
		if err != nil {
			return nil, err
		}
		headers := map[string]string{}
		for _, header := range message.Headers {
			headers[header.Key] = string(header.Value)
		}
		seen = append(seen, record{
			message.Partition, message.Offset, string(message.Key), string(message.Value), headers,
		})
	}
	return seen, nil
}

func offsets(ctx context.Context) (any, error) {
	client := &kafka.Client{Addr: kafka.TCP(*bootstrap)}
	described, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{*topic}})
	if err != nil {
		return nil, err
	}
	wanted := []kafka.OffsetRequest{}
	for _, known := range described.Topics[0].Partitions {
		wanted = append(wanted, kafka.FirstOffsetOf(known.ID), kafka.LastOffsetOf(known.ID))
	}
	listed, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{*topic: wanted},
	})
	if err != nil {
		return nil, err
	}
	found := map[int]bounds{}
	for _, one := range listed.Topics[*topic] {
		if one.Error != nil {
			return nil, one.Error
		}
		found[one.Partition] = bounds{one.FirstOffset, one.LastOffset}
	}
	return found, nil
}

// Records in each of -count topics, written without a retry with acks 0, 1 and all right after its creation.
func changes(ctx context.Context) (any, error) {
	nodes := strings.Split(*bootstrap, ",")
	for i := 0; i < *count; i++ {
		name := fmt.Sprintf("%s-%d", *topic, i)
		creator := &kafka.Client{Addr: kafka.TCP(nodes[i%len(nodes)])}
		created, err := creator.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{
			{Topic: name, NumPartitions: 1, ReplicationFactor: -1},
		}})
		if err != nil {
			return nil, err
		}
		if created.Errors[name] != nil {
			return nil, created.Errors[name]
		}
		for _, acks := range []kafka.RequiredAcks{kafka.RequireNone, kafka.RequireOne, kafka.RequireAll} {
			transport := &kafka.Transport{}
			writer := &kafka.Writer{
				Addr: kafka.TCP(nodes[(i+1)%len(nodes)]), Topic: name, RequiredAcks: acks, MaxAttempts: 1,
				BatchTimeout: time.Millisecond, Transport: transport,
			}
			if err := writer.WriteMessages(ctx, kafka.Message{Value: []byte(acks.String())}); err != nil {
				return nil, fmt.Errorf("%s, acks=%s: %w", name, acks, err)
			}
			if err := writer.Close(); err != nil {
				return nil, err
			}
			defer transport.CloseIdleConnections()
		}
	}
	return *count, nil
}
