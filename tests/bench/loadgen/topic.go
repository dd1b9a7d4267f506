package main

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// topic is what requests need to name a topic: its name up to Produce 12 / Fetch 12, its id from 13 on.
type topic struct {
	name       string
	id         uuid
	partitions int
	leaders    []string // addresses, by partition
}

const (
	errorUnknownTopic       = 3
	errorLeaderNotAvailable = 5
	errorAlreadyExists      = 36
	topicTimeout            = 120 * time.Second
	adminTimeoutMs          = 60_000
)

// findTopic asks Metadata v12 until every partition has a leader. Leaders other than addr are not followed:
// this generator measures one broker.
func findTopic(c *client, name string) (topic, error) {
	deadline := time.Now().Add(topicTimeout)
	for {
		found, ready, err := describeTopic(c, name)
		if err != nil || ready {
			return found, err
		}
		if time.Now().After(deadline) {
			return found, fmt.Errorf("topic %s has partitions without a leader", name)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func describeTopic(c *client, name string) (found topic, ready bool, err error) {
	e := newRequest(apiMetadata, 12, true)
	e.array(1)
	e.uuid(uuid{})
	e.string(name)
	e.tags()
	e.boolean(false) // no auto-creation
	e.boolean(false)
	e.tags()
	answer, err := c.ask(e.finish())
	if err != nil {
		return found, false, err
	}
	d := newAnswer(answer, true)
	d.int32() // throttle
	addresses := map[int32]string{}
	for n := d.array(); n > 0 && d.err == nil; n-- {
		id, host, port := d.int32(), d.string(), d.int32()
		addresses[id] = net.JoinHostPort(host, strconv.Itoa(int(port)))
		_ = d.string() // rack
		d.tags()
	}
	_ = d.string() // cluster id
	d.int32()      // controller
	if n := d.array(); n != 1 {
		return found, false, fmt.Errorf("metadata names %d topics, asked for one", n)
	}
	code := d.int16()
	found.name = d.string()
	found.id = d.uuid()
	d.int8() // internal
	found.partitions = d.array()
	ready = code == 0 && found.partitions > 0
	found.leaders = make([]string, found.partitions)
	for n := found.partitions; n > 0 && d.err == nil; n-- {
		partitionCode := d.int16()
		index, leader := d.int32(), d.int32()
		d.int32()
		for range [3]int{} { // replicas, in-sync replicas, offline replicas
			d.take(4 * max(d.array(), 0))
		}
		d.tags()
		ready = ready && leader >= 0 && partitionCode == 0
		if int(index) < len(found.leaders) {
			found.leaders[index] = addresses[leader]
		}
	}
	d.int32() // authorised operations
	d.tags()
	d.tags()
	if err := d.end(); err != nil {
		return found, false, err
	}
	if code != 0 && code != errorUnknownTopic && code != errorLeaderNotAvailable {
		return found, false, fmt.Errorf("metadata of %s: error %d", name, code)
	}
	return found, ready, nil
}

// createTopic is content with a topic that is there already. configs are "name=value".
func createTopic(c *client, name string, partitions, replicas int, configs []string) error {
	e := newRequest(apiCreateTopics, 7, true)
	e.array(1)
	e.string(name)
	e.int32(int32(partitions))
	e.int16(int16(replicas))
	e.array(0)
	e.array(len(configs))
	for _, config := range configs {
		key, value, ok := strings.Cut(config, "=")
		if !ok {
			return fmt.Errorf("config %q is not name=value", config)
		}
		e.string(key)
		e.string(value)
		e.tags()
	}
	e.tags()
	e.int32(adminTimeoutMs)
	e.boolean(false)
	e.tags()
	answer, err := c.ask(e.finish())
	if err != nil {
		return err
	}
	d := newAnswer(answer, true)
	d.int32()
	d.array()
	_ = d.string()
	d.uuid()
	code, message := d.int16(), d.string()
	if d.err == nil && code != 0 && code != errorAlreadyExists {
		return fmt.Errorf("creating %s: error %d %s", name, code, message)
	}
	return d.err
}

// awaitLed asks until every partition is led by somebody else, then until each of these leaders serves all that it leads.
// The times are of the wall, as ZooKeeper's are.
func awaitLed(c *client, name, without string) (map[string]int64, error) {
	const pause = 20 * time.Millisecond
	for deadline := time.Now().Add(topicTimeout); ; time.Sleep(pause) {
		t, ready, err := describeTopic(c, name)
		if err != nil {
			return nil, err
		}
		if ready && !slices.Contains(t.leaders, without) && !slices.Contains(t.leaders, "") {
			told := time.Now().UnixMilli()
			err = awaitLeaders(c, t, true)
			return map[string]int64{"told_ms": told, "served_ms": time.Now().UnixMilli()}, err
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%s still has partitions without a leader", name)
		}
	}
}

// awaitLeaders does awaitServing for all partitions: of one broker, or each of its leader.
func awaitLeaders(c *client, t topic, follow bool) error {
	if !follow {
		all := make([]int32, t.partitions)
		for i := range all {
			all[i] = int32(i)
		}
		return awaitServing(c, t, all)
	}
	led := map[string][]int32{}
	for index, address := range t.leaders {
		led[address] = append(led[address], int32(index))
	}
	for address, partitions := range led {
		leader, err := dial(address)
		if err != nil {
			return err
		}
		err = awaitServing(leader, t, partitions)
		leader.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// awaitServing asks for a byte of each of these partitions until none refuses: Kafka names a leader in Metadata a moment before
// that leader takes requests, and this generator counts a refusal as a failure.
func awaitServing(c *client, t topic, partitions []int32) error {
	layout := newFetchLayout(11)
	request := fetchRequest{maxBytes: 1, sessionEpoch: sessionlessEpoch}
	for _, index := range partitions {
		request.partitions = append(request.partitions, fetchPartition{index, 0, 1})
	}
	for deadline := time.Now().Add(topicTimeout); ; time.Sleep(50 * time.Millisecond) {
		answer, err := c.ask(layout.frame(t, &request))
		if err != nil {
			return err
		}
		_, err = layout.parse(answer, func(*fetched) error { return nil })
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

func deleteTopic(c *client, name string) error {
	e := newRequest(apiDeleteTopics, 6, true)
	e.array(1)
	e.string(name)
	e.uuid(uuid{})
	e.tags()
	e.int32(adminTimeoutMs)
	e.tags()
	answer, err := c.ask(e.finish())
	if err != nil {
		return err
	}
	d := newAnswer(answer, true)
	d.int32()
	d.array()
	_ = d.string()
	d.uuid()
	code, message := d.int16(), d.string()
	if d.err == nil && code != 0 && code != errorUnknownTopic {
		return fmt.Errorf("deleting %s: error %d %s", name, code, message)
	}
	return d.err
}
