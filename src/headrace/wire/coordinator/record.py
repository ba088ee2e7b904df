"""Base type of the records that a coordinator writes to its internal topic, and replays when it loads."""

from __future__ import annotations


class CoordinatorRecord:
    """Subtypes for groups: group_records.py and consumer_group_records.py."""

    __slots__ = ()
