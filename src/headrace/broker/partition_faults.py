"""How a partition on this node ends: its disk failed it, its topic is gone, or other nodes hold it.

Read next: partition.py, storage_faults.py (what an error means), disk_report.py (who tells the others).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from headrace.broker.partition_roles import PartitionRoles
from headrace.broker.storage_faults import will_pass
from headrace.errors import ApiError, StorageError
from headrace.types import TopicPartition
from headrace.wire.error_codes import ErrorCode

logger = logging.getLogger(__name__)


class PartitionFaults(PartitionRoles):
    topic_partition: TopicPartition
    damage: str | None = None
    """Why the log is offline (R27)."""
    _on_trouble: Callable[[], None]

    def fault(self, error: StorageError | OSError) -> ApiError:
        """The log could not be read or written: the partition goes offline (R27), unless it will pass."""
        if self.online and not will_pass(error):
            logger.error("%s goes offline: %s", self.topic_partition, error)
            self.damage = str(error)
            self.take_offline()
            self._on_trouble()
        return ApiError(ErrorCode.kafka_storage_error, str(error))

    def _while_it_leads(self, leader_epoch: int) -> Callable[[OSError], None]:
        """For records that are sent later: who no longer leads may have cut its log meanwhile (R12)."""

        def failed(error: OSError) -> None:
            if self.leads and self.leader_epoch == leader_epoch:
                self.fault(error)

        return failed

    def take_offline(self) -> None:
        self._end(ErrorCode.kafka_storage_error)

    def resign(self) -> None:
        """The topic is gone or held elsewhere: nobody waits here any more."""
        self._end(ErrorCode.not_leader_or_follower)

    def _end(self, code: ErrorCode) -> None:
        self.online = False
        self.leading = self.following = None
        self._refuse(reads=code, writes=code)
        self._tell_flushed()

    def _refused(self, code: ErrorCode) -> ApiError:
        why = "is offline" if code is ErrorCode.kafka_storage_error else "is led by another node"
        return ApiError(code, f"{self.topic_partition} {why}")
