"""``fedsecure node``: the verbs, thin over the rest."""
