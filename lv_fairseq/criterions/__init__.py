"""Criteria, registered with fairseq by `lv_fairseq.tasks`."""
