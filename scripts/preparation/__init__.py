"""The parts of scripts/prepare: texts, segmentation, and the folder in which everything goes."""
