# SPDX-License-Identifier: Apache-2.0
"""Version of the package, apart from `headrace` itself: that imports the client for type checkers."""

__version__ = "0.1.0"
