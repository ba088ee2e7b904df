"""Hand-written codecs of hot requests: Produce, Fetch, replica Fetch, Metadata replies."""
