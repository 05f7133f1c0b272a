//! Unknown fields and wrong types, by the schema.
