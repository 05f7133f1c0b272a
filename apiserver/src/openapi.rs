//! OpenAPI v2 and v3, as far as kubectl asks for them, by the schema.
