# SPDX-License-Identifier: Apache-2.0
"""The controller's counts over all topics follow each change, and internal topics are counted apart."""

from __future__ import annotations

import uuid

from headrace.broker.controller.topic_index import TopicIndex
from headrace.types import ClusterView, PartitionState, Topic


def _topic(name: str, *leaders: int) -> Topic:
    partitions = tuple(
        PartitionState(replicas=(leader, leader + 1), leader=leader, leader_epoch=0, isr=(leader,))
        for leader in leaders
    )
    return Topic(name=name, topic_id=uuid.uuid4(), partitions=partitions)


def _view(*topics: Topic) -> ClusterView:
    return ClusterView(version=1, cluster_id="c", topics={topic.name: topic for topic in topics})


def test_leaders_of_internal_topics_are_counted_apart():
    index = TopicIndex(_view(_topic("t", 1, 1, 2), _topic("__consumer_offsets", 2, 2, 3)))
    assert index.leaders(internal=False) == {1: 2, 2: 1}
    assert index.leaders(internal=True) == {2: 2, 3: 1}


def test_counts_follow_changes_and_copies_do_not():
    before, after = _view(_topic("t", 1, 1)), _view(_topic("t", 2, 1), _topic("u", 2))
    index = TopicIndex(before)
    copy = index.leaders(internal=False)
    index.update(before, after, ["t", "u"])
    assert copy == {1: 2}
    assert index.leaders(internal=False) == {1: 1, 2: 2}
    assert index.load().leaders == {1: 1, 2: 2}
