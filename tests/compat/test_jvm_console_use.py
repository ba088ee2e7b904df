# SPDX-License-Identifier: Apache-2.0
"""What people do in the console, on a node of Apache Kafka: browser tests of tests/integration once more.

Left out are those of events, which Apache Kafka does not record. The pages as pictures: test_jvm_console.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.cluster.engines.engine import RunningNode
from headrace.cluster.engines.kafka import KafkaEngine
from tests.harness.groups.polled_consumers import QUICK_GROUPS
from tests.integration.test_console_browser_groups import (  # noqa: F401
    console,
    group,
    orders,
    test_consumers_that_join_take_tiles_from_the_others,
    test_groups_are_listed_by_lag_and_found_by_name,
    test_offsets_are_changed_with_a_preview_and_only_without_consumers,
    test_one_consumer_more_is_drawn_with_what_it_would_take,
    test_the_lag_and_the_table_follow_commits,
    test_the_tiles_of_a_consumer_that_leaves_go_to_the_others,
)
from tests.integration.test_console_browser_messages import (  # noqa: F401
    test_a_record_is_written_and_downloads_have_it,
    test_dead_letters_are_sent_back_once_though_the_button_is_clicked_twice,
)
from tests.integration.test_console_browser_topics import (  # noqa: F401
    consumer,
    partitions,
    test_a_log_grows_to_the_right_and_a_readers_mark_follows,
    test_topics_are_sorted_and_filtered,
)

pytestmark = [pytest.mark.compat_jvm, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def node(kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with kafka_engine.start(tmp_path_factory.mktemp("kafka"), QUICK_GROUPS) as started:
        yield started


@pytest.fixture(scope="module")
def bootstrap(node: RunningNode) -> str:
    return node.bootstrap
