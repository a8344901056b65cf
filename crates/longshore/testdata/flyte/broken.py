"""A module that cannot be imported: the SDK's runtime writes error.pb, and its process fails."""

raise RuntimeError("this module is broken")
