// SPDX-License-Identifier: Apache-2.0
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var balancers = map[string]kgo.GroupBalancer{
	"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(), "sticky": kgo.StickyBalancer(),
	"cooperative": kgo.CooperativeStickyBalancer(),
}

// group is a member until standard input ends; it prints what it owns and processes, and commits it.
func group(context.Context) (any, error) {
	ctx, leave := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		leave()
	}()
	say := func(what string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, moved map[string][]int32) {
			for _, number := range moved[*topic] {
				fmt.Println(what, number)
			}
		}
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(*groupName), kgo.ConsumeTopics(*topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(300 * time.Millisecond), kgo.SessionTimeout(6 * time.Second),
		kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.OnPartitionsAssigned(say("assigned")), kgo.OnPartitionsRevoked(say("revoked")),
		kgo.OnPartitionsLost(say("lost")),
	}
	if balancer, known := balancers[*balancerName]; known {
		options = append(options, kgo.Balancers(balancer))
	} else { // KIP-848
		options = append(options, kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer())
	}
	client, err := connect(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	processed := 0
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); errors.Is(err, kerr.GroupAuthorizationFailed) {
			return nil, err
		}
		fetches.EachRecord(func(one *kgo.Record) {
			fmt.Println("record", one.Partition, one.Offset, string(one.Value))
			processed++
		})
		if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
			fmt.Println("not committed:", err)
		}
	}
	return processed, nil
}
