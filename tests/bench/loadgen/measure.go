package main

import (
	"bytes"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

const clockTicksPerSecond = 100 // USER_HZ on every Linux that Go runs on

// result is what one run prints, as one line of JSON.
type result struct {
	Mode              string             `json:"mode"`
	Version           int                `json:"version"`
	Connections       int                `json:"connections"`
	Seconds           float64            `json:"seconds"`
	Requests          int                `json:"requests"`
	Records           int64              `json:"records"`
	Bytes             int64              `json:"bytes"`
	RequestsPerSecond float64            `json:"requests_per_s"`
	RecordsPerSecond  float64            `json:"records_per_s"`
	MegabytesPerS     float64            `json:"mb_per_s"`
	LatencyMs         map[string]float64 `json:"latency_ms"`
	LateMs            map[string]float64 `json:"late_ms,omitempty"` // how late an open loop itself sent
	CPUSeconds        float64            `json:"cpu_s"`
	CPUMicrosPerReq   float64            `json:"cpu_us_per_request"`
	CPUPercent        float64            `json:"cpu_percent"` // of one core
	Extra             map[string]float64 `json:"extra,omitempty"`
}

// tally is what one connection saw. It is private to its goroutine until the run is over.
type tally struct {
	latencies []time.Duration
	late      []time.Duration
	records   int64
	bytes     int64
}

func (t *tally) add(other *tally) {
	t.latencies = append(t.latencies, other.latencies...)
	t.late = append(t.late, other.late...)
	t.records += other.records
	t.bytes += other.bytes
}

func percentiles(values []time.Duration) map[string]float64 {
	if len(values) == 0 {
		return nil
	}
	sort.Slice(values, func(i, j int) bool { return values[i] < values[j] })
	at := func(share float64) float64 {
		return values[int(float64(len(values)-1)*share)].Seconds() * 1e3
	}
	var sum time.Duration
	for _, v := range values {
		sum += v
	}
	return map[string]float64{
		"mean": sum.Seconds() * 1e3 / float64(len(values)),
		"p50":  at(0.5), "p90": at(0.9), "p99": at(0.99), "p99.9": at(0.999), "max": at(1),
	}
}

// cpuSeconds is the user and system time of all these processes.
func cpuSeconds(pids []int) (sum float64) {
	for _, pid := range pids {
		sum += cpuSecondsOf(pid)
	}
	return sum
}

// cpuSecondsOf is that of a process, all its threads included.
func cpuSecondsOf(pid int) float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+2:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return float64(user+system) / clockTicksPerSecond
}

// worker is one connection's part of a run: it warms up, calls ready, and measures once ready returns.
type worker func(index int, ready func()) (*tally, error)

// measure runs the workers side by side. The clock starts when all are warm, and stops when the last is done.
func measure(options *options, run worker) (*result, error) {
	var warm, finished sync.WaitGroup
	start := make(chan struct{})
	tallies := make([]*tally, options.conns)
	failures := make(chan error, options.conns)
	warm.Add(options.conns)
	finished.Add(options.conns)
	for i := 0; i < options.conns; i++ {
		go func(i int) {
			defer finished.Done()
			var once sync.Once
			ready := func() {
				once.Do(warm.Done)
				<-start
			}
			own, err := run(i, ready)
			if err != nil {
				failures <- fmt.Errorf("connection %d: %w", i, err)
				once.Do(warm.Done)
			}
			tallies[i] = own
		}(i)
	}
	warm.Wait()
	cpuBefore, startedAt := cpuSeconds(options.pids), time.Now()
	close(start)
	finished.Wait()
	elapsed, cpu := time.Since(startedAt).Seconds(), cpuSeconds(options.pids)-cpuBefore
	select {
	case err := <-failures:
		return nil, err
	default:
	}
	return summarise(options, tallies, elapsed, cpu), nil
}

func summarise(options *options, tallies []*tally, elapsed, cpu float64) *result {
	var all tally
	for _, own := range tallies {
		all.add(own)
	}
	requests := len(all.latencies)
	return &result{
		Mode: options.mode, Version: options.version, Connections: options.conns,
		Seconds: elapsed, Requests: requests, Records: all.records, Bytes: all.bytes,
		RequestsPerSecond: float64(requests) / elapsed,
		RecordsPerSecond:  float64(all.records) / elapsed,
		MegabytesPerS:     float64(all.bytes) / elapsed / 1e6,
		LatencyMs:         percentiles(all.latencies),
		LateMs:            percentiles(all.late),
		CPUSeconds:        cpu,
		CPUMicrosPerReq:   cpu / float64(max(requests, 1)) * 1e6,
		CPUPercent:        cpu / elapsed * 100,
	}
}
