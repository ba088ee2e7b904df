// SPDX-License-Identifier: Apache-2.0
// Where an offset of a partition lies in its lane, from 0 to 1. All lanes of a topic have the same length in records,
// so that long and short logs compare, and a log grows to the right until the next round length.
const ROUND = [1, 1.5, 2, 3, 5, 7.5, 10];
const SHORTEST = 10;

export function roundUp(value) {
  const wanted = Math.max(value, SHORTEST);
  const power = 10 ** Math.floor(Math.log10(wanted));
  return ROUND.find((step) => step * power >= wanted) * power;
}

const clamp = (value) => Math.min(1, Math.max(0, value));

const lagsOf = (partitions) =>
  partitions.flatMap((each) => each.readers.map((reader) => each.end - (reader.committed ?? reader.position ?? each.end)));

// The whole log of each partition, from its start.
function whole(partitions) {
  const length = roundUp(Math.max(0, ...partitions.map((each) => (each.end ?? 0) - (each.start ?? 0))));
  return (partition) => (offset) => clamp((offset - (partition.start ?? 0)) / length);
}

// The newest records of each: as many as it takes to see what the groups are behind.
function newest(partitions) {
  const length = roundUp(Math.max(100, ...lagsOf(partitions)) * 1.3);
  const step = length / 4;
  return (partition) => {
    const right = (Math.floor((partition.end ?? 0) / step) + 1) * step;
    return (offset) => clamp((offset - (right - length)) / length);
  };
}

export const scaleOf = (mode, partitions) => (mode === "newest" ? newest : whole)(partitions);
