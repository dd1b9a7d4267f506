package main

import (
	"fmt"
	"time"
)

const sessionlessEpoch = -1

// fetchLayout says what Fetch of one version looks like (11 to 18).
type fetchLayout struct {
	version                   int
	flexible, byID, replicaID bool
}

func newFetchLayout(version int) fetchLayout {
	return fetchLayout{
		version: version, flexible: version >= 12, byID: version >= 13, replicaID: version < 15,
	}
}

// fetchPartition is where one partition is to be read from.
type fetchPartition struct {
	index    int32
	offset   int64
	maxBytes int32
}

type fetchRequest struct {
	maxWaitMs, minBytes, maxBytes int32
	sessionID, sessionEpoch       int32
	partitions                    []fetchPartition
}

// frame names the partitions of request; none of them in a session means "those that you know".
func (l fetchLayout) frame(t topic, request *fetchRequest) []byte {
	e := newRequest(apiFetch, int16(l.version), l.flexible)
	if l.replicaID {
		e.int32(-1)
	}
	e.int32(request.maxWaitMs)
	e.int32(request.minBytes)
	e.int32(request.maxBytes)
	e.int8(0) // read_uncommitted
	e.int32(request.sessionID)
	e.int32(request.sessionEpoch)
	if len(request.partitions) == 0 {
		e.array(0)
	} else {
		e.array(1)
		l.topicKey(e, t)
		e.array(len(request.partitions))
		for _, p := range request.partitions {
			e.int32(p.index)
			e.int32(-1) // current leader epoch: not checked
			e.int64(p.offset)
			if l.flexible {
				e.int32(-1) // last fetched epoch
			}
			e.int64(-1) // log start offset, of followers
			e.int32(p.maxBytes)
			e.tags()
		}
		e.tags()
	}
	e.array(0)   // nothing forgotten
	e.string("") // rack
	e.tags()
	return e.finish()
}

func (l fetchLayout) topicKey(e *encoder, t topic) {
	if l.byID {
		e.uuid(t.id)
	} else {
		e.string(t.name)
	}
}

// fetched is one partition of an answer. records points into the answer.
type fetched struct {
	index         int32
	highWatermark int64
	records       []byte
}

// parse calls each for every partition of the answer and returns the session id.
func (l fetchLayout) parse(answer []byte, each func(*fetched) error) (int32, error) {
	d := newAnswer(answer, l.flexible)
	d.int32() // throttle
	if code := d.int16(); code != 0 && d.err == nil {
		return 0, fmt.Errorf("fetch: error %d", code)
	}
	sessionID := d.int32()
	for topics := d.array(); topics > 0 && d.err == nil; topics-- {
		if l.byID {
			d.take(16)
		} else {
			_ = d.string()
		}
		for n := d.array(); n > 0 && d.err == nil; n-- {
			if err := l.parsePartition(d, each); err != nil {
				return 0, err
			}
		}
		d.tags()
	}
	d.tags()
	return sessionID, d.end()
}

func (l fetchLayout) parsePartition(d *decoder, each func(*fetched) error) error {
	p := fetched{index: d.int32()}
	code := d.int16()
	p.highWatermark = d.int64()
	d.int64() // last stable offset
	d.int64() // log start offset
	for n := d.array(); n > 0 && d.err == nil; n-- {
		d.int64() // aborted transaction: producer id
		d.int64()
		d.tags()
	}
	d.int32() // preferred read replica
	p.records = d.records()
	d.tags()
	if d.err != nil {
		return d.err
	}
	if code != 0 {
		return fmt.Errorf("fetch of partition %d: error %d", p.index, code)
	}
	return each(&p)
}

// consumer is one connection that reads: sessionless up to v11 by default, with a session from v12 on.
type consumer struct {
	*client
	layout    fetchLayout
	options   *options
	topic     topic
	request   fetchRequest
	offsets   map[int32]int64
	inSession bool
	own       *tally
}

func newConsumer(options *options, partitions []int32) (*consumer, error) {
	c, err := dial(options.addr)
	if err != nil {
		return nil, err
	}
	t, err := options.resolveTopic(c)
	if err != nil {
		return nil, err
	}
	consumer := &consumer{
		client: c, layout: newFetchLayout(options.version), options: options, topic: t,
		offsets: make(map[int32]int64, len(partitions)), inSession: options.session, own: &tally{},
		request: fetchRequest{
			maxWaitMs: int32(options.maxWaitMs), minBytes: 1, maxBytes: int32(options.maxBytes),
			sessionEpoch: sessionlessEpoch,
		},
	}
	if consumer.inSession {
		consumer.request.sessionEpoch = 0 // the first, full request of a session
	}
	for _, index := range partitions {
		consumer.offsets[index] = 0
		consumer.want(index, 0)
	}
	return consumer, nil
}

func (c *consumer) want(index int32, offset int64) {
	c.request.partitions = append(
		c.request.partitions,
		fetchPartition{index, offset, int32(c.options.partitionMaxBytes)},
	)
}

// poll makes one round trip and prepares the next request from its answer. In a session the next request names
// only the partitions whose offset has moved.
func (c *consumer) poll() (changed int, err error) {
	answer, err := c.ask(c.layout.frame(c.topic, &c.request))
	if err != nil {
		return 0, err
	}
	moved := c.request.partitions[:0]
	if !c.inSession {
		moved = make([]fetchPartition, 0, len(c.request.partitions))
	}
	sessionID, err := c.layout.parse(answer, func(p *fetched) error {
		next, err := c.advance(p)
		if err != nil {
			return err
		}
		if len(p.records) > 0 {
			changed++
		}
		if !c.inSession || next != c.offsets[p.index] {
			moved = append(moved, fetchPartition{p.index, next, int32(c.options.partitionMaxBytes)})
		}
		c.offsets[p.index] = next
		return nil
	})
	if err != nil {
		return 0, err
	}
	c.request.partitions = moved
	if c.inSession {
		if sessionID == 0 {
			return 0, fmt.Errorf("the broker did not give a fetch session")
		}
		c.request.sessionID = sessionID
		c.request.sessionEpoch++
	}
	return changed, nil
}

// advance counts what one partition brought and says where to read next. With rewind it starts again at the end, so
// that a run can be longer than the topic; with tail it goes to the end, to wait there.
func (c *consumer) advance(p *fetched) (int64, error) {
	from := c.offsets[p.index]
	next, count := walkBatches(p.records)
	if c.options.verify && !batchesAreWhole(p.records, from) {
		return 0, fmt.Errorf("partition %d from offset %d: damaged or misplaced batch", p.index, from)
	}
	if next < 0 {
		if len(p.records) > 0 {
			return 0, fmt.Errorf("partition %d from offset %d: no whole batch in %d bytes", p.index, from, len(p.records))
		}
		next = from
	}
	c.own.records += int64(count)
	c.own.bytes += int64(len(p.records))
	switch {
	case c.options.tail:
		next = p.highWatermark
	case c.options.rewind && next >= p.highWatermark:
		next = 0
	}
	return next, nil
}

func fetchWorker(options *options) worker {
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
		if err := c.readLoop(options.warmup()); err != nil {
			return nil, err
		}
		*c.own = tally{}
		ready()
		return c.own, c.readLoop(options.limit())
	}
}

func (c *consumer) readLoop(limit limit) error {
	for i := 0; limit.allows(i); i++ {
		asked := time.Now()
		changed, err := c.poll()
		if err != nil {
			return err
		}
		if changed == 0 && c.options.rewind {
			return fmt.Errorf("fetch returned nothing: is the topic filled?")
		}
		c.own.latencies = append(c.own.latencies, time.Since(asked))
	}
	return nil
}
