// kafkajs as a judge: the same flags and lines as the programs in ../golang (lines/lines.go).
'use strict'

const { randomUUID } = require('node:crypto')
const { parseArgs } = require('node:util')
const { Kafka, CompressionCodecs, CompressionTypes, logLevel } = require('kafkajs')
const lz4 = require('lz4js')
const snappy = require('snappyjs')
const { ZstdCodec } = require('zstd-codec')

const XERIAL = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0])

function uncompressSnappy(data) {
  if (!data.subarray(0, 8).equals(XERIAL)) return snappy.uncompress(data)
  const parts = []
  for (let at = 16; at < data.length; ) {
    const size = data.readInt32BE(at)
    parts.push(snappy.uncompress(data.subarray(at + 4, at + 4 + size)))
    at += 4 + size
  }
  return Buffer.concat(parts)
}

const zstd = new Promise((resolve) => ZstdCodec.run((codec) => resolve(codec)))

CompressionCodecs[CompressionTypes.Snappy] = () => ({
  compress: async (encoder) => snappy.compress(encoder.buffer),
  decompress: async (data) => uncompressSnappy(data),
})
// lz4js says of its blocks (of 4 MiB) that they depend on one another, and brokers refuse those; of
// a single block that is not true, so its header says the other thing, with the checksum of that.
function compressLz4(data) {
  const frame = Buffer.from(lz4.compress(data))
  frame[4] = 0x60
  frame[6] = 0x73
  return frame
}

CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => compressLz4(encoder.buffer),
  decompress: async (data) => Buffer.from(lz4.decompress(data)),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => {
    const { Simple } = await zstd
    return Buffer.from(new Simple().compress(encoder.buffer))
  },
  // Not every frame tells its content's size, and Simple needs that.
  decompress: async (data) => {
    const { Streaming } = await zstd
    return Buffer.from(new Streaming().decompress(data))
  },
})

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    bootstrap: { type: 'string' },
    topic: { type: 'string' },
    partition: { type: 'string', default: '0' },
    start: { type: 'string', default: '0' },
    count: { type: 'string', default: '1' },
    codec: { type: 'string', default: 'none' },
    acks: { type: 'string', default: 'all' },
    idempotent: { type: 'boolean', default: false },
    group: { type: 'string' },
    session: { type: 'string', default: '10000' },
    reset: { type: 'string', default: 'earliest' },
    balancer: { type: 'string' },
    'auto-create': { type: 'boolean', default: false },
  },
})

const kafka = new Kafka({
  clientId: 'kafkajs',
  brokers: [flags.bootstrap],
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 100 },
})

const bytes = (text) => (text === null || text === undefined ? null : Buffer.from(text, 'base64'))
const text = (data) => (data === null || data === undefined ? null : data.toString('base64'))
const print = (value) => process.stdout.write(JSON.stringify(value) + '\n')

function headersIn(list) {
  const headers = {}
  for (const { name, value } of list || []) (headers[name] ||= []).push(bytes(value))
  return headers
}

function headersOut(headers) {
  return Object.entries(headers || {}).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map((one) => ({ name, value: text(one) })),
  )
}

function shown(event, topic, partition, message) {
  return {
    event,
    topic,
    partition,
    offset: Number(message.offset),
    key: text(message.key),
    value: text(message.value),
    headers: headersOut(message.headers),
    timestamp: Number(message.timestamp),
  }
}

async function readLines() {
  const chunks = []
  for await (const chunk of process.stdin) chunks.push(chunk)
  const lines = Buffer.concat(chunks).toString().split('\n').filter(Boolean)
  return lines.map((line) => ({ partition: Number(flags.partition), ...JSON.parse(line) }))
}

async function produce() {
  const producer = kafka.producer({
    idempotent: flags.idempotent,
    allowAutoTopicCreation: flags['auto-create'],
    createPartitioner: () => ({ message }) => message.partition,
  })
  await producer.connect()
  const byTopic = new Map()
  for (const record of await readLines()) {
    const topic = record.topic || flags.topic
    if (!byTopic.has(topic)) byTopic.set(topic, [])
    byTopic.get(topic).push(record)
  }
  const answers = await producer.sendBatch({
    acks: { 0: 0, 1: 1, all: -1 }[flags.acks],
    compression: CODECS[flags.codec],
    topicMessages: [...byTopic].map(([topic, records]) => ({
      topic,
      messages: records.map((record) => ({
        key: bytes(record.key),
        value: bytes(record.value),
        headers: headersIn(record.headers),
        partition: record.partition,
        timestamp: String(record.timestamp),
      })),
    })),
  })
  const next = new Map()
  for (const answer of answers) {
    const base = flags.acks === '0' ? -1 : Number(answer.baseOffset)
    next.set(`${answer.topicName} ${answer.partition}`, base)
  }
  for (const [topic, records] of byTopic) {
    for (const { partition } of records) {
      const which = `${topic} ${partition}`
      const offset = next.has(which) ? next.get(which) : -1
      if (offset >= 0) next.set(which, offset + 1)
      print({ topic, partition, offset })
    }
  }
  await producer.disconnect()
}

async function fetch() {
  // kafkajs has no reading without a group.
  const consumer = kafka.consumer({ groupId: randomUUID(), maxWaitTimeInMs: 200 })
  const partition = Number(flags.partition)
  let left = Number(flags.count)
  await consumer.connect()
  await consumer.subscribe({ topic: flags.topic, fromBeginning: true })
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`${left} records did not come`)), 30000).unref()
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    consumer
      .run({
        autoCommit: false,
        eachMessage: async ({ topic, partition: from, message }) => {
          if (from !== partition || Number(message.offset) < Number(flags.start) || left <= 0) return
          print(shown(undefined, topic, from, message))
          if (--left === 0) resolve()
        },
      })
      .catch(reject)
    consumer.seek({ topic: flags.topic, partition, offset: flags.start })
  })
  await consumer.disconnect()
}

async function member() {
  const consumer = kafka.consumer({
    groupId: flags.group,
    sessionTimeout: Number(flags.session),
    heartbeatInterval: Number(flags.session) / 10,
    rebalanceTimeout: 20000,
    maxWaitTimeInMs: 200,
    metadataMaxAge: 1000,
    allowAutoTopicCreation: flags['auto-create'],
  })
  let owned = []
  const revoke = () => {
    if (owned.length) print({ event: 'revoked', partitions: owned })
    owned = []
  }
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    revoke()
    owned = payload.memberAssignment[flags.topic] || []
    print({ event: 'assigned', partitions: owned })
  })
  consumer.on(consumer.events.REBALANCING, revoke)
  consumer.on(consumer.events.STOP, revoke)
  const stop = async () => {
    await consumer.disconnect()
    process.exit(0)
  }
  process.on('SIGTERM', stop)
  await consumer.connect()
  await consumer.subscribe({ topic: flags.topic, fromBeginning: flags.reset === 'earliest' })
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat, isRunning, isStale }) => {
      if (!isRunning() || isStale()) return
      for (const message of batch.messages) {
        print(shown('record', batch.topic, batch.partition, message))
        resolveOffset(message.offset)
      }
      await heartbeat()
      const offset = Number(batch.lastOffset()) + 1
      await consumer.commitOffsets([
        { topic: batch.topic, partition: batch.partition, offset: String(offset) },
      ])
      print({ event: 'committed', offsets: { [batch.partition]: offset } })
    },
  })
}

const commands = { produce, fetch, member }
commands[positionals[0]]().catch((error) => {
  console.error(error)
  process.exit(1)
})
