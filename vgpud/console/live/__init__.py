"""What the API shows a user, kept up to date: one set of streams for all windows of the same user."""
