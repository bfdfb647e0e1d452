"""From sentences to batches: in which order sentences are read and which of them share a batch."""
