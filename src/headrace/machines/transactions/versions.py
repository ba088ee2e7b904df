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
_FIRST_PRODUCE_WITH_ABORTABLE = 11
_FIRST_PRODUCE_OF_KIP_890 = 12
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


def error_for(api: ApiKey, api_version: int, error: ErrorCode) -> ErrorCode:
    """The error as this version knows it: PRODUCER_FENCED came with KIP-588."""
    if error is ErrorCode.producer_fenced and api_version < _FIRST_WITH_PRODUCER_FENCED.get(api, 0):
        return ErrorCode.invalid_producer_epoch
    return error


def error_of_produce(api_version: int, error: ErrorCode) -> ErrorCode:
    """What a producer gets when the coordinator did not confirm the partition, or was out of reach.

    An old producer stops at an error it does not expect here; NOT_ENOUGH_REPLICAS it retries.
    """
    if error is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if error is ErrorCode.transaction_abortable and api_version < _FIRST_PRODUCE_WITH_ABORTABLE:
        return ErrorCode.invalid_txn_state
    concurrent = error is ErrorCode.concurrent_transactions and api_version < _FIRST_PRODUCE_OF_KIP_890
    return ErrorCode.not_enough_replicas if concurrent or error in _OUT_OF_REACH else error
