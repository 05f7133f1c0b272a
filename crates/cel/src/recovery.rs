//! Errors of an expression that does not parse.

use crate::lexer::Lexeme;
use crate::source::{Errors, Source};

/// Reports what is wrong.
pub(crate) fn report(source: &Source, tokens: &[Lexeme], errors: &mut Errors) {
    let last = tokens.last().map_or(0, |token| token.start);
    errors.report(source.location(last), "Syntax error: unexpected input");
}
