# SPDX-License-Identifier: Apache-2.0
"""Illegal orders of calls of transactional producers: the same requests to Apache Kafka and to a live node.

Every request in every version: the codes are equal, or listed in DIFFERENT with the reason.
CONCURRENT_TRANSACTIONS is asked again, as clients do: which of two requests meets it is a matter of time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from headrace.cluster.engines.kafka import KafkaEngine
from headrace.machines.transactions.events import Producer
from tests.compat.transaction_client import (
    ADD_OFFSETS_VERSIONS,
    ADD_VERSIONS,
    BATCHED_VERSIONS,
    COMMIT_VERSIONS,
    END_VERSIONS,
    INIT_VERSIONS,
    MARKER_VERSIONS,
    OFFSETS_PARTITIONS,
    OTHER,
    PARTITIONS,
    PRODUCE_VERSIONS,
    TOPIC,
    Broker,
)
from tests.harness.live.node import NodeProcess

pytestmark = pytest.mark.compat_jvm

SETTINGS = {
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "transaction.state.log.num.partitions": "2",
}
KAFKA = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
"""How often Apache Kafka looks for transactions that are open for too long."""
BRIEF_MS = 1_000
EVERY_ADD = (*ADD_VERSIONS, *BATCHED_VERSIONS)
OLD_END, NEW_END = 4, 5
NOBODY = Producer(999_999, 0)

Answers = Iterator[tuple[str, str]]
"""What was asked, and the code."""
Case = Callable[[Broker], Answers]

_FENCED = (
    "the coordinator raised the epoch of an older client: its producer is fenced, and must not get the new "
    "epoch by repeating an abort (machines/transactions/ends.py)"
)
_NO_PRODUCER = (
    "a transactional batch without a producer id would belong to no transaction, and be read as committed: "
    "Apache Kafka stores it"
)
DIFFERENT = {
    **{("no_producer", f"Produce {version}"): _NO_PRODUCER for version in PRODUCE_VERSIONS},
    ("timed_out", "EndTxn 5 commit"): _FENCED,
    ("timed_out", "EndTxn 5 abort"): _FENCED,
}
"""By case and question: why our code is another one."""


def everything(broker: Broker, name: str, producer: Producer, group: str) -> Answers:
    """Every request of a producer in every version, for one that should be refused; changes nothing then."""
    for version in EVERY_ADD:
        yield f"AddPartitionsToTxn {version}", broker.add(name, producer, version=version)
    for version in BATCHED_VERSIONS:
        yield f"verify {version}", broker.add(name, producer, version=version, verify_only=True)
    for version in ADD_OFFSETS_VERSIONS:
        yield f"AddOffsetsToTxn {version}", broker.add_offsets(name, producer, group, version=version)
    for version in COMMIT_VERSIONS:
        yield f"TxnOffsetCommit {version}", broker.commit(name, producer, group, version=version)
    for version in PRODUCE_VERSIONS:
        yield f"Produce {version}", broker.produce(name, producer, version=version)
    for version in END_VERSIONS:
        for committed in (True, False):
            what = "commit" if committed else "abort"
            yield f"EndTxn {version} {what}", broker.end(name, producer, committed=committed, version=version)


# -- producers that the coordinator does not know ------------------------------------------------------------


def before_init(broker: Broker) -> Answers:
    yield from everything(broker, broker.new_id(), NOBODY, broker.new_group())


def no_producer(broker: Broker) -> Answers:
    name = broker.new_id()
    broker.producer(name)
    yield from everything(broker, name, Producer(-1, -1), broker.new_group())


def wrong_producer_id(broker: Broker) -> Answers:
    name = broker.new_id()
    producer = broker.producer(name)
    yield from everything(broker, name, NOBODY._replace(epoch=producer.epoch), broker.new_group())


def stale_epoch(broker: Broker) -> Answers:
    name = broker.new_id()
    stale = broker.producer(name)
    broker.producer(name)
    yield from everything(broker, name, stale, broker.new_group())


def future_epoch(broker: Broker) -> Answers:
    name = broker.new_id()
    producer = broker.producer(name)
    yield from everything(broker, name, producer._replace(epoch=producer.epoch + 1), broker.new_group())


def id_of_another(broker: Broker) -> Answers:
    broker.producer(broker.new_id())
    mine = broker.producer(broker.new_id())
    theirs = broker.new_id()
    broker.producer(theirs)
    yield from everything(broker, theirs, mine, broker.new_group())


def empty_id(broker: Broker) -> Answers:
    producer, group = broker.producer(broker.new_id()), broker.new_group()
    for version in INIT_VERSIONS:
        yield f"InitProducerId {version}", broker.init("", version=version).error
    yield from everything(broker, "", producer, group)
    yield "DescribeTransactions", broker.describe("")[0]


def fenced_while_open(broker: Broker) -> Answers:
    name, group = broker.new_id(), broker.new_group()
    stale = broker.producer(name)
    yield "add", broker.add(name, stale)
    yield "produce", broker.produce(name, stale)
    broker.producer(name)
    yield "state", broker.settle(name)
    yield from everything(broker, name, stale, group)


def timed_out(broker: Broker) -> Answers:
    name, group = broker.new_id(), broker.new_group()
    error, producer = broker.init(name, timeout_ms=BRIEF_MS)
    assert error == "none"
    yield "add", broker.add(name, producer)
    yield "produce", broker.produce(name, producer)
    yield "state", broker.until_aborted(name)
    yield from everything(broker, name, producer, group)


def timed_out_by_kip_890(broker: Broker) -> Answers:
    name = broker.new_id()
    error, producer = broker.init(name, timeout_ms=BRIEF_MS)
    assert error == "none"
    yield "Produce 12", broker.produce(name, producer, version=12)
    yield "state", broker.until_aborted(name)
    yield "late Produce 12", broker.produce(name, producer, version=12, sequence=1)
    yield "EndTxn 5 commit", broker.end(name, producer, version=NEW_END)
    yield "EndTxn 5 abort", broker.end(name, producer, committed=False, version=NEW_END)


# -- InitProducerId ------------------------------------------------------------------------------------------


def timeouts(broker: Broker) -> Answers:
    for timeout_ms in (-1, 0, 1, 900_000, 900_001, 2_147_483_647):
        for version in INIT_VERSIONS:
            found = broker.init(broker.new_id(), version=version, timeout_ms=timeout_ms)
            yield f"{timeout_ms} ms, InitProducerId {version}", f"{found.error} {found.producer.epoch}"


def expected_producers(broker: Broker) -> Answers:
    """KIP-360: a producer goes on after an error."""
    for version in INIT_VERSIONS[3:]:
        for what, change in {
            "half: no epoch": lambda known: known._replace(epoch=-1),
            "half: no id": lambda known: known._replace(producer_id=-1),
            "present": lambda known: known,
            "epoch before": lambda known: known._replace(epoch=known.epoch - 1),
            "next epoch": lambda known: known._replace(epoch=known.epoch + 1),
            "another id": lambda known: NOBODY._replace(epoch=known.epoch),
            "negative": lambda known: Producer(-5, -5),
        }.items():
            name = broker.new_id()
            for _ in range(3):
                known = broker.producer(name)
            found = broker.init(name, version=version, expected=change(known))
            yield f"{what}, InitProducerId {version}", f"{found.error} {found.producer.epoch}"
        found = broker.init(broker.new_id(), version=version, expected=NOBODY)
        yield f"unknown id, InitProducerId {version}", f"{found.error} {found.producer.epoch}"


def repeated_init(broker: Broker) -> Answers:
    """The answer was lost: the same question gets the same answer, once the producer was known."""
    name = broker.new_id()
    known = broker.producer(name)
    first = broker.init(name, expected=known)
    again = broker.init(name, expected=known)
    yield "first", f"{first.error} {first.producer.epoch}"
    yield "again", f"{again.error} {again.producer.epoch}"
    third = broker.init(name)
    late = broker.init(name, expected=known)
    yield "another one", f"{third.error} {third.producer.epoch}"
    yield "late", f"{late.error} {late.producer.epoch}"


def init_while_open(broker: Broker) -> Answers:
    for version in INIT_VERSIONS:
        name = broker.new_id()
        producer = broker.producer(name)
        broker.add(name, producer)
        found = broker.init(name, version=version)
        yield f"InitProducerId {version}", f"{found.error} {found.producer.epoch} {broker.settle(name)}"


# -- AddPartitionsToTxn --------------------------------------------------------------------------------------


def unknown_partitions(broker: Broker) -> Answers:
    name = broker.new_id()
    producer = broker.producer(name)
    for version in EVERY_ADD:
        for what, partitions in {
            "unknown topic": [("no-such-topic", 0)],
            "too high": [(TOPIC, PARTITIONS)],
            "negative": [(TOPIC, -1)],
            "offsets": [("__consumer_offsets", 0)],
            "transactions": [("__transaction_state", 0)],
            "empty name": [("", 0)],
            "mixed": [(TOPIC, 0), ("no-such-topic", 0), (OTHER, PARTITIONS), (OTHER, 1)],
            "mixed with internal": [("__consumer_offsets", 0), (TOPIC, 1), ("no-such-topic", 0)],
        }.items():
            if what == "offsets" and version in BATCHED_VERSIONS:
                continue  # from the group's coordinator: allowed, and tested by commits
            if what == "transactions" and version in BATCHED_VERSIONS:
                continue  # would be added
            yield f"{what} {version}", broker.add(name, producer, partitions, version=version)
    yield "state", " ".join(broker.describe(name))


def repeated_partitions(broker: Broker) -> Answers:
    for version in EVERY_ADD:
        name = broker.new_id()
        producer = broker.producer(name)
        twice = [(TOPIC, 0), (TOPIC, 1), (TOPIC, 0)]
        yield f"twice {version}", broker.add(name, producer, twice, version=version)
        yield f"again {version}", broker.add(name, producer, twice, version=version)
        yield f"none {version}", broker.add(name, producer, [], version=version)


def verified_partitions(broker: Broker) -> Answers:
    for version in BATCHED_VERSIONS:
        name = broker.new_id()
        producer = broker.producer(name)
        both = [(TOPIC, 0), (TOPIC, 1)]
        yield f"nothing open {version}", broker.add(name, producer, both, version=version, verify_only=True)
        broker.add(name, producer)
        yield f"one of two {version}", broker.add(name, producer, both, version=version, verify_only=True)
        broker.end(name, producer)
        broker.settle(name)
        yield f"ended {version}", broker.add(name, producer, both, version=version, verify_only=True)


# -- the end of a transaction --------------------------------------------------------------------------------


def nothing_to_end(broker: Broker) -> Answers:
    for version in END_VERSIONS:
        for committed in (True, False):
            name = broker.new_id()
            producer = broker.producer(name)
            what = f"EndTxn {version} {'commit' if committed else 'abort'}"
            yield what, broker.end(name, producer, committed=committed, version=version)
            yield f"{what}, state", broker.settle(name)


def ended_twice(broker: Broker) -> Answers:
    for version in END_VERSIONS:
        for committed in (True, False):
            for again in (True, False):
                name = broker.new_id()
                producer = broker.producer(name)
                broker.add(name, producer)
                broker.end(name, producer, committed=committed, version=version)
                broker.settle(name)
                what = f"EndTxn {version} {committed} then {again}"
                yield what, broker.end(name, producer, committed=again, version=version)
                after = producer._replace(epoch=producer.epoch + 1)
                yield f"{what}, next epoch", broker.end(name, after, committed=again, version=version)
                yield f"{what}, state", broker.settle(name)


def both_protocols(broker: Broker) -> Answers:
    """Begun by a client of one protocol, ended by that of the other."""
    name = broker.new_id()
    producer = broker.producer(name)
    yield "added, EndTxn 5", f"{broker.add(name, producer)} {broker.end(name, producer, version=NEW_END)}"
    yield "state", broker.settle(name)
    name = broker.new_id()
    producer = broker.producer(name)
    yield "Produce 12", broker.produce(name, producer, version=12)
    yield "then EndTxn 4", broker.end(name, producer, version=OLD_END)
    yield "then its state", broker.settle(name)
    yield "EndTxn 5 again", broker.end(name, producer, version=NEW_END)
    name = broker.new_id()
    producer = broker.producer(name)
    broker.add(name, producer)
    yield "EndTxn 4", broker.end(name, producer, version=OLD_END)
    broker.settle(name)
    yield "EndTxn 5 of the same", broker.end(name, producer, version=NEW_END)
    yield "EndTxn 5 abort of the same", broker.end(name, producer, committed=False, version=NEW_END)


def goes_on_with_old_epoch(broker: Broker) -> Answers:
    """EndTxn 5 raises the epoch: the one before is of the past."""
    name, group = broker.new_id(), broker.new_group()
    producer = broker.producer(name)
    yield "Produce 12", broker.produce(name, producer, version=12)
    yield "EndTxn 5", broker.end(name, producer, version=NEW_END)
    broker.settle(name)
    yield "late Produce 12", broker.produce(name, producer, version=12, sequence=1)
    yield "late Produce 11", broker.produce(name, producer, version=11, sequence=1)
    yield "late AddPartitionsToTxn", broker.add(name, producer, [(TOPIC, 1)])
    yield "late TxnOffsetCommit 5", broker.commit(name, producer, group, version=5)
    yield "late TxnOffsetCommit 4", broker.commit(name, producer, group, version=4)
    yield "other end", broker.end(name, producer, committed=False, version=NEW_END)
    after = producer._replace(epoch=producer.epoch + 1)
    yield "next Produce 12", broker.produce(name, after, version=12)
    yield "next EndTxn 5", broker.end(name, after, version=NEW_END)


# -- records and offsets -------------------------------------------------------------------------------------


def records_not_added(broker: Broker) -> Answers:
    for version in PRODUCE_VERSIONS:
        name = broker.new_id()
        producer = broker.producer(name)
        yield f"Produce {version}", broker.produce(name, producer, version=version)
        yield f"Produce {version}, state", broker.describe(name)[1]
        broker.add(name, producer, [(TOPIC, 1)])
        yield f"another is added, Produce {version}", broker.produce(name, producer, version=version)


def records_after_the_end(broker: Broker) -> Answers:
    for version in PRODUCE_VERSIONS[:-1]:
        name = broker.new_id()
        producer = broker.producer(name)
        broker.add(name, producer)
        yield f"first, Produce {version}", broker.produce(name, producer, version=version)
        yield f"EndTxn {OLD_END} after {version}", broker.end(name, producer)
        broker.settle(name)
        yield f"late, Produce {version}", broker.produce(name, producer, version=version, sequence=1)


def records_of_another_kind(broker: Broker) -> Answers:
    for version in PRODUCE_VERSIONS:
        name = broker.new_id()
        producer = broker.producer(name)
        what = f"Produce {version}"
        yield f"no id, {what}", broker.produce(None, producer, version=version)
        yield (
            f"plain batch with an id, {what}",
            broker.produce(name, producer, version=version, is_transactional=False, partition=1),
        )
        other = broker.producer(broker.new_id())
        broker.add(name, producer, [(TOPIC, 2)])
        yield f"open, {what}", broker.produce(name, producer, version=version, partition=2)
        yield (
            f"plain batch in an open one, {what}",
            broker.produce(None, producer, version=version, is_transactional=False, partition=2, sequence=1),
        )
        yield f"batch of another, {what}", broker.produce(name, other, version=version, partition=2)
        yield (
            f"wrong sequence, {what}",
            broker.produce(name, producer, version=version, partition=2, sequence=7),
        )
        yield f"abort, {what}", broker.end(name, producer, committed=False)


def offsets_not_added(broker: Broker) -> Answers:
    for version in COMMIT_VERSIONS:
        name, group = broker.new_id(), broker.new_group()
        producer = broker.producer(name)
        yield f"TxnOffsetCommit {version}", broker.commit(name, producer, group, version=version)
        yield f"TxnOffsetCommit {version}, state", broker.describe(name)[1]


def offsets_of_another_group(broker: Broker) -> Answers:
    for version in COMMIT_VERSIONS[:-1]:
        name = broker.new_id()
        producer = broker.producer(name)
        mine, theirs = broker.groups_apart()
        yield f"AddOffsetsToTxn before {version}", broker.add_offsets(name, producer, mine)
        yield f"other group, {version}", broker.commit(name, producer, theirs, version=version)
        yield (
            f"unknown topic, {version}",
            broker.commit(name, producer, mine, version=version, topic="no-such-topic"),
        )
        yield f"added, {version}", broker.commit(name, producer, mine, version=version)
        yield f"abort after {version}", broker.end(name, producer, committed=False)


def offsets_of_bad_members(broker: Broker) -> Answers:
    for version in COMMIT_VERSIONS[3:]:
        name, group = broker.new_id(), broker.new_group()
        producer = broker.producer(name)
        if version < 5:
            broker.add_offsets(name, producer, group)
        for what, member in {
            "unknown member": {"member_id": "nobody", "generation_id": 1},
            "member without generation": {"member_id": "nobody", "generation_id": -1},
            "generation without member": {"member_id": "", "generation_id": 3},
            "instance": {"member_id": "nobody", "generation_id": 1, "group_instance_id": "one"},
        }.items():
            yield f"{what}, {version}", broker.commit(name, producer, group, version=version, **member)
        yield f"no group, {version}", broker.commit(name, producer, "", version=version)


def offsets_of_no_group(broker: Broker) -> Answers:
    for version in ADD_OFFSETS_VERSIONS:
        name = broker.new_id()
        producer = broker.producer(name)
        yield f"AddOffsetsToTxn {version}", broker.add_offsets(name, producer, "", version=version)


# -- markers and tools ---------------------------------------------------------------------------------------


def markers(broker: Broker) -> Answers:
    for version in MARKER_VERSIONS:
        for transaction_version in range(0, 3, 2)[:version]:
            name = broker.new_id()
            older = broker.producer(name)
            producer = broker.producer(name)
            broker.add(name, producer)
            broker.produce(name, producer)
            what = f"WriteTxnMarkers {version}, transaction.version {transaction_version}"
            options = {"version": version, "transaction_version": transaction_version}
            places = [("no-such-topic", 0), (TOPIC, PARTITIONS), (TOPIC, -1)]
            yield f"unknown, {what}", broker.write_marker(producer, places, **options)
            yield f"older epoch, {what}", broker.write_marker(older, [(TOPIC, 0)], **options)
            if transaction_version:
                yield f"equal epoch, {what}", broker.write_marker(producer, [(TOPIC, 0)], **options)
            newer = producer._replace(epoch=producer.epoch + 1)
            yield f"newer epoch, {what}", broker.write_marker(newer, [(TOPIC, 0)], **options)
            yield f"again, {what}", broker.write_marker(newer, [(TOPIC, 0)], **options)
            yield f"abort, {what}", broker.end(name, producer, committed=False)


def no_markers(broker: Broker) -> Answers:
    for version in MARKER_VERSIONS:
        yield f"WriteTxnMarkers {version}", broker.write_marker(NOBODY, [], version=version)


def described(broker: Broker) -> Answers:
    name = broker.new_id()
    yield "unknown", " ".join(broker.describe(name))
    broker.producer(name)
    yield "empty", " ".join(broker.describe(name))


def listed(broker: Broker) -> Answers:
    name = broker.new_id()
    producer = broker.producer(name)
    opened = broker.new_id()
    broker.add(opened, broker.producer(opened))

    def found(version: int = 2, **filters: object) -> str:
        error, unknown, names = broker.listed(version=version, **filters)
        return f"{error} {unknown} {name in names} {opened in names}"

    for version in range(3):
        yield f"all {version}", found(version)
        yield f"state {version}", found(version, state_filters=["Empty"])
        yield f"unknown states {version}", found(version, state_filters=["empty", "Nonsense", "Nonsense"])
        yield f"unknown and known {version}", found(version, state_filters=["Nonsense", "Ongoing"])
        yield f"producer {version}", found(version, producer_id_filters=[producer.producer_id, -1])
        yield f"nobody {version}", found(version, producer_id_filters=[-1])
    for version in range(1, 3):
        for duration_ms in (-2, -1, 3_600_000, 2**62):
            yield f"longer than {duration_ms} ms {version}", found(version, duration_filter=duration_ms)
    whole = {"the id": name, "a part of it": name[:-1], "anchored": f"^{name}$"}
    for what, pattern in whole.items():
        yield f"pattern of {what}", found(transactional_id_pattern=pattern)
    for pattern in ("", ".*", "id", "(", "(?=id)", "[", "a{1001}", "*", "\\"):
        yield f"pattern {pattern!r}", found(transactional_id_pattern=pattern)


CASES: tuple[Case, ...] = (
    before_init, no_producer, wrong_producer_id, stale_epoch, future_epoch, id_of_another, empty_id,
    fenced_while_open, timed_out, timed_out_by_kip_890, timeouts, expected_producers, repeated_init,
    init_while_open, unknown_partitions, repeated_partitions, verified_partitions, nothing_to_end,
    ended_twice, both_protocols, goes_on_with_old_epoch, records_not_added, records_after_the_end,
    records_of_another_kind, offsets_not_added, offsets_of_another_group, offsets_of_bad_members,
    offsets_of_no_group, markers, no_markers, described, listed,
)  # fmt: skip


@pytest.fixture(scope="module")
def brokers(
    kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Broker, Broker]]:
    folder = tmp_path_factory.mktemp("orders")
    with (
        kafka_engine.start(folder / "kafka", SETTINGS | KAFKA) as kafka,
        NodeProcess(folder / "headrace", settings=SETTINGS) as headrace,
    ):
        pair = Broker(kafka.bootstrap), Broker(headrace.bootstrap)
        for broker in pair:
            broker.create_topics()
        yield pair
        for broker in pair:
            broker.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_an_illegal_order_is_answered_as_by_apache_kafka(brokers: tuple[Broker, Broker], case: Case) -> None:
    theirs, ours = (dict(case(broker)) for broker in brokers)
    unequal = {question for question in theirs if ours.get(question) != theirs[question]}
    listed = {question for name, question in DIFFERENT if name == case.__name__}
    assert ours.keys() == theirs.keys()
    assert {question: (theirs[question], ours[question]) for question in unequal - listed} == {}
    assert listed <= unequal, "equal by now: take it out of the list"
