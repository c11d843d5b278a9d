"""The pages: each module has the routes of one subject."""
