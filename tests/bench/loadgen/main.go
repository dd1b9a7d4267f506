// Loadgen puts raw Kafka requests on a broker, so that the broker is what is measured: Java and librdkafka clients
// cost more CPU than it does. One line of JSON comes out. It speaks to one broker, which must lead every partition;
// with -follow each connection that produces speaks to the leader of its own.
//
//	loadgen create  -topic t -parts 6 -config segment.bytes=1048576
//	loadgen produce -topic t -recs 1 -depth 5 -seconds 5                   closed loop
//	loadgen produce -topic t -recs 1 -rate 2000 -seconds 10                open loop, latency from the scheduled time
//	loadgen create  -topic t -parts 6 -replicas 3 -follow                  on a cluster; leaders may be anywhere
//	loadgen produce -topic t -parts 6 -conns 8 -acks -1 -follow
//	loadgen produce -topic t -version 13 -parts 50 -per-request 50         topic ids, 50 partitions in each request
//	loadgen fetch   -topic t -version 17 -session -max-bytes 1048576       reads round and round
//	loadgen session -topic t -version 17 -parts 500 -changing 5            incremental fetch session beside a producer
//	loadgen poll    -topic t -conns 200 -parts 200 -seconds 10             idle long polls
//	loadgen led     -topic t -without 127.0.0.1:9093                       until others lead, and serve, everything
//	loadgen delete  -topic t
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

type options struct {
	mode, addr, topicName   string
	version, produceVersion int
	parts, perRequest       int
	replicas                int
	rotate, follow          bool
	conns, depth            int
	recordsPerBatch         int
	recordBytes             int
	acks                    int
	rate                    float64
	requests                int
	seconds, warmupSeconds  float64
	pids                    intList
	maxBytes                int
	partitionMaxBytes       int
	maxWaitMs               int
	session, verify         bool
	rewind, tail            bool
	changing                int
	configs                 stringList
	without                 string
}

type stringList []string

func (l *stringList) String() string     { return strings.Join(*l, ",") }
func (l *stringList) Set(v string) error { *l = append(*l, v); return nil }

type intList []int

func (l *intList) String() string { return fmt.Sprint([]int(*l)) }
func (l *intList) Set(v string) error {
	n, err := strconv.Atoi(v)
	*l = append(*l, n)
	return err
}

func parseOptions(arguments []string) (*options, error) {
	o := &options{mode: arguments[0]}
	f := flag.NewFlagSet("loadgen "+o.mode, flag.ExitOnError)
	f.StringVar(&o.addr, "addr", "127.0.0.1:9092", "the broker")
	f.StringVar(&o.topicName, "topic", "load", "")
	f.IntVar(&o.version, "version", 0, "of Produce (3-13; default 8) or Fetch (11-18; default 11)")
	f.IntVar(&o.produceVersion, "produce-version", 13, "session: of the Produce requests beside it")
	f.IntVar(&o.parts, "parts", 1, "partitions of the topic that are used")
	f.IntVar(&o.perRequest, "per-request", 1, "partitions in one request")
	f.IntVar(&o.replicas, "replicas", 1, "create: of each partition")
	f.BoolVar(&o.follow, "follow", false, "create, produce: go to the leaders, wherever they are")
	f.BoolVar(&o.rotate, "rotate", false, "each connection goes through all partitions, not only its own")
	f.IntVar(&o.conns, "conns", 1, "connections")
	f.IntVar(&o.depth, "depth", 5, "closed loop: requests in flight on a connection")
	f.IntVar(&o.recordsPerBatch, "recs", 100, "records in a batch")
	f.IntVar(&o.recordBytes, "size", 100, "bytes in a record's value")
	f.IntVar(&o.acks, "acks", 1, "1 or -1")
	f.Float64Var(&o.rate, "rate", 0, "open loop: requests/s of all connections together; 0 is a closed loop")
	f.IntVar(&o.requests, "reqs", 0, "stop after so many requests on a connection; 0 is no limit")
	f.Float64Var(&o.seconds, "seconds", 0, "stop sending after so long; 0 is no limit")
	f.Float64Var(&o.warmupSeconds, "warmup", 0, "seconds of the same load before the clock starts")
	f.Var(&o.pids, "pid", "broker process whose CPU time is reported, may be repeated")
	f.IntVar(&o.maxBytes, "max-bytes", 1<<20, "of a fetch")
	f.IntVar(&o.partitionMaxBytes, "partition-max-bytes", 1<<20, "")
	f.IntVar(&o.maxWaitMs, "max-wait-ms", 500, "")
	f.BoolVar(&o.session, "session", false, "fetch in an incremental session")
	f.BoolVar(&o.verify, "verify", false, "check the CRC and the offsets of every fetched batch")
	f.IntVar(&o.changing, "changing", 5, "session: partitions that get a record between two fetches")
	f.StringVar(&o.without, "without", "", "led: the broker that is gone")
	f.Var(&o.configs, "config", "create: name=value, may be repeated")
	if err := f.Parse(arguments[1:]); err != nil {
		return nil, err
	}
	return o, o.complete()
}

// complete sets what the mode implies, and refuses what would measure something else than it says.
func (o *options) complete() error {
	o.rewind = o.mode == "fetch"
	o.tail = o.mode == "session" || o.mode == "poll"
	o.session = o.session || o.mode == "session"
	if o.version == 0 {
		o.version = map[bool]int{true: 8, false: 11}[o.mode == "produce"]
	}
	switch {
	case o.mode == "produce" && (o.version < 3 || o.version > 13):
		return fmt.Errorf("Produce v%d is not spoken here", o.version)
	case o.tail || o.rewind:
		if o.version < 11 || o.version > 18 {
			return fmt.Errorf("Fetch v%d is not spoken here", o.version)
		}
	}
	switch {
	case o.acks != 1 && o.acks != -1:
		return fmt.Errorf("acks=0 has no answers to measure")
	case o.perRequest < 1 || o.parts%o.perRequest != 0 || o.parts%max(o.changing, 1) != 0 && o.mode == "session":
		return fmt.Errorf("%d partitions are not a multiple of those in a request", o.parts)
	case o.follow && (o.rotate || o.perRequest > 1):
		return fmt.Errorf("a connection to the leader of one partition cannot go through others")
	case o.conns < 1 || o.depth < 1 || o.recordsPerBatch < 1:
		return fmt.Errorf("conns, depth and recs start at 1")
	case o.requests == 0 && o.seconds == 0 && (o.mode == "produce" || o.tail || o.rewind):
		return fmt.Errorf("give -reqs or -seconds")
	}
	return nil
}

// partitionGroups are the partitions of each request of one connection, in turn. Without rotate a connection keeps
// to one group, and connections are dealt out over the groups.
func (o *options) partitionGroups(index int) [][]int32 {
	groupCount := o.parts / o.perRequest
	groups := make([][]int32, 0, groupCount)
	for g := 0; g < groupCount; g++ {
		first := (index + g) % groupCount * o.perRequest
		group := make([]int32, o.perRequest)
		for i := range group {
			group[i] = int32(first + i)
		}
		groups = append(groups, group)
		if !o.rotate {
			break
		}
	}
	return groups
}

// resolveTopic spares a broker that knows no Metadata the question when names will do.
func (o *options) resolveTopic(c *client) (topic, error) {
	byID := newProduceLayout(o.version).byID || (o.mode != "produce" && newFetchLayout(o.version).byID)
	if !byID {
		return topic{name: o.topicName}, nil
	}
	return findTopic(c, o.topicName)
}

// limit ends a loop by count, by time, or by whichever comes first.
type limit struct {
	requests int
	until    time.Time
}

func (l limit) allows(sent int) bool {
	if l.requests > 0 && sent >= l.requests {
		return false
	}
	return l.until.IsZero() || time.Now().Before(l.until)
}

func (o *options) limit() limit {
	l := limit{requests: o.requests}
	if o.seconds > 0 {
		l.until = time.Now().Add(time.Duration(o.seconds * float64(time.Second)))
	}
	return l
}

// warmup may be over before it began: an instant in the past allows nothing.
func (o *options) warmup() limit {
	return limit{until: time.Now().Add(time.Duration(o.warmupSeconds * float64(time.Second)))}
}

// scheduled is how many requests an open loop sends on one connection.
func (o *options) scheduled(gap time.Duration) int {
	n := o.requests
	if o.seconds > 0 {
		if byTime := int(o.seconds * float64(time.Second) / float64(gap)); n == 0 || byTime < n {
			n = byTime
		}
	}
	return n
}

func run(o *options) (any, error) {
	workers := map[string]func(*options) worker{
		"produce": produceWorker, "fetch": fetchWorker, "session": sessionWorker, "poll": pollWorker,
	}
	if makeWorker, ok := workers[o.mode]; ok {
		return measure(o, makeWorker(o))
	}
	c, err := dial(o.addr)
	if err != nil {
		return nil, err
	}
	defer c.close()
	switch o.mode {
	case "create":
		if err := createTopic(c, o.topicName, o.parts, o.replicas, o.configs); err != nil {
			return nil, err
		}
		t, err := findTopic(c, o.topicName)
		if err == nil {
			err = awaitLeaders(c, t, o.follow)
		}
		return describe(t, err)
	case "led":
		return awaitLed(c, o.topicName, o.without)
	case "topic":
		return describe(findTopic(c, o.topicName))
	case "delete":
		return map[string]string{"deleted": o.topicName}, deleteTopic(c, o.topicName)
	}
	return nil, fmt.Errorf("no mode %q", o.mode)
}

func describe(t topic, err error) (any, error) {
	return map[string]any{"topic": t.name, "id": fmt.Sprintf("%x", t.id), "partitions": t.partitions}, err
}

func main() {
	if len(os.Args) < 2 || strings.HasPrefix(os.Args[1], "-") {
		fmt.Fprintln(os.Stderr, "usage: loadgen create|topic|led|delete|produce|fetch|session|poll [flags]; -h after the mode")
		os.Exit(2)
	}
	o, err := parseOptions(os.Args[1:])
	if err == nil {
		var answer any
		if answer, err = run(o); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(answer)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "loadgen:", err)
		os.Exit(1)
	}
}
