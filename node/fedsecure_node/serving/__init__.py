"""Answering queries about trained models: what is kept, who may ask, the answer, and the thread that gives it."""
