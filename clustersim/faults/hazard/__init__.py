"""When units fail: lifetimes, ages, calendars, frailty, recurrence and clusters, and the arrivals that they make together."""
