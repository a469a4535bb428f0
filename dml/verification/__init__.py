"""Verifying a snapshot: what its summary and its manifests say is recounted from the files themselves. Driver.

`recount` reads: manifests, footers, delete files. `checks` compares, and reads nothing. `report` is what users get.
"""

from dml.verification.verify import Count, FileRole, Verification, VerifiedFile, verify

__all__ = ["Count", "FileRole", "Verification", "VerifiedFile", "verify"]
