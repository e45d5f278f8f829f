"""Routed prediction as the coordinator sees it: who may ask, who is asked, and what waits; never what is asked."""
