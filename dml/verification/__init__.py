"""Verifies a snapshot: recounts its files and compares them with its summary and manifests. Driver.

`recount` reads manifests, footers and delete files. `verify` compares the counts and builds the report.
"""

from dml.verification.verify import Count, FileRole, Verification, VerifiedFile, verify

__all__ = ["Count", "FileRole", "Verification", "VerifiedFile", "verify"]
