// sarama as a judge.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"

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

func settings(o lines.Options) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	if o.Version != "" {
		version, err := sarama.ParseKafkaVersion(o.Version)
		lines.Must(err)
		config.Version = version
	}
	config.Metadata.AllowAutoTopicCreation = o.AutoCreate
	config.Metadata.RefreshFrequency = time.Second
	config.Consumer.MaxWaitTime = 200 * time.Millisecond
	config.Consumer.Return.Errors = true
	return config
}

func produce(o lines.Options) {
	config := settings(o)
	config.Producer.Compression = map[string]sarama.CompressionCodec{
		"none":   sarama.CompressionNone,
		"gzip":   sarama.CompressionGZIP,
		"snappy": sarama.CompressionSnappy,
		"lz4":    sarama.CompressionLZ4,
		"zstd":   sarama.CompressionZSTD,
	}[o.Codec]
	config.Producer.RequiredAcks = map[string]sarama.RequiredAcks{
		"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll,
	}[o.Acks]
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.MaxMessageBytes = 16 << 20
	config.Producer.Flush.Frequency = 20 * time.Millisecond
	if o.Idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer([]string{o.Bootstrap}, config)
	lines.Must(err)
	var messages []*sarama.ProducerMessage
	for _, given := range lines.Read(o) {
		message := &sarama.ProducerMessage{
			Topic:     given.Topic,
			Partition: given.Partition,
			Timestamp: time.UnixMilli(given.Timestamp),
		}
		if given.Key != nil {
			message.Key = sarama.ByteEncoder(given.Key)
		}
		if given.Value != nil {
			message.Value = sarama.ByteEncoder(given.Value)
		}
		for _, header := range given.Headers {
			message.Headers = append(
				message.Headers, sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value},
			)
		}
		messages = append(messages, message)
	}
	lines.Must(producer.SendMessages(messages))
	for _, message := range messages {
		offset := message.Offset
		if o.Acks == "0" {
			offset = -1
		}
		lines.Print(lines.Record{Topic: message.Topic, Partition: message.Partition, Offset: offset})
	}
	lines.Must(producer.Close())
}

func show(event string, message *sarama.ConsumerMessage) {
	shown := lines.Record{
		Event:     event,
		Topic:     message.Topic,
		Partition: message.Partition,
		Offset:    message.Offset,
		Key:       message.Key,
		Value:     message.Value,
		Timestamp: message.Timestamp.UnixMilli(),
	}
	for _, header := range message.Headers {
		shown.Headers = append(shown.Headers, lines.Header{Name: string(header.Key), Value: header.Value})
	}
	lines.Print(shown)
}

func fetch(o lines.Options) {
	consumer, err := sarama.NewConsumer([]string{o.Bootstrap}, settings(o))
	lines.Must(err)
	partition, err := consumer.ConsumePartition(o.Topic, int32(o.Partition), o.Start)
	lines.Must(err)
	limit := time.After(30 * time.Second)
	for left := o.Count; left > 0; left-- {
		select {
		case message := <-partition.Messages():
			show("", message)
		case failure := <-partition.Errors():
			lines.Must(failure)
		case <-limit:
			lines.Fail("%d records did not come", left)
		}
	}
	lines.Must(partition.Close())
	lines.Must(consumer.Close())
}

type handler struct{ topic string }

func (h handler) Setup(session sarama.ConsumerGroupSession) error {
	lines.PrintOwned("assigned", session.Claims()[h.topic])
	return nil
}

func (h handler) Cleanup(session sarama.ConsumerGroupSession) error {
	lines.PrintOwned("revoked", session.Claims()[h.topic])
	return nil
}

func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			show("record", message)
			session.MarkMessage(message, "")
			if len(claim.Messages()) == 0 {
				session.Commit()
				lines.PrintCommitted(map[int32]int64{message.Partition: message.Offset + 1})
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func member(o lines.Options) {
	config := settings(o)
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{
		map[string]sarama.BalanceStrategy{
			"range":      sarama.NewBalanceStrategyRange(),
			"roundrobin": sarama.NewBalanceStrategyRoundRobin(),
			"sticky":     sarama.NewBalanceStrategySticky(),
		}[o.Balancer],
	}
	config.Consumer.Group.Session.Timeout = time.Duration(o.Session) * time.Millisecond
	config.Consumer.Group.Heartbeat.Interval = time.Duration(o.Session) * time.Millisecond / 10
	config.Consumer.Group.Rebalance.Timeout = 20 * time.Second
	config.Consumer.Group.InstanceId = o.Instance
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	if o.Reset == "latest" {
		config.Consumer.Offsets.Initial = sarama.OffsetNewest
	}
	group, err := sarama.NewConsumerGroup([]string{o.Bootstrap}, o.Group, config)
	lines.Must(err)
	go func() {
		for range group.Errors() { //nolint:revive // they are retried
		}
	}()
	ctx, cancel := lines.UntilStopped()
	defer cancel()
	for ctx.Err() == nil {
		err := group.Consume(ctx, []string{o.Topic}, handler{o.Topic})
		if err != nil && !errors.Is(err, context.Canceled) && ctx.Err() == nil {
			time.Sleep(200 * time.Millisecond)
		}
	}
	lines.Must(group.Close())
}
