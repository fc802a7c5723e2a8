"""Amazon FSx for Lustre as a local service: file systems, associations, data repository tasks and backups."""
