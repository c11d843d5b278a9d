"""What the project says about itself: its addresses, and the documents that come with the package."""
