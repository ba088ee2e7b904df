# SPDX-License-Identifier: Apache-2.0
"""What the version of a request says: the transaction protocol it speaks, and error codes it can be sent.

Version 2 of the transaction protocol is KIP-890: the epoch rises at the end of each transaction, and leaders
add partitions themselves. Everything before is recorded as 0, as in Apache Kafka: a request does not tell 0
from 1, which differ only in the form of the coordinator's records.
Machines know no API version; handlers translate with these functions. Read next: events.py.
"""

from __future__ import annotations

from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

BEFORE_KIP_890 = 0
KIP_890 = 2

_FIRST_WITH_PRODUCER_FENCED = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
_FIRST_WITH_ABORTABLE = {ApiKey.PRODUCE: 11, ApiKey.TXN_OFFSET_COMMIT: 4}
_FIRST_WITH_LOADING = {ApiKey.TXN_OFFSET_COMMIT: 2}
_FIRST_THAT_ADDS = {ApiKey.PRODUCE: 12, ApiKey.TXN_OFFSET_COMMIT: 5}
_OUT_OF_REACH = frozenset(
    {
        ErrorCode.network_exception,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)


def bumps_epoch(transaction_version: int) -> bool:
    """Whether each end of a transaction raises the producer's epoch."""
    return transaction_version >= KIP_890


def version_of_add_partitions(api_version: int) -> int:
    """Versions 4 and 5 come from leaders, for producers of KIP-890."""
    return KIP_890 if api_version >= 4 else BEFORE_KIP_890


def version_of_end(api_version: int) -> int:
    return KIP_890 if api_version >= 5 else BEFORE_KIP_890


def adds_partitions(api: ApiKey, api_version: int) -> bool:
    """Whether the leader, or the group's coordinator, adds its partition; else it only verifies it."""
    return api_version >= _FIRST_THAT_ADDS[api]


def error_for(api: ApiKey, api_version: int, error: ErrorCode) -> ErrorCode:
    """The error as this version knows it: PRODUCER_FENCED came with KIP-588, and producers that commit
    offsets may stop at COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""
    if error is ErrorCode.coordinator_load_in_progress and api_version < _FIRST_WITH_LOADING.get(api, 0):
        return ErrorCode.coordinator_not_available
    if error is ErrorCode.producer_fenced and api_version < _FIRST_WITH_PRODUCER_FENCED.get(api, 0):
        return ErrorCode.invalid_producer_epoch
    return error


def error_of_produce(api_version: int, error: ErrorCode) -> ErrorCode:
    """What a producer gets when the coordinator did not confirm the partition, or was out of reach.

    An old producer stops at an error it does not expect here; NOT_ENOUGH_REPLICAS it retries.
    """
    if _is_unexpected(ApiKey.PRODUCE, api_version, error):
        return ErrorCode.not_enough_replicas
    return _of_a_leader(ApiKey.PRODUCE, api_version, error)


def error_of_txn_offset_commit(api_version: int, error: ErrorCode) -> ErrorCode:
    """What a producer gets when the transaction's coordinator did not confirm the group's partition.

    COORDINATOR_LOAD_IN_PROGRESS is retried without a look-up of the group's coordinator, which is not the one
    that is out of reach.
    """
    if _is_unexpected(ApiKey.TXN_OFFSET_COMMIT, api_version, error):
        return ErrorCode.coordinator_load_in_progress
    return _of_a_leader(ApiKey.TXN_OFFSET_COMMIT, api_version, error)


def _is_unexpected(api: ApiKey, api_version: int, error: ErrorCode) -> bool:
    """Whether it is an error of the transaction's coordinator that the client would not retry here."""
    concurrent = error is ErrorCode.concurrent_transactions and not adds_partitions(api, api_version)
    return concurrent or error in _OUT_OF_REACH


def _of_a_leader(api: ApiKey, api_version: int, error: ErrorCode) -> ErrorCode:
    if error is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if error is ErrorCode.transaction_abortable and api_version < _FIRST_WITH_ABORTABLE[api]:
        return ErrorCode.invalid_txn_state
    return error
