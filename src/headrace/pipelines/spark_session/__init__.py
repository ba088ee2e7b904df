# SPDX-License-Identifier: Apache-2.0
"""How a Spark session is started: Java, Python, packages, log. Read next: session.py."""
