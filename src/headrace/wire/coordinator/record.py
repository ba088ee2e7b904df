"""Base type of the records that a coordinator writes to its internal topic, and replays when it loads."""

from __future__ import annotations


class CoordinatorRecord:
    """Subtypes: group_records.py, consumer_group_records.py and transaction_records.py."""

    __slots__ = ()
