"""A real node for the tests of a family, and the pytest plugin with its fixtures."""
