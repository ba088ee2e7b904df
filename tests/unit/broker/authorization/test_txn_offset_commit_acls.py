# SPDX-License-Identifier: Apache-2.0
"""Who may commit offsets in a transaction: Write on the transactional id, Read on group and topics."""

from __future__ import annotations

from headrace.acls import Operation, ResourceType
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.acl_node import MINE, THEIRS, AclNode, with_acls
from tests.harness.transactions.node_transactions import TransactionalProducer

GROUP, TRANSACTIONAL_ID = "group", "tx"


def test_offsets_need_the_transactional_id_then_the_group_then_each_topic() -> None:
    async def scenario(node: AclNode) -> None:
        await node.node.broker.groups.ensure_topic()
        producer = await TransactionalProducer(node.node, TRANSACTIONAL_ID).init()

        async def commit() -> list[ErrorCode]:
            partition = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1}
            topics = [
                {"name": name, "partitions": [{**partition, "committed_metadata": ""}]}
                for name in (MINE, THEIRS)
            ]
            reply = await node.ana.call(
                ApiKey.TXN_OFFSET_COMMIT,
                5,
                transactional_id=TRANSACTIONAL_ID,
                group_id=GROUP,
                producer_id=producer.producer.producer_id,
                producer_epoch=producer.producer.epoch,
                generation_id=-1,
                member_id="",
                group_instance_id=None,
                topics=topics,
            )
            return [ErrorCode(each.error_code) for topic in reply.topics for each in topic.partitions]

        assert await commit() == [ErrorCode.transactional_id_authorization_failed] * 2
        await node.allow(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, TRANSACTIONAL_ID)
        assert await commit() == [ErrorCode.group_authorization_failed] * 2
        await node.allow(Operation.READ, ResourceType.GROUP, GROUP)
        assert await commit() == [ErrorCode.topic_authorization_failed] * 2
        await node.allow(Operation.READ)
        assert await commit() == [ErrorCode.none, ErrorCode.topic_authorization_failed]

    with_acls(scenario)
