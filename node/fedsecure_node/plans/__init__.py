"""From an offered plan to a joined run: the policy's verdict, a person's approval, the institution's records."""
