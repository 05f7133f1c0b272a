//! The text of a panic.

use std::any::Any;

/// The message that a caught panic carries; `no message` if its payload is no text.
pub fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_panic_is_its_message() {
        let payloads: [(Box<dyn Any + Send>, &str); 3] =
            [(Box::new("a"), "a"), (Box::new("b".to_owned()), "b"), (Box::new(1), "no message")];
        for (payload, expected) in &payloads {
            assert_eq!(panic_text(&**payload), *expected);
        }
    }
}
