"""Tools that build and try the packages."""
