// SPDX-License-Identifier: Apache-2.0
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	target             = flag.String("target", "", "the topic to copy to")
	transactionalID    = flag.String("transactional-id", "", "of the copier")
	transactionTimeout = flag.Duration("transaction-timeout", time.Minute, "how long a transaction may be open")
)

// One transaction in so many is aborted on purpose.
const aborted = 16

// copyTopic is a member of a group that copies in transactions of up to -count records until it is killed.
func copyTopic(context.Context) (any, error) {
	ctx := context.Background()
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(*bootstrap, ",")...),
		kgo.TransactionalID(*transactionalID), kgo.TransactionTimeout(*transactionTimeout),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumerGroup(*groupName), kgo.ConsumeTopics(*topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RequireStableFetchOffsets(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(200*time.Millisecond),
		kgo.HeartbeatInterval(500*time.Millisecond), kgo.SessionTimeout(6*time.Second),
	)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	for {
		fetches := session.PollRecords(ctx, *count)
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return nil, err
		}
		failed := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(one *kgo.Record) {
			copied := &kgo.Record{Topic: *target, Partition: one.Partition, Key: one.Key, Value: one.Value}
			session.Produce(ctx, copied, failed.Promise())
		})
		wanted := failed.Err() == nil && rand.IntN(aborted) != 0
		committed, err := session.End(ctx, kgo.TransactionEndTry(wanted))
		if err != nil {
			return nil, err
		}
		if committed {
			fmt.Println("copied", fetches.NumRecords())
		}
	}
}
