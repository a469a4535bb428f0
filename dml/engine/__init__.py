"""The engine, which runs a statement through parse, plan, scan, write and commit; the stages meet only here. Driver."""
