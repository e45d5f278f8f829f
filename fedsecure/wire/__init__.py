"""Between protobuf messages and the domain: sizes and schema are checked before anything is allocated."""
