package main

// Kafka's primitive types, just enough of them to speak the nine requests below by hand.

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	apiProduce      = 0
	apiFetch        = 1
	apiMetadata     = 3
	apiCreateTopics = 19
	apiDeleteTopics = 20

	// correlationAt is where a prebuilt frame holds its correlation id: after length, key and version.
	correlationAt = 8
)

var bigEndian = binary.BigEndian

type uuid [16]byte

// encoder appends to b. flexible chooses the compact forms and the tagged-field sections.
type encoder struct {
	b        []byte
	flexible bool
}

func (e *encoder) int8(v int8)    { e.b = append(e.b, byte(v)) }
func (e *encoder) int16(v int16)  { e.b = bigEndian.AppendUint16(e.b, uint16(v)) }
func (e *encoder) int32(v int32)  { e.b = bigEndian.AppendUint32(e.b, uint32(v)) }
func (e *encoder) int64(v int64)  { e.b = bigEndian.AppendUint64(e.b, uint64(v)) }
func (e *encoder) uvarint(v int)  { e.b = binary.AppendUvarint(e.b, uint64(v)) }
func (e *encoder) raw(v []byte)   { e.b = append(e.b, v...) }
func (e *encoder) uuid(v uuid)    { e.b = append(e.b, v[:]...) }
func (e *encoder) varint(v int64) { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) boolean(v bool) { e.b = append(e.b, map[bool]byte{true: 1}[v]) }

func (e *encoder) tags() {
	if e.flexible {
		e.b = append(e.b, 0)
	}
}

func (e *encoder) array(n int) {
	if e.flexible {
		e.uvarint(n + 1)
	} else {
		e.int32(int32(n))
	}
}

func (e *encoder) string(s string) {
	if e.flexible {
		e.uvarint(len(s) + 1)
	} else {
		e.int16(int16(len(s)))
	}
	e.b = append(e.b, s...)
}

func (e *encoder) null() {
	if e.flexible {
		e.b = append(e.b, 0)
	} else {
		e.int16(-1)
	}
}

func (e *encoder) records(v []byte) {
	if e.flexible {
		e.uvarint(len(v) + 1)
	} else {
		e.int32(int32(len(v)))
	}
	e.raw(v)
}

// newRequest starts a frame: length to be filled in by finish, then request header v1, or v2 when flexible.
func newRequest(api, version int16, flexible bool) *encoder {
	e := &encoder{flexible: flexible}
	e.int32(0)
	e.int16(api)
	e.int16(version)
	e.int32(0)
	e.int16(int16(len("loadgen"))) // the client id keeps its classic form in header v2
	e.raw([]byte("loadgen"))
	e.tags()
	return e
}

func (e *encoder) finish() []byte {
	bigEndian.PutUint32(e.b, uint32(len(e.b)-4))
	return e.b
}

var errShort = errors.New("answer ends too early")

// decoder reads from b; the first fault sticks, so that callers check err once.
type decoder struct {
	b        []byte
	flexible bool
	err      error
}

func (d *decoder) take(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.b) {
		if d.err == nil {
			d.err = errShort
		}
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) int8() int8 {
	if v := d.take(1); v != nil {
		return int8(v[0])
	}
	return 0
}

func (d *decoder) int16() int16 {
	if v := d.take(2); v != nil {
		return int16(bigEndian.Uint16(v))
	}
	return 0
}

func (d *decoder) int32() int32 {
	if v := d.take(4); v != nil {
		return int32(bigEndian.Uint32(v))
	}
	return 0
}

func (d *decoder) int64() int64 {
	if v := d.take(8); v != nil {
		return int64(bigEndian.Uint64(v))
	}
	return 0
}

func (d *decoder) uuid() (out uuid) {
	copy(out[:], d.take(16))
	return out
}

func (d *decoder) uvarint() int {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > 1<<31 {
		if d.err == nil {
			d.err = errShort
		}
		return 0
	}
	d.take(n)
	return int(v)
}

// array returns the element count, -1 for null.
func (d *decoder) array() int {
	if d.flexible {
		return d.uvarint() - 1
	}
	return int(d.int32())
}

func (d *decoder) string() string {
	n := 0
	if d.flexible {
		n = d.uvarint() - 1
	} else {
		n = int(d.int16())
	}
	if n < 0 {
		return ""
	}
	return string(d.take(n))
}

func (d *decoder) records() []byte {
	n := d.array() // the same length rule as an array
	if n < 0 {
		return nil
	}
	return d.take(n)
}

func (d *decoder) tags() {
	if !d.flexible {
		return
	}
	for n := d.uvarint(); n > 0 && d.err == nil; n-- {
		d.uvarint()
		d.take(d.uvarint())
	}
}

// end demands that everything was read: a broker that appends bytes speaks another version.
func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.err = fmt.Errorf("%d bytes left after the answer", len(d.b))
	}
	return d.err
}

// newAnswer skips response header v0, or v1 when flexible. The correlation id was checked by the reader.
func newAnswer(frame []byte, flexible bool) *decoder {
	d := &decoder{b: frame, flexible: flexible}
	d.int32()
	d.tags()
	return d
}
