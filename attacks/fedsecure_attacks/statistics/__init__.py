"""What scores say, and how surely: rates, exact tests, intervals, bounds on epsilon, and closed forms (audit page,
sections 1.4 and 2)."""
