//! The error of an expression that does not parse, in ANTLR's words.
//!
//! Upstream's parser continues after an error and often finds more; here the first one is the only
//! one. The API server parses an expression before it stores it, so these errors are for tests and
//! tools.

use crate::lexer::{Lexeme, Token, escape_whitespace};
use crate::source::{Errors, Source};

/// Reports the first of `tokens`, which is not one of those expected.
pub(crate) fn report(source: &Source, tokens: &[Lexeme], expected: &[Token], errors: &mut Errors) {
    let Some(found) = tokens.first() else { return };
    let text = match found.token {
        Token::Eof => "<EOF>".into(),
        _ => escape_whitespace(&source.text(found.start, found.end)),
    };
    let names: Vec<&str> = expected.iter().map(|token| token.name()).collect();
    let wanted = match names[..] {
        [] => "another token".to_string(),
        [one] => one.to_string(),
        _ => format!("{{{}}}", names.join(", ")),
    };
    // Without it, the expression would continue.
    let is_extra = tokens.get(1).is_some_and(|next| expected.contains(&next.token));
    let problem = if is_extra { "extraneous" } else { "mismatched" };
    errors.report(
        source.location(found.start),
        format!("Syntax error: {problem} input '{text}' expecting {wanted}"),
    );
}
