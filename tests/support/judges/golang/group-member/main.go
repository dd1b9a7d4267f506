// tests/support/group_member.py by franz-go.
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

func main() {
	if len(os.Args) != 5 {
		lines.Fail("BOOTSTRAP GROUP TOPIC classic|consumer?")
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(os.Args[1], ",")...),
		kgo.ConsumerGroup(os.Args[2]),
		kgo.ConsumeTopics(os.Args[3]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.MetadataMinAge(100 * time.Millisecond),
	}
	if os.Args[4] == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	} else {
		options = append(options, kgo.Balancers(kgo.RangeBalancer()),
			kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(500*time.Millisecond))
	}
	client, err := kgo.NewClient(options...)
	lines.Must(err)
	ctx := context.Background()
	for {
		fetches := client.PollFetches(ctx)
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Println(string(record.Value))
		})
		if !fetches.Empty() {
			if err := client.CommitUncommittedOffsets(ctx); err != nil {
				fmt.Fprintln(os.Stderr, err) // somebody else has the partition by now
			}
		}
	}
}
