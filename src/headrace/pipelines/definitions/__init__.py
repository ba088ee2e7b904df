# SPDX-License-Identifier: Apache-2.0
"""Definitions of pipelines as values, built from a TOML file or a command line. Read next: definition.py."""
