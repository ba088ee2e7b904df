// SPDX-License-Identifier: Apache-2.0
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/segmentio/kafka-go"
)

var balancers = map[string]kafka.GroupBalancer{
	"range": kafka.RangeGroupBalancer{}, "roundrobin": kafka.RoundRobinGroupBalancer{},
}

// group is a member until standard input ends; it prints what it processes, and commits it. A Reader does not
// tell what it owns.
func group(context.Context) (any, error) {
	ctx, leave := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		leave()
	}()
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{*bootstrap}, GroupID: *groupName, Topic: *topic,
		GroupBalancers: []kafka.GroupBalancer{balancers[*balancerName]}, StartOffset: kafka.FirstOffset,
		HeartbeatInterval: 300 * time.Millisecond, SessionTimeout: 6 * time.Second,
		RebalanceTimeout: 6 * time.Second, MaxWait: 200 * time.Millisecond,
	})
	for {
		one, err := reader.FetchMessage(ctx)
		if ctx.Err() != nil {
			return nil, reader.Close()
		}
		if err != nil {
			return nil, err
		}
		fmt.Println("record", one.Partition, one.Offset, string(one.Value))
		if err := reader.CommitMessages(context.Background(), one); err != nil {
			fmt.Println("not committed:", err)
		}
	}
}
