"""Membership in a consumer group, by the classic protocol and by KIP-848; works against any Kafka.

Must not know what is done with the partitions. Read next: member.py (the seam), classic.py, modern.py.
"""
