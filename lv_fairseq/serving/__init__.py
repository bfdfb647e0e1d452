"""A trained model as a page and an API: ``lv-serve``."""
