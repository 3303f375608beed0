"""Recovery strategies: what happens between the detection of a failure and the next step."""
