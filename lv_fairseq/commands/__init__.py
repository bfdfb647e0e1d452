"""The command lines of all ``lv-*`` programs: flags, what is refused, what is shown. The work is done elsewhere."""
