// SPDX-License-Identifier: Apache-2.0
// KafkaJS, unmodified: topics, records, groups, transactions, configs, as an application uses them.
import assert from 'node:assert'
import kafkajs from 'kafkajs'
import { run, settings, tell, until } from './steps.mjs'

const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = kafkajs
const { topic, sasl } = settings
const other = `${topic}-other`
const kafka = new Kafka({
  clientId: 'kafkajs', brokers: settings.bootstrap.split(','), logLevel: logLevel.NOTHING, ...(sasl && { sasl })
})
const admin = kafka.admin()

async function produce(messages, options = {}, to = topic) {
  const { acks, compression, ...rest } = options
  const producer = kafka.producer(rest)
  await producer.connect()
  await producer.send({ topic: to, acks, compression, messages })
  await producer.disconnect()
}

async function consume(group, from, count, options = {}) {
  const consumer = kafka.consumer({ groupId: `${topic}-${group}`, ...options })
  const found = []
  await consumer.connect()
  await consumer.subscribe({ topic: from, fromBeginning: true })
  await consumer.run({ eachMessage: async ({ partition, message }) => { found.push({ partition, ...message }) } })
  await until(() => found.length >= count, `${count} records of ${from}, ${found.length} came`)
  await consumer.disconnect()
  return found
}

const texts = count => Array.from({ length: count }, (_, number) => ({ key: `key-${number}`, value: `value-${number}`, headers: { h: 'x' } }))

const steps = {
  topics: async () => {
    assert(await admin.createTopics({ topics: [{ topic, numPartitions: 3 }, { topic: other, numPartitions: 1 }] }))
    assert((await admin.listTopics()).includes(topic))
    await admin.createPartitions({ topicPartitions: [{ topic: other, count: 2 }] })
    assert.equal((await admin.fetchTopicMetadata({ topics: [other] })).topics[0].partitions.length, 2)
  },
  produce: async () => {
    for (const acks of [-1, 1, 0]) await produce(texts(10), { acks })
    await produce(texts(10), { compression: CompressionTypes.GZIP })
    await produce(texts(10), { idempotent: true, maxInFlightRequests: 1 })
  },
  consume: async () => {
    const found = await consume('first', topic, 50)
    assert.deepEqual(new Set(found.map(each => each.value.toString())), new Set(texts(10).map(each => each.value)))
    assert(found.every(each => each.headers.h.toString() === 'x'))
  },
  offsets: async () => {
    const ends = await admin.fetchTopicOffsets(topic)
    assert.equal(ends.reduce((sum, each) => sum + Number(each.high), 0), 50)
    await admin.fetchTopicOffsetsByTimestamp(topic, Date.now() - 60_000)
    const [committed] = await admin.fetchOffsets({ groupId: `${topic}-first`, topics: [topic] })
    assert.equal(committed.partitions.reduce((sum, each) => sum + Math.max(0, Number(each.offset)), 0), 50)
    await admin.resetOffsets({ groupId: `${topic}-first`, topic, earliest: true })
    await admin.setOffsets({ groupId: `${topic}-first`, topic, partitions: [{ partition: 0, offset: '1' }] })
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '2' }] })
  },
  groups: async () => {
    const { groups: [group] } = await admin.describeGroups([`${topic}-first`])
    assert.equal(group.state, 'Empty')
    assert((await admin.listGroups()).groups.some(each => each.groupId === `${topic}-first`))
    await admin.deleteGroups([`${topic}-first`])
  },
  configs: async () => {
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
    await admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries: [{ name: 'retention.ms', value: '86400000' }] }] })
    const { resources: [described] } = await admin.describeConfigs({ includeSynonyms: true, resources: [resource] })
    assert.equal(described.configEntries.find(each => each.configName === 'retention.ms').configValue, '86400000')
  },
  transactions: async () => {
    const producer = kafka.producer({ transactionalId: topic, idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    const aborted = await producer.transaction()
    await aborted.send({ topic: other, messages: [{ value: 'aborted' }] })
    await aborted.abort()
    const committed = await producer.transaction()
    await committed.send({ topic: other, messages: [{ value: 'committed' }] })
    await committed.sendOffsets({ consumerGroupId: `${topic}-copies`, topics: [{ topic, partitions: [{ partition: 1, offset: '3' }] }] })
    await committed.commit()
    await producer.disconnect()
    const found = await consume('committed', other, 1, { readUncommitted: false })
    assert.deepEqual(found.map(each => each.value.toString()), ['committed'])
    const [{ partitions }] = await admin.fetchOffsets({ groupId: `${topic}-copies`, topics: [topic] })
    assert.equal(partitions.find(each => each.partition === 1).offset, '3')
  },
  'two members share': async () => {
    const shares = [[], []]
    const members = shares.map((_, number) => {
      const member = kafka.consumer({ groupId: `${topic}-shared`, heartbeatInterval: 500 })
      member.on(member.events.GROUP_JOIN, event => { shares[number] = event.payload.memberAssignment[topic] ?? [] })
      return member
    })
    for (const member of members) {
      await member.connect()
      await member.subscribe({ topic })
      await member.run({ eachMessage: async () => {} })
    }
    await until(() => shares[0].length && shares[1].length && shares[0].length + shares[1].length === 3, 'a share for each')
    for (const member of members) await member.disconnect()
  },
  'seek, pause, commit': async () => {
    const consumer = kafka.consumer({ groupId: `${topic}-seeks` })
    const offsets = []
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    await consumer.run({ autoCommit: false, eachMessage: async ({ partition, message }) => {
      if (partition !== 1) return
      offsets.push(message.offset)
      await consumer.commitOffsets([{ topic, partition, offset: String(Number(message.offset) + 1) }])
    } })
    await until(() => offsets.length > 2, 'records of partition 1')
    consumer.pause([{ topic }])
    consumer.resume([{ topic }])
    const before = offsets.length
    consumer.seek({ topic, partition: 1, offset: '0' })
    await until(() => offsets.slice(before).includes('0'), 'the record at offset 0 again')
    await consumer.disconnect()
  },
  'an unknown topic is refused': async () => {
    const producer = kafka.producer({ allowAutoTopicCreation: false, retry: { retries: 1 } })
    await producer.connect()
    await assert.rejects(producer.send({ topic: `${topic}-none`, messages: [{ value: 'x' }] }), /does not host this topic-partition/)
    await producer.disconnect()
  },
  'topics are deleted': async () => {
    await admin.deleteTopics({ topics: [topic, other] })
    assert(!(await admin.listTopics()).includes(topic))
  },
}

// Each record is acknowledged before the next is sent, whatever happens to the nodes; then all are read.
const load = {
  load: async () => {
    await admin.createTopics({ topics: [{ topic, numPartitions: 1, replicationFactor: 3 }] })
    const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, retry: { retries: 20, maxRetryTime: 1000 } })
    await producer.connect()
    for (let number = 0; number < settings.count; number++) {
      await producer.send({ topic, acks: -1, messages: [{ value: String(number) }] })
      tell(number)
    }
    await producer.disconnect()
    const found = await consume('load', topic, settings.count)
    assert.deepEqual(found.map(each => Number(each.value)), [...Array(settings.count).keys()])
  },
}

await admin.connect()
await run(settings.mode === 'load' ? load : steps)
await admin.disconnect()
