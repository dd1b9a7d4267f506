// segmentio's kafka-go as a judge.
package main

import (
	"context"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

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
	default:
		lines.Fail("what is %s?", o.Command)
	}
}

func produce(o lines.Options) {
	codec := map[string]kafka.Compression{
		"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
	}[o.Codec]
	acks := map[string]kafka.RequiredAcks{
		"0": kafka.RequireNone, "1": kafka.RequireOne, "all": kafka.RequireAll,
	}[o.Acks]
	offsets := map[int]int64{}
	writer := &kafka.Writer{
		Addr:         kafka.TCP(o.Bootstrap),
		RequiredAcks: acks,
		Compression:  codec,
		BatchTimeout: 20 * time.Millisecond,
		BatchBytes:   16 << 20,
		BatchSize:    1000,
		Balancer: kafka.BalancerFunc(func(message kafka.Message, _ ...int) int {
			return int(message.WriterData.(lines.Record).Partition)
		}),
		AllowAutoTopicCreation: o.AutoCreate,
	}
	var messages []kafka.Message
	for index, given := range lines.Read(o) {
		given.Offset = int64(index)
		message := kafka.Message{
			Topic:      given.Topic,
			Key:        given.Key,
			Value:      given.Value,
			Time:       time.UnixMilli(given.Timestamp),
			WriterData: given,
		}
		for _, header := range given.Headers {
			message.Headers = append(message.Headers, kafka.Header{Key: header.Name, Value: header.Value})
		}
		messages = append(messages, message)
	}
	var completing sync.Mutex // partitions complete side by side
	writer.Completion = func(done []kafka.Message, err error) {
		lines.Must(err)
		completing.Lock()
		defer completing.Unlock()
		for _, message := range done {
			offset := message.Offset
			if o.Acks == "0" {
				offset = -1
			}
			offsets[int(message.WriterData.(lines.Record).Offset)] = offset
		}
	}
	lines.Must(writer.WriteMessages(context.Background(), messages...))
	lines.Must(writer.Close())
	for index, message := range messages {
		lines.Print(lines.Record{
			Topic:     message.Topic,
			Partition: message.WriterData.(lines.Record).Partition,
			Offset:    offsets[index],
		})
	}
}

func show(event string, message kafka.Message) {
	shown := lines.Record{
		Event:     event,
		Topic:     message.Topic,
		Partition: int32(message.Partition),
		Offset:    message.Offset,
		Key:       message.Key,
		Value:     message.Value,
		Timestamp: message.Time.UnixMilli(),
	}
	for _, header := range message.Headers {
		shown.Headers = append(shown.Headers, lines.Header{Name: header.Key, Value: header.Value})
	}
	lines.Print(shown)
}

func fetch(o lines.Options) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:   []string{o.Bootstrap},
		Topic:     o.Topic,
		Partition: o.Partition,
		MaxBytes:  16 << 20,
		MaxWait:   200 * time.Millisecond,
	})
	lines.Must(reader.SetOffset(o.Start))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for left := o.Count; left > 0; left-- {
		message, err := reader.ReadMessage(ctx)
		lines.Must(err)
		show("", message)
	}
	lines.Must(reader.Close())
}

func member(o lines.Options) {
	balancer := map[string]kafka.GroupBalancer{
		"range": kafka.RangeGroupBalancer{}, "roundrobin": kafka.RoundRobinGroupBalancer{},
	}[o.Balancer]
	start := kafka.FirstOffset
	if o.Reset == "latest" {
		start = kafka.LastOffset
	}
	session := time.Duration(o.Session) * time.Millisecond
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:                []string{o.Bootstrap},
		GroupID:                o.Group,
		Topic:                  o.Topic,
		GroupBalancers:         []kafka.GroupBalancer{balancer},
		SessionTimeout:         session,
		HeartbeatInterval:      session / 10,
		RebalanceTimeout:       20 * time.Second,
		JoinGroupBackoff:       200 * time.Millisecond,
		StartOffset:            start,
		MaxWait:                200 * time.Millisecond,
		MaxBytes:               16 << 20,
		WatchPartitionChanges:  true,
		PartitionWatchInterval: time.Second,
	})
	ctx, cancel := lines.UntilStopped()
	defer cancel()
	for {
		message, err := reader.FetchMessage(ctx)
		if err != nil {
			break
		}
		show("record", message)
		if reader.CommitMessages(ctx, message) == nil {
			lines.PrintCommitted(map[int32]int64{int32(message.Partition): message.Offset + 1})
		}
	}
	lines.Must(reader.Close())
}
