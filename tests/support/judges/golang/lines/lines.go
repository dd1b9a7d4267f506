// Package lines is what the programs here have in common: their flags, and records and events as
// one JSON object a line.
package lines

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sort"
	"sync"
	"syscall"
)

// Options are the flags that every program takes; each uses those that it can.
type Options struct {
	Command    string // produce, fetch, member or load
	Bootstrap  string
	Topic      string
	Partition  int
	Start      int64
	Count      int
	Codec      string
	Acks       string
	Idempotent bool
	Version    string // a protocol version, where the client has to be told
	Group      string
	Instance   string
	Balancer   string
	Session    int // milliseconds
	Reset      string
	AutoCreate bool
}

type Header struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

// Record is one record to send or received. Null and empty are kept apart: a nil slice is null.
type Record struct {
	Event     string   `json:"event,omitempty"`
	Topic     string   `json:"topic,omitempty"`
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []Header `json:"headers"`
	Timestamp int64    `json:"timestamp"` // milliseconds
}

type owned struct {
	Event      string  `json:"event"`
	Partitions []int32 `json:"partitions"`
}

type committed struct {
	Event   string          `json:"event"`
	Offsets map[int32]int64 `json:"offsets"`
}

var (
	mutex sync.Mutex
	out   = bufio.NewWriter(os.Stdout)
)

func Parse() Options {
	if len(os.Args) < 2 {
		Fail("produce, fetch or member?")
	}
	var o Options
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	flags.StringVar(&o.Bootstrap, "bootstrap", "", "HOST:PORT")
	flags.StringVar(&o.Topic, "topic", "", "topic, where a record names none")
	flags.IntVar(&o.Partition, "partition", 0, "partition")
	flags.Int64Var(&o.Start, "start", 0, "first offset to fetch")
	flags.IntVar(&o.Count, "count", 1, "records to fetch")
	flags.StringVar(&o.Codec, "codec", "none", "none, gzip, snappy, lz4 or zstd")
	flags.StringVar(&o.Acks, "acks", "all", "0, 1 or all")
	flags.BoolVar(&o.Idempotent, "idempotent", false, "produce idempotently")
	flags.StringVar(&o.Version, "version", "", "protocol version")
	flags.StringVar(&o.Group, "group", "", "group to be a member of")
	flags.StringVar(&o.Instance, "instance", "", "static membership")
	flags.StringVar(&o.Balancer, "balancer", "range", "range, roundrobin, sticky or cooperative")
	flags.IntVar(&o.Session, "session", 10000, "session timeout in milliseconds")
	flags.StringVar(&o.Reset, "reset", "earliest", "earliest or latest, where there is no offset")
	flags.BoolVar(&o.AutoCreate, "auto-create", false, "let the broker create topics")
	o.Command = os.Args[1]
	Must(flags.Parse(os.Args[2:]))
	return o
}

func Fail(format string, args ...any) {
	out.Flush()
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}

func Must(err error) {
	if err != nil {
		Fail("%v", err)
	}
}

// Print writes one line at once: whoever reads it acts on it.
func Print(value any) {
	data, err := json.Marshal(value)
	Must(err)
	mutex.Lock()
	defer mutex.Unlock()
	out.Write(data)
	out.WriteByte('\n')
	out.Flush()
}

func PrintOwned(event string, partitions []int32) {
	list := append([]int32{}, partitions...)
	sort.Slice(list, func(i, j int) bool { return list[i] < list[j] })
	Print(owned{event, list})
}

func PrintCommitted(offsets map[int32]int64) {
	if len(offsets) > 0 {
		Print(committed{"committed", offsets})
	}
}

// Read gives the records on standard input.
func Read(o Options) []Record {
	var records []Record
	decoder := json.NewDecoder(bufio.NewReader(os.Stdin))
	for decoder.More() {
		record := Record{Topic: o.Topic, Partition: int32(o.Partition)}
		Must(decoder.Decode(&record))
		records = append(records, record)
	}
	return records
}

// UntilStopped ends with SIGTERM, the polite end of a member.
func UntilStopped() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
}
