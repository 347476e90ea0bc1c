"""``bench http``: requests a second by kind of request, and what each costs."""
