//! Classes of Unicode in regular expressions, such as `\pL` and `\p{Greek}`.
//!
//! Go's tables are those of Unicode 15, and the machine's those of a newer version.

/// The names of categories.
const CATEGORIES: &str = "C Casedletter Cc Cf Closepunctuation Cn Cntrl Co Combiningmark Connectorpunctuation Control \
     Cs Currencysymbol Dashpunctuation Decimalnumber Digit Enclosingmark Finalpunctuation Format \
     Initialpunctuation L Lc Letter Letternumber Lineseparator Ll Lm Lo Lowercaseletter Lt Lu M \
     Mark Mathsymbol Mc Me Mn Modifierletter Modifiersymbol N Nd Nl No Nonspacingmark Number \
     Openpunctuation Other Otherletter Othernumber Otherpunctuation Othersymbol P \
     Paragraphseparator Pc Pd Pe Pf Pi Po Privateuse Ps Punct Punctuation S Sc Separator Sk Sm So \
     Spaceseparator Spacingmark Surrogate Symbol Titlecaseletter Unassigned Uppercaseletter Z Zl \
     Zp Zs";
/// The names of scripts. Go does not find those of several words.
const SCRIPTS: &str = "Adlam Ahom Arabic Armenian Avestan Balinese Bamum Batak Bengali Bhaiksuki Bopomofo Brahmi \
     Braille Buginese Buhid Carian Chakma Cham Cherokee Chorasmian Common Coptic Cuneiform \
     Cypriot Cyrillic Deseret Devanagari Dogra Duployan Elbasan Elymaic Ethiopic Georgian \
     Glagolitic Gothic Grantha Greek Gujarati Gurmukhi Han Hangul Hanunoo Hatran Hebrew Hiragana \
     Inherited Javanese Kaithi Kannada Katakana Kawi Kharoshthi Khmer Khojki Khudawadi Lao Latin \
     Lepcha Limbu Lisu Lycian Lydian Mahajani Makasar Malayalam Mandaic Manichaean Marchen \
     Medefaidrin Miao Modi Mongolian Mro Multani Myanmar Nabataean Nandinagari Newa Nko Nushu \
     Ogham Oriya Osage Osmanya Palmyrene Phoenician Rejang Runic Samaritan Saurashtra Sharada \
     Shavian Siddham Sinhala Sogdian Soyombo Sundanese Syriac Tagalog Tagbanwa Takri Tamil Tangsa \
     Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Toto Ugaritic Vai Vithkuqi Wancho Yezidi \
     Yi";

/// A class by its name, in the machine's syntax. Nothing if Go does not know the name.
pub(crate) fn class(name: &str, is_negated: bool) -> Option<String> {
    let (name, is_negated) = match name.strip_prefix('^') {
        Some(name) => (name, !is_negated),
        None => (name, is_negated),
    };
    let name = canonical(name);
    let is_one_of = |names: &str| names.split(' ').any(|known| known == name);
    let class = match name.as_str() {
        "Any" | "Ascii" | "Assigned" => format!(r"\p{{{name}}}"),
        // No text has one.
        "Cs" | "Surrogate" => r"\P{Any}".into(),
        _ if is_one_of(CATEGORIES) => format!(r"\p{{gc={name}}}"),
        _ if is_one_of(SCRIPTS) => format!(r"\p{{sc={name}}}"),
        _ => return None,
    };
    Some(if is_negated { format!("[^{class}]") } else { class })
}

/// The form in which Go looks for a name: one capital letter, and no separators.
fn canonical(name: &str) -> String {
    let mut letters = name.chars().filter(|c| !matches!(c, '_' | '-' | ' '));
    let first = letters.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(letters.map(|c| c.to_ascii_lowercase())).collect()
}
