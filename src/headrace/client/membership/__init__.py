# SPDX-License-Identifier: Apache-2.0
"""Membership in a consumer group, by the classic protocol and by KIP-848; works against any Kafka.

Does not know what is done with the partitions. Read next: member.py, classic.py, kip848.py.
"""
