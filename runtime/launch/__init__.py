"""Launchers: the processes of a job on one machine."""
