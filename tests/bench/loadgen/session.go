package main

import (
	"fmt"
	"time"
)

// sessionWorker is a consumer with one session over all partitions, beside a producer that writes to a few of them:
// latency is that of the fetches that bring what changed. The changed partitions move along the topic.
func sessionWorker(options *options) worker {
	return func(index int, ready func()) (*tally, error) {
		all := make([]int32, options.parts)
		for i := range all {
			all[i] = int32(i)
		}
		reader, err := newConsumer(options, all)
		if err != nil {
			return nil, err
		}
		defer reader.close()
		writing := *options
		writing.version, writing.perRequest = options.produceVersion, options.changing
		writing.rotate = true
		writer, err := newProducer(&writing, index)
		if err != nil {
			return nil, err
		}
		defer writer.close()
		if _, err := reader.poll(); err != nil { // the full request; the next one is at every partition's end
			return nil, err
		}
		cycles := sessionCycles{reader, writer}
		if err := cycles.run(options.warmup()); err != nil {
			return nil, err
		}
		*reader.own = tally{}
		ready()
		return reader.own, cycles.run(options.limit())
	}
}

type sessionCycles struct {
	reader *consumer
	writer *producer
}

func (s sessionCycles) run(limit limit) error {
	for i := 0; limit.allows(i); i++ {
		if err := s.writer.sendNext(); err != nil {
			return err
		}
		if err := s.writer.receiveNext(); err != nil {
			return err
		}
		for missing := s.writer.options.perRequest; missing > 0; {
			asked := time.Now()
			changed, err := s.reader.poll()
			if err != nil {
				return err
			}
			s.reader.own.latencies = append(s.reader.own.latencies, time.Since(asked))
			if changed == 0 || changed > missing {
				return fmt.Errorf("session brought %d changed partitions, %d were due", changed, missing)
			}
			missing -= changed
		}
	}
	return nil
}

// pollWorker is an idle consumer: it waits at the end of its partition, and asks again when the broker gives up.
// The consumers start spread over one wait, or they would all come back at once for ever.
func pollWorker(options *options) worker {
	return func(index int, ready func()) (*tally, error) {
		var wanted []int32
		for _, group := range options.partitionGroups(index) {
			wanted = append(wanted, group...)
		}
		c, err := newConsumer(options, wanted)
		if err != nil {
			return nil, err
		}
		defer c.close()
		wait := time.Duration(options.maxWaitMs) * time.Millisecond
		time.Sleep(wait * time.Duration(index) / time.Duration(options.conns))
		c.request.minBytes = 0 // where the end is has to be learnt without a wait
		if _, err := c.poll(); err != nil {
			return nil, err
		}
		c.request.minBytes = 1
		if err := c.readLoop(options.warmup()); err != nil {
			return nil, err
		}
		*c.own = tally{}
		ready()
		return c.own, c.readLoop(options.limit())
	}
}
