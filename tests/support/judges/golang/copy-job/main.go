// tests/support/copy_job.py by franz-go. Whatever goes wrong ends it: the next one takes over.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"odradek.tests/judges/lines"
)

const batch = 20

func main() {
	if len(os.Args) != 6 {
		lines.Fail("BOOTSTRAP GROUP TRANSACTIONAL_ID SOURCE TARGET?")
	}
	target := os.Args[5]
	ctx := context.Background()
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(os.Args[1], ",")...),
		kgo.ConsumerGroup(os.Args[2]),
		kgo.TransactionalID(os.Args[3]),
		kgo.ConsumeTopics(os.Args[4]),
		kgo.TransactionTimeout(10*time.Second),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.FetchMaxWait(200*time.Millisecond),
		kgo.MetadataMinAge(100*time.Millisecond),
	)
	lines.Must(err)
	for {
		fetches := session.PollRecords(ctx, batch)
		lines.Must(fetches.Err())
		if fetches.Empty() {
			continue
		}
		lines.Must(session.Begin())
		produced := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(record *kgo.Record) {
			copied := &kgo.Record{
				Topic:     target,
				Partition: record.Partition,
				Value:     append([]byte("copy of "), record.Value...),
			}
			session.Produce(ctx, copied, produced.Promise())
		})
		committed, err := session.End(ctx, kgo.TransactionEndTry(produced.Err() == nil))
		lines.Must(err)
		if committed {
			fmt.Println(fetches.NumRecords())
		}
	}
}
