"""What all pages share: templates, the session of a request, forms, live fragments, headers."""
