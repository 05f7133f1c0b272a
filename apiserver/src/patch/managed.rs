//! Who owns which field.
