package main

import (
	"fmt"
	"time"
)

const produceTimeoutMs = 30_000

// produceLayout says what Produce of one version looks like; the rest of the file does not compare versions.
type produceLayout struct {
	version                             int
	flexible, byID, startOffset, errors bool
}

func newProduceLayout(version int) produceLayout {
	return produceLayout{
		version: version, flexible: version >= 9, byID: version >= 13,
		startOffset: version >= 5, errors: version >= 8,
	}
}

// frame is one request with the same batch for each of the partitions.
func (l produceLayout) frame(t topic, partitions []int32, acks int16, batch []byte) []byte {
	e := newRequest(apiProduce, int16(l.version), l.flexible)
	e.null() // no transactional id
	e.int16(acks)
	e.int32(produceTimeoutMs)
	e.array(1)
	if l.byID {
		e.uuid(t.id)
	} else {
		e.string(t.name)
	}
	e.array(len(partitions))
	for _, partition := range partitions {
		e.int32(partition)
		e.records(batch)
		e.tags()
	}
	e.tags()
	e.tags()
	return e.finish()
}

// check reads the whole answer and demands success for as many partitions as were asked.
func (l produceLayout) check(answer []byte, partitionCount int) error {
	d := newAnswer(answer, l.flexible)
	seen := 0
	for topics := d.array(); topics > 0 && d.err == nil; topics-- {
		if l.byID {
			d.take(16)
		} else {
			d.take(l.nameLength(d))
		}
		for partitions := d.array(); partitions > 0 && d.err == nil; partitions-- {
			index, code := d.int32(), d.int16()
			baseOffset := d.int64()
			d.int64() // log append time
			if l.startOffset {
				d.int64()
			}
			if l.errors {
				for n := d.array(); n > 0 && d.err == nil; n-- {
					d.int32()
					_ = d.string()
					d.tags()
				}
				if message := d.string(); code != 0 {
					return fmt.Errorf("partition %d: error %d %s", index, code, message)
				}
			}
			d.tags()
			if code != 0 || (d.err == nil && baseOffset < 0) {
				return fmt.Errorf("partition %d: error %d, base offset %d", index, code, baseOffset)
			}
			seen++
		}
		d.tags()
	}
	d.int32() // throttle
	d.tags()
	if err := d.end(); err != nil {
		return err
	}
	if seen != partitionCount {
		return fmt.Errorf("%d partitions answered, %d asked", seen, partitionCount)
	}
	return nil
}

func (l produceLayout) nameLength(d *decoder) int {
	if l.flexible {
		return d.uvarint() - 1
	}
	return int(d.int16())
}

// producer is one connection of a produce run.
type producer struct {
	*client
	layout     produceLayout
	options    *options
	frames     [][]byte // sent in turn
	batchBytes int
	next       int
	inFlight   []time.Time // when each unanswered request was due, a ring of depth slots
	own        *tally
}

func newProducer(options *options, index int) (*producer, error) {
	c, err := dial(options.addr)
	if err != nil {
		return nil, err
	}
	t, err := options.resolveTopic(c)
	if err != nil {
		return nil, err
	}
	if options.follow {
		if c, t, err = followed(c, options, index); err != nil {
			return nil, err
		}
	}
	batch := buildBatch(options.recordsPerBatch, options.recordBytes, time.Now().UnixMilli())
	p := &producer{
		client: c, layout: newProduceLayout(options.version), options: options,
		batchBytes: len(batch), own: &tally{},
	}
	for _, partitions := range options.partitionGroups(index) {
		p.frames = append(p.frames, p.layout.frame(t, partitions, int16(options.acks), batch))
	}
	return p, nil
}

// followed is a connection to the leader of the partition that the connection with this index writes to.
func followed(c *client, options *options, index int) (*client, topic, error) {
	defer c.close()
	t, err := findTopic(c, options.topicName)
	if err != nil {
		return nil, t, err
	}
	partition := int(options.partitionGroups(index)[0][0])
	if partition >= len(t.leaders) {
		return nil, t, fmt.Errorf("topic %s has no partition %d", t.name, partition)
	}
	leader, err := dial(t.leaders[partition])
	return leader, t, err
}

func (p *producer) sendNext() error {
	frame := p.frames[p.next]
	p.next = (p.next + 1) % len(p.frames)
	return p.send(frame)
}

func (p *producer) receiveNext() error {
	answer, err := p.receive()
	if err != nil {
		return err
	}
	return p.layout.check(answer, p.options.perRequest)
}

func (p *producer) count(due time.Time) {
	p.own.latencies = append(p.own.latencies, time.Since(due))
	p.own.records += int64(p.options.recordsPerBatch * p.options.perRequest)
	p.own.bytes += int64(p.batchBytes * p.options.perRequest)
}

func produceWorker(options *options) worker {
	return func(index int, ready func()) (*tally, error) {
		p, err := newProducer(options, index)
		if err != nil {
			return nil, err
		}
		defer p.close()
		if err := p.closedLoop(options.warmup()); err != nil {
			return nil, err
		}
		*p.own = tally{latencies: make([]time.Duration, 0, 1<<16)}
		ready()
		if options.rate > 0 {
			return p.own, p.openLoop(index)
		}
		return p.own, p.closedLoop(options.limit())
	}
}

// closedLoop keeps depth requests in flight: each answer lets the next request go.
func (p *producer) closedLoop(limit limit) error {
	depth := p.options.depth
	due := make([]time.Time, depth)
	sent, answered := 0, 0
	for {
		for sent-answered < depth && limit.allows(sent) {
			due[sent%depth] = time.Now()
			if err := p.sendNext(); err != nil {
				return err
			}
			sent++
		}
		if sent == answered {
			return nil
		}
		if err := p.receiveNext(); err != nil {
			return err
		}
		p.count(due[answered%depth])
		answered++
	}
}

// openLoop sends on a schedule, answers or not, and counts latency from the scheduled time: a stall of the broker
// does not hide the requests that it kept from being sent.
func (p *producer) openLoop(index int) error {
	const maxInFlight = 1 << 16
	gap := time.Duration(float64(time.Second) * float64(p.options.conns) / p.options.rate)
	total := p.options.scheduled(gap)
	due := make(chan time.Time, maxInFlight)
	sendError := make(chan error, 1)
	start := time.Now().Add(gap * time.Duration(index) / time.Duration(p.options.conns))
	late := make([]time.Duration, 0, total)
	go func() {
		defer close(due)
		pacer := newPacer()
		for i := 0; i < total; i++ {
			at := start.Add(gap * time.Duration(i))
			pacer.waitUntil(at)
			late = append(late, time.Since(at))
			due <- at
			if err := p.sendNext(); err != nil {
				sendError <- err
				p.conn.Close()
				return
			}
		}
		sendError <- nil
	}()
	for at := range due {
		if err := p.receiveNext(); err != nil {
			p.conn.Close()
			for range due { // let the sender end
			}
			return err
		}
		p.count(at)
	}
	p.own.late = late
	return <-sendError
}
