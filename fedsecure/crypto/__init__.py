"""The only importer of ``cryptography``: certificates, signatures, key files."""
