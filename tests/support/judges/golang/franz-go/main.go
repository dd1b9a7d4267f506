// franz-go as a judge.
package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"odradek.tests/judges/lines"
)

func main() {
	o := lines.Parse()
	switch o.Command {
	case "produce":
		produce(o)
	case "fetch":
		fetch(o)
	case "member":
		member(o)
	case "load":
		load(o)
	default:
		lines.Fail("what is %s?", o.Command)
	}
}

func connect(o lines.Options, more ...kgo.Opt) *kgo.Client {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(o.Bootstrap, ",")...),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.MetadataMaxAge(time.Second),
	}
	if o.AutoCreate {
		options = append(options, kgo.AllowAutoTopicCreation())
	}
	client, err := kgo.NewClient(append(options, more...)...)
	lines.Must(err)
	return client
}

func produce(o lines.Options) {
	codec := map[string]kgo.CompressionCodec{
		"none":   kgo.NoCompression(),
		"gzip":   kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(),
		"lz4":    kgo.Lz4Compression(),
		"zstd":   kgo.ZstdCompression(),
	}[o.Codec]
	options := []kgo.Opt{
		kgo.ProducerBatchCompression(codec),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(20 * time.Millisecond),
		kgo.ProducerBatchMaxBytes(16 << 20),
		kgo.RecordDeliveryTimeout(30 * time.Second),
	}
	if !o.Idempotent {
		acks := map[string]kgo.Acks{
			"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks(),
		}[o.Acks]
		options = append(options, kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite())
	}
	client := connect(o, options...)
	defer client.Close()
	var records []*kgo.Record
	for _, given := range lines.Read(o) {
		record := &kgo.Record{
			Topic:     given.Topic,
			Partition: given.Partition,
			Key:       given.Key,
			Value:     given.Value,
			Timestamp: time.UnixMilli(given.Timestamp),
		}
		for _, header := range given.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
		records = append(records, record)
	}
	results := client.ProduceSync(context.Background(), records...)
	lines.Must(results.FirstErr())
	for _, record := range records {
		lines.Print(lines.Record{Topic: record.Topic, Partition: record.Partition, Offset: record.Offset})
	}
}

// load produces numbers with the client's own settings until it is stopped, and prints each record that was acknowledged.
func load(o lines.Options) {
	client := connect(o)
	ctx, cancel := lines.UntilStopped()
	defer cancel()
	ticks := time.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	for number := 0; ctx.Err() == nil; number++ {
		value := []byte("franz-go." + strconv.Itoa(number))
		client.Produce(context.Background(), &kgo.Record{Topic: o.Topic, Value: value}, func(record *kgo.Record, err error) {
			lines.Must(err)
			show("acknowledged", record)
		})
		<-ticks.C
	}
	lines.Must(client.Flush(context.Background()))
}

func show(event string, record *kgo.Record) {
	shown := lines.Record{
		Event:     event,
		Topic:     record.Topic,
		Partition: record.Partition,
		Offset:    record.Offset,
		Key:       record.Key,
		Value:     record.Value,
		Timestamp: record.Timestamp.UnixMilli(),
	}
	for _, header := range record.Headers {
		shown.Headers = append(shown.Headers, lines.Header{Name: header.Key, Value: header.Value})
	}
	lines.Print(shown)
}

func fetch(o lines.Options) {
	offset := kgo.NewOffset().At(o.Start)
	client := connect(
		o,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{o.Topic: {int32(o.Partition): offset}}),
		kgo.FetchMaxWait(200*time.Millisecond),
	)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for left := o.Count; left > 0; {
		fetches := client.PollRecords(ctx, left)
		lines.Must(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			show("", record)
			left--
		})
	}
}

func member(o lines.Options) {
	balancer := map[string]kgo.GroupBalancer{
		"range":       kgo.RangeBalancer(),
		"roundrobin":  kgo.RoundRobinBalancer(),
		"sticky":      kgo.StickyBalancer(),
		"cooperative": kgo.CooperativeStickyBalancer(),
	}[o.Balancer]
	reset := kgo.NewOffset().AtStart()
	if o.Reset == "latest" {
		reset = kgo.NewOffset().AtEnd()
	}
	tell := func(event string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
			lines.PrintOwned(event, parts[o.Topic])
		}
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(o.Group),
		kgo.ConsumeTopics(o.Topic),
		kgo.Balancers(balancer),
		kgo.SessionTimeout(time.Duration(o.Session) * time.Millisecond),
		kgo.HeartbeatInterval(time.Duration(o.Session) * time.Millisecond / 10),
		kgo.RebalanceTimeout(20 * time.Second),
		kgo.ConsumeResetOffset(reset),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.OnPartitionsAssigned(tell("assigned")),
		kgo.OnPartitionsRevoked(tell("revoked")),
		kgo.OnPartitionsLost(tell("revoked")),
	}
	if o.Instance != "" {
		options = append(options, kgo.InstanceID(o.Instance))
	}
	client := connect(o, options...)
	ctx, cancel := lines.UntilStopped()
	defer cancel()
	for ctx.Err() == nil {
		fetches := client.PollRecords(ctx, 500)
		offsets := map[int32]int64{}
		var records []*kgo.Record
		fetches.EachRecord(func(record *kgo.Record) {
			show("record", record)
			offsets[record.Partition] = record.Offset + 1
			records = append(records, record)
		})
		if len(records) > 0 {
			if client.CommitRecords(context.Background(), records...) == nil {
				lines.PrintCommitted(offsets)
			}
		}
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
}
