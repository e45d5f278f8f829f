"""The membership audit of a release before it leaves: who is held out for it, what is compared, what its verdict
does."""
