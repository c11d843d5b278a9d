"""The slices of this node: their state, what changes it and carries the changes out, and what others read of it."""
