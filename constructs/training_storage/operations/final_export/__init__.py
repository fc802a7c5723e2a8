"""The gate before a file system goes: what its links have not exported is exported and compared first.

This folder is shipped as it is to a Lambda function, so it imports nothing but the standard library and boto3, and by
relative names only. `docs/decisions/0010-final-export.md` says why it does what it does.
"""
