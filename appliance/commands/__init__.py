"""One module a command. Imported lazily by ``appliance.cli`` when that command runs."""
