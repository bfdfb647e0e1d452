"""The parts of run_experiment.py that know nothing of the table: settings, stages, and what fairseq's files say."""
