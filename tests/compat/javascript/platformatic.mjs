// SPDX-License-Identifier: Apache-2.0
// @platformatic/kafka, unmodified: topics, records of every codec, groups of both protocols.
import assert from 'node:assert'
import zlib from 'node:zlib'
import { Admin, Consumer, ProduceAcks, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'
import { run, settings } from './steps.mjs'

const { topic } = settings
const sasl = settings.sasl && { mechanism: settings.sasl.mechanism.toUpperCase(), username: settings.sasl.username, password: settings.sasl.password }
const connection = { clientId: 'platformatic', bootstrapBrokers: settings.bootstrap.split(','), ...(sasl && { sasl }) }
const admin = new Admin(connection)
const codecs = ['none', 'gzip', 'snappy', 'lz4', ...(zlib.zstdCompressSync ? ['zstd'] : [])]

async function producing(options, send) {
  const producer = new Producer({ ...connection, serializers: stringSerializers, ...options })
  try {
    await send(producer)
  } finally {
    await producer.close()
  }
}

async function consume(group, count, options = {}) {
  const consumer = new Consumer({ ...connection, groupId: `${topic}-${group}`, deserializers: stringDeserializers, ...options })
  const stream = await consumer.consume({ topics: [topic], mode: 'earliest', sessionTimeout: 10_000, heartbeatInterval: 500 })
  const timer = setTimeout(() => stream.close(), 30_000)
  const found = []
  for await (const message of stream) {
    found.push(message)
    if (found.length === count) break
  }
  clearTimeout(timer)
  await consumer.close(true)
  assert.equal(found.length, count)
  return found
}

const steps = {
  topics: async () => {
    await admin.createTopics({ topics: [topic], partitions: 3, replicas: 1 })
    assert((await admin.listTopics()).includes(topic))
  },
  produce: () => producing({}, async producer => {
    for (const compression of codecs) {
      const messages = Array.from({ length: 10 }, (_, number) => ({ topic, key: `key-${number}`, value: `${compression}-${number}`, headers: { h: 'x' } }))
      await producer.send({ acks: ProduceAcks.ALL, compression, messages })
    }
  }),
  'idempotent producer': () => producing({ idempotent: true }, async producer => {
    for (let number = 0; number < 10; number++) {
      await producer.send({ messages: [{ topic, key: 'key', value: `idempotent-${number}`, headers: { h: 'x' } }] })
    }
  }),
  ...Object.fromEntries(['classic', 'consumer'].map(groupProtocol => [`group of the protocol ${groupProtocol}`, async () => {
    const found = await consume(groupProtocol, (codecs.length + 1) * 10, { groupProtocol })
    assert(found.every(each => each.headers.get('h') === 'x'))
    assert.equal(new Set(found.map(each => each.value)).size, found.length)
  }])),
  groups: async () => {
    const groups = await admin.describeGroups({ groups: [`${topic}-classic`] })
    assert.equal(groups.get(`${topic}-classic`).state, 'EMPTY')
  },
  'topics are deleted': async () => {
    await admin.deleteTopics({ topics: [topic] })
    assert(!(await admin.listTopics()).includes(topic))
  },
}

await run(steps)
await admin.close()
