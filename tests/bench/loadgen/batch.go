package main

import (
	"hash/crc32"
)

const (
	batchHeaderSize = 61
	logOverhead     = 12 // base offset and batch length, which the length does not count
	lastDeltaAt     = 23
	batchLengthAt   = 8
	crcCoversFrom   = 21
	crcAt           = 17
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// buildBatch makes one record batch v2, uncompressed, without producer id: count records of valueBytes each.
func buildBatch(count, valueBytes int, timestampMs int64) []byte {
	value := make([]byte, valueBytes)
	for i := range value {
		value[i] = byte('a' + i%26)
	}
	e := &encoder{}
	e.int64(0)  // base offset: the broker stamps it
	e.int32(0)  // batch length, below
	e.int32(-1) // partition leader epoch: the broker stamps it
	e.int8(2)   // magic
	e.int32(0)  // CRC, below
	e.int16(0)  // attributes
	e.int32(int32(count - 1))
	e.int64(timestampMs)
	e.int64(timestampMs)
	e.int64(-1) // producer id
	e.int16(-1)
	e.int32(-1)
	e.int32(int32(count))
	for i := 0; i < count; i++ {
		record := &encoder{}
		record.int8(0)
		record.varint(0)
		record.varint(int64(i))
		record.varint(-1) // null key
		record.varint(int64(valueBytes))
		record.raw(value)
		record.varint(0) // no headers
		e.varint(int64(len(record.b)))
		e.raw(record.b)
	}
	bigEndian.PutUint32(e.b[batchLengthAt:], uint32(len(e.b)-logOverhead))
	bigEndian.PutUint32(e.b[crcAt:], crc32.Checksum(e.b[crcCoversFrom:], castagnoli))
	return e.b
}

// walkBatches reads the batch headers of fetched bytes: how many records there are, and the offset after them (-1
// without any). A fetch may end in a part of a batch: that one is not counted.
func walkBatches(records []byte) (next int64, recordCount int) {
	next = -1
	for len(records) >= batchHeaderSize {
		size := int(bigEndian.Uint32(records[batchLengthAt:])) + logOverhead
		if size < batchHeaderSize || size > len(records) {
			break
		}
		next = int64(bigEndian.Uint64(records)) + int64(bigEndian.Uint32(records[lastDeltaAt:])) + 1
		recordCount += int(bigEndian.Uint32(records[batchHeaderSize-4:]))
		records = records[size:]
	}
	return next, recordCount
}

// batchesAreWhole also checks each CRC and that offsets follow each other: slow, for -verify.
func batchesAreWhole(records []byte, from int64) bool {
	for len(records) >= batchHeaderSize {
		size := int(bigEndian.Uint32(records[batchLengthAt:])) + logOverhead
		if size < batchHeaderSize || size > len(records) {
			return true
		}
		base := int64(bigEndian.Uint64(records))
		next := base + int64(bigEndian.Uint32(records[lastDeltaAt:])) + 1
		if next <= from || (base > from) {
			return false
		}
		if crc32.Checksum(records[crcCoversFrom:size], castagnoli) != bigEndian.Uint32(records[crcAt:]) {
			return false
		}
		from = next
		records = records[size:]
	}
	return true
}
