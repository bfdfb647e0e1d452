"""Mean and spread of what several seeds gave."""

import statistics
from typing import Dict, Sequence


def over_seeds(values: Sequence[float]) -> Dict:
    """``spread`` is the standard deviation of single trainings, estimated from these (n - 1)."""
    spread = statistics.stdev(values) if len(values) > 1 else None
    return {"count": len(values), "mean": statistics.fmean(values), "spread": spread}
