"""Command line, supervisor and (later) the Django project of the appliance."""
