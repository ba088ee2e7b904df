# SPDX-License-Identifier: Apache-2.0
"""Settings of a topic as its partitions use them. Read next: topic_settings.py."""
