package main

import (
	"bytes"
	"reflect"
	"testing"
	"time"
)

func TestWalkCountsWholeBatchesOnly(t *testing.T) {
	one := buildBatch(3, 10, 1)
	two := buildBatch(2, 10, 1)
	bigEndian.PutUint64(two, 3) // follows the first
	fetchedBytes := append(append([]byte{}, one...), two...)
	if next, count := walkBatches(fetchedBytes); next != 5 || count != 5 {
		t.Fatalf("next %d, count %d", next, count)
	}
	if next, count := walkBatches(fetchedBytes[:len(fetchedBytes)-1]); next != 3 || count != 3 {
		t.Fatalf("next %d, count %d with a torn tail", next, count)
	}
	if next, _ := walkBatches(nil); next != -1 {
		t.Fatalf("next %d of nothing", next)
	}
}

func TestVerifyFindsDamageAndGaps(t *testing.T) {
	batch := buildBatch(3, 10, 1)
	if !batchesAreWhole(batch, 0) || !batchesAreWhole(batch, 2) {
		t.Fatal("a good batch is refused")
	}
	if batchesAreWhole(batch, 3) {
		t.Fatal("a batch before the fetch offset is accepted")
	}
	batch[len(batch)-1] ^= 1
	if batchesAreWhole(batch, 0) {
		t.Fatal("damage is accepted")
	}
}

func TestDecoderReadsWhatTheEncoderWrote(t *testing.T) {
	for _, flexible := range []bool{false, true} {
		e := newRequest(apiFetch, 1, flexible)
		start := len(e.b)
		e.string("name")
		e.records([]byte{1, 2, 3})
		e.array(200)
		e.tags()
		d := &decoder{b: e.finish()[start:], flexible: flexible}
		if name := d.string(); name != "name" {
			t.Fatalf("name %q", name)
		}
		if records := d.records(); !bytes.Equal(records, []byte{1, 2, 3}) {
			t.Fatalf("records %v", records)
		}
		if n := d.array(); n != 200 {
			t.Fatalf("array of %d", n)
		}
		d.tags()
		if err := d.end(); err != nil {
			t.Fatal(err)
		}
		if d.int64(); d.err == nil {
			t.Fatal("reading past the end is no error")
		}
	}
}

func produceAnswer(layout produceLayout, code int16, baseOffset int64) []byte {
	e := &encoder{flexible: layout.flexible}
	e.int32(1)
	e.tags()
	e.array(1)
	if layout.byID {
		e.uuid(uuid{1})
	} else {
		e.string("t")
	}
	e.array(1)
	e.int32(0)
	e.int16(code)
	e.int64(baseOffset)
	e.int64(-1)
	if layout.startOffset {
		e.int64(0)
	}
	if layout.errors {
		e.array(0)
		e.null()
	}
	e.tags()
	e.tags()
	e.int32(0)
	e.tags()
	return e.b
}

func TestProduceAnswerIsReadToItsEnd(t *testing.T) {
	for version := 3; version <= 13; version++ {
		layout := newProduceLayout(version)
		if err := layout.check(produceAnswer(layout, 0, 7), 1); err != nil {
			t.Fatalf("v%d: %v", version, err)
		}
		if layout.check(produceAnswer(layout, 0, 7), 2) == nil {
			t.Fatalf("v%d: a missing partition goes unseen", version)
		}
		if layout.check(append(produceAnswer(layout, 0, 7), 0), 1) == nil {
			t.Fatalf("v%d: a byte too many goes unseen", version)
		}
		if layout.check(produceAnswer(layout, 56, -1), 1) == nil {
			t.Fatalf("v%d: an error code goes unseen", version)
		}
	}
}

func TestConnectionsAreDealtOverThePartitions(t *testing.T) {
	o := &options{parts: 6, perRequest: 2}
	if groups := o.partitionGroups(4); !reflect.DeepEqual(groups, [][]int32{{2, 3}}) {
		t.Fatalf("%v", groups)
	}
	o.rotate = true
	if groups := o.partitionGroups(2); !reflect.DeepEqual(groups, [][]int32{{4, 5}, {0, 1}, {2, 3}}) {
		t.Fatalf("%v", groups)
	}
}

func TestLimitIsCountOrTime(t *testing.T) {
	if (limit{requests: 3}).allows(3) || !(limit{requests: 3}).allows(2) {
		t.Fatal("count")
	}
	if (limit{until: time.Now().Add(-time.Second)}).allows(0) {
		t.Fatal("time")
	}
}

func TestPercentilesAreOfTheSortedValues(t *testing.T) {
	var values []time.Duration
	for i := 1000; i >= 0; i-- {
		values = append(values, time.Duration(i)*time.Millisecond)
	}
	got := percentiles(values)
	if got["p50"] != 500 || got["p99"] != 990 || got["p99.9"] != 999 || got["max"] != 1000 {
		t.Fatalf("%v", got)
	}
}
