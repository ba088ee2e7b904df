// SPDX-License-Identifier: Apache-2.0
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/IBM/sarama"
)

var balancers = map[string]sarama.BalanceStrategy{
	"range": sarama.NewBalanceStrategyRange(), "roundrobin": sarama.NewBalanceStrategyRoundRobin(),
	"sticky": sarama.NewBalanceStrategySticky(),
}

type member struct{}

func (member) Setup(session sarama.ConsumerGroupSession) error {
	return say("assigned", session)
}

func (member) Cleanup(session sarama.ConsumerGroupSession) error {
	return say("revoked", session)
}

func say(what string, session sarama.ConsumerGroupSession) error {
	for _, number := range session.Claims()[*topic] {
		fmt.Println(what, number)
	}
	return nil
}

func (member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case one, open := <-claim.Messages():
			if !open {
				return nil
			}
			fmt.Println("record", one.Partition, one.Offset, string(one.Value))
			session.MarkMessage(one, "")
			session.Commit()
		case <-session.Context().Done():
			return nil
		}
	}
}

// group is a member until standard input ends; it prints what it owns and processes, and commits it.
func group(config *sarama.Config) (any, error) {
	ctx, leave := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		leave()
	}()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{balancers[*balancerName]}
	config.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	client, err := sarama.NewConsumerGroup([]string{*bootstrap}, *groupName, config)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for ctx.Err() == nil {
		if err := client.Consume(ctx, []string{*topic}, member{}); err != nil {
			return nil, err
		}
	}
	return nil, nil
}
