# SPDX-License-Identifier: Apache-2.0
"""Hand-written codecs of hot requests: Produce, Fetch, replica Fetch, Metadata replies."""
