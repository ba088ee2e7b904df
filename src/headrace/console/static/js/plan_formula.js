// SPDX-License-Identifier: Apache-2.0
// How many consumers and partitions a stream needs: the same sum as src/headrace/client/planning/capacity.py, for the
// sliders. A test has both work out the same cases. Rates are records/s, durations milliseconds; figures are
// {value, …} or null.
const MOST_TIMES = 4;
const MOST_TRIED = 10_000;
const UNEVEN = 1.5;
const CLOSE = 1e-9;

export function makePlan(situation) {
  const [produce, consume] = [situation.produce_rate.value, situation.consume_rate.value];
  const needed = consumersNeeded(produce, consume);
  const spare = Math.floor(produce / consume + CLOSE) + 2;
  const partitions = partitionsFor(situation, spare);
  const counts = new Set([needed, spare]);
  if (situation.consumers) counts.add(situation.consumers);
  return {
    consumers: needed,
    consumers_with_spare: spare,
    partitions,
    choices: [...counts].sort((a, b) => a - b).map((count) => choice(situation, count)),
    limits: limits(situation, needed, partitions),
  };
}

export const consumersNeeded = (produce, consume) => Math.max(1, Math.ceil(produce / consume - CLOSE));

function partitionsFor(situation, consumers) {
  const lowest = Math.max(situation.partitions, Math.ceil(consumers * situation.headroom.value - CLOSE));
  let fair = Math.ceil(lowest / consumers) * consumers;
  for (let count = lowest; count < Math.min(lowest * MOST_TIMES, lowest + MOST_TRIED); count += 1) {
    if (!bearable(situation, count, consumers)) continue;
    fair = Math.min(fair, count);
    if (bearable(situation, count, consumers - 1)) return count;
  }
  return fair;
}

// Whether the consumer with most partitions is fast enough for them, when all get as many records.
function bearable(situation, partitions, consumers) {
  const largestShare = Math.ceil(partitions / consumers) / partitions;
  return largestShare * situation.produce_rate.value <= situation.consume_rate.value * (1 + CLOSE);
}

export function choice(situation, consumers) {
  const [produce, consume] = [situation.produce_rate.value, situation.consume_rate.value];
  return { consumers, load: produce / (consumers * consume), consumer_dies: consumerDies(situation, consumers), node_dies: nodeDies(situation, consumers) };
}

function consumerDies(situation, consumers) {
  const [produce, consume] = [situation.produce_rate.value, situation.consume_rate.value];
  const rebalance = situation.rebalance_ms?.value ?? 0;
  const session = situation.session_timeout_ms.value;
  const waiting = (produce * session) / 1000 / consumers + (produce * rebalance) / 1000;
  return outage(waiting, session + rebalance, (consumers - 1) * consume - produce);
}

function nodeDies(situation, consumers) {
  if (!situation.node_down_ms) return null;
  const [produce, down] = [situation.produce_rate.value, situation.node_down_ms.value];
  return outage((produce * situation.node_share * down) / 1000, down, consumers * situation.consume_rate.value - produce);
}

const outage = (waiting, stopped, spareRate) => ({
  lag: Math.ceil(waiting - CLOSE),
  caught_up_ms: spareRate > CLOSE ? roundHalfEven(stopped + (waiting / spareRate) * 1000) : null,
});

// As Python rounds.
function roundHalfEven(value) {
  const below = Math.floor(value);
  const rest = value - below;
  if (rest !== 0.5) return Math.round(value);
  return below % 2 === 0 ? below : below + 1;
}

const whole = (value) => roundHalfEven(value).toLocaleString("en");
const counted = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

function limits(situation, consumers, partitions) {
  const found = [];
  const [busiest, consume, produce] = [situation.busiest_partition_rate, situation.consume_rate.value, situation.produce_rate.value];
  if (busiest !== null && busiest > consume && busiest > (produce / situation.partitions) * UNEVEN) {
    found.push(`one partition alone gets ${whole(busiest)} of ${whole(produce)} records/s, more than one consumer did (${whole(consume)}): more consumers do not help, spread the keys better`);
  }
  if (consumers > situation.partitions) {
    found.push(`the topic has ${counted(situation.partitions, "partition")}, so only as many consumers can work: headrace topics alter ${situation.topic} --partitions ${partitions}`);
  }
  const now = situation.consumers;
  if (now !== null && now < Math.min(consumers, situation.partitions)) {
    found.push(`the group has ${counted(now, "consumer")}, and the producers need ${consumers}`);
  }
  return found.length ? found : ["one consumer's own speed: the faster it is, the fewer are needed"];
}
