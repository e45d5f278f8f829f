"""The analyst's side of routed prediction: which model, which node, one question, one answer."""
