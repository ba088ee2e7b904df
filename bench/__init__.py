# SPDX-License-Identifier: Apache-2.0
"""Headrace and Apache Kafka on this machine, driven by the same clients in one run: `python -m bench`.

Read suites/node.py for what is measured and what is promised, runner.py for how rounds are taken.
"""
