# SPDX-License-Identifier: Apache-2.0
"""One small function per measure; its docstring says what users feel by it."""
