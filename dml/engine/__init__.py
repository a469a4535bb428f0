"""The wiring of one statement through parse, plan, scan, write and commit: all stages meet only here. Driver."""
