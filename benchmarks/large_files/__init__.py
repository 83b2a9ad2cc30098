"""One large CSV, NDJSON or IPC file on several ranks: what each rank reads of it."""
