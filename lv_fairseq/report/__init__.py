"""One HTML page with the tables and figures of a run, for people who want to look at it: ``lv-report``."""
