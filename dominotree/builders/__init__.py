"""Tree builders. ``reference`` is the definition; faster ones must give its trees."""
