"""The daemon's state on disk: private files, opening and checking the database, quarantine, backups, its tables."""
