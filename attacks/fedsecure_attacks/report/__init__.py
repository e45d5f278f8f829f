"""A report that a privacy officer can read, question and sign: one strict JSON file of a published schema
(``schema.json``), and one HTML page made of it that needs no script, no network and no other file."""
