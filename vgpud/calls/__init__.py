"""What all RPCs share before and behind their methods: turns, decoding, pages, messages that several clients get."""
