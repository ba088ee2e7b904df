# SPDX-License-Identifier: Apache-2.0
"""Clusters far larger than a test machine: what a failover costs. Read next: measured_cluster.py."""
