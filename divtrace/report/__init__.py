"""The report as data, and how it is put together."""
