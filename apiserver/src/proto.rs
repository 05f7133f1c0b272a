//! Objects in protobuf, by the schema.
