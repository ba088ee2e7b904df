// SPDX-License-Identifier: Apache-2.0
// A client of one topic with sarama: create, produce, consume, offsets, group. Answers are JSON on standard output.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
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
	mode       = flag.String("mode", "", "create, produce, consume, offsets or group")
	bootstrap  = flag.String("bootstrap", "", "host:port")
	topic      = flag.String("topic", "", "the topic")
	codec      = flag.String("codec", "none", "compression of produced batches")
	partitions = flag.Int("partitions", 1, "how many to create")
	partition  = flag.Int("partition", 0, "the one to consume")
	offset     = flag.Int64("offset", 0, "where consuming begins")
	count      = flag.Int("count", 1, "how many records to consume")

	groupName    = flag.String("group", "", "the group")
	balancerName = flag.String("balancer", "range", "how its members share partitions")
)

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

func main() {
	flag.Parse()
	modes := map[string]func(*sarama.Config) (any, error){
		"create": create, "produce": produce, "consume": consume, "offsets": offsets, "group": group,
	}
	run, known := modes[*mode]
	if !known {
		fail(fmt.Errorf("no mode %q", *mode))
	}
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	if err := secure(config); err != nil {
		fail(err)
	}
	answer, err := run(config)
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

func create(config *sarama.Config) (any, error) {
	admin, err := sarama.NewClusterAdmin([]string{*bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	detail := &sarama.TopicDetail{NumPartitions: int32(*partitions), ReplicationFactor: 1}
	if err := admin.CreateTopic(*topic, detail, false); err != nil {
		return nil, err
	}
	described, err := admin.DescribeTopics([]string{*topic})
	if err != nil {
		return nil, err
	}
	return len(described[0].Partitions), nil
}

func produce(config *sarama.Config) (any, error) {
	var wanted []record
	if err := json.NewDecoder(os.Stdin).Decode(&wanted); err != nil {
		return nil, err
	}
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Net.MaxOpenRequests = 1
	config.Producer.Return.Successes = true
	config.Producer.Compression = codecs[*codec]
	config.Producer.Flush.Frequency = 50 * time.Millisecond
	producer, err := sarama.NewSyncProducer([]string{*bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	sent := make([]*sarama.ProducerMessage, 0, len(wanted))
	for _, one := range wanted {
		message := &sarama.ProducerMessage{
			Topic: *topic, Key: sarama.StringEncoder(one.Key), Value: sarama.StringEncoder(one.Value),
		}
		for name, value := range one.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(name), Value: []byte(value)})
		}
		sent = append(sent, message)
	}
	if err := producer.SendMessages(sent); err != nil {
		var failed sarama.ProducerErrors
		if errors.As(err, &failed) {
			err = failed[0].Err
		}
		return nil, err
	}
	for i, message := range sent {
		wanted[i].Partition, wanted[i].Offset = message.Partition, message.Offset
	}
	return wanted, nil
}

func consume(config *sarama.Config) (any, error) {
	consumer, err := sarama.NewConsumer([]string{*bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	reader, err := consumer.ConsumePartition(*topic, int32(*partition), *offset)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	seen := []record{}
	deadline := time.After(30 * time.Second)
	for len(seen) < *count {
		select {
		case message := <-reader.Messages():
			headers := map[string]string{}
			for _, header := range message.Headers {
				headers[string(header.Key)] = string(header.Value)
			}
			seen = append(seen, record{
				message.Partition, message.Offset, string(message.Key), string(message.Value), headers,
			})
		case err := <-reader.Errors():
			return nil, err
		case <-deadline:
			return nil, fmt.Errorf("only %d of %d records came", len(seen), *count)
		}
	}
	return seen, nil
}

func offsets(config *sarama.Config) (any, error) {
	client, err := sarama.NewClient([]string{*bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	known, err := client.Partitions(*topic)
	if err != nil {
		return nil, err
	}
	found := map[int32]bounds{}
	for _, index := range known {
		earliest, err := client.GetOffset(*topic, index, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		latest, err := client.GetOffset(*topic, index, sarama.OffsetNewest)
		if err != nil {
			return nil, err
		}
		found[index] = bounds{earliest, latest}
	}
	return found, nil
}
