//! Selectors: what they match, and texts that are rejected.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use proptest::prelude::*;

use super::*;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_selector_matches_what_the_api_server_would_select() {
    let web = labels(&[("app", "web"), ("n", "5"), ("tier", "front"), ("a.io/b", "")]);
    for (text, expected) in [
        ("", true),
        (" ", true),
        ("app=web", true),
        ("app==web,tier=front", true),
        (" app = web , tier != back ", true),
        ("app=api", false),
        ("app=web,tier=back", false),
        ("app", true),
        ("!app", false),
        ("!canary", true),
        ("canary!=true", true),
        ("app in (api, web)", true),
        ("app in(api,web)", true),
        ("app notin (api,web)", false),
        ("canary notin (a)", true),
        ("canary in ()", false),
        ("a.io/b in ()", true),
        ("a.io/b=", true),
        ("n>4,n<6", true),
        ("n>5", false),
        ("n<5", false),
        ("app>1", false),
        ("missing<1", false),
        ("app in (in,notin,web)", true),
        ("in=notin", false),
    ] {
        let selector: Selector = text.parse().unwrap();
        assert_eq!(selector.matches(&web), expected, "{text}");
        let again: Selector = selector.to_string().parse().unwrap();
        assert_eq!(again, selector, "{text} is written as {selector}");
    }
}

#[test]
fn invalid_selectors_are_rejected_with_a_reason() {
    for (text, why) in [
        ("a b", "not an operator"),
        ("a in b", "expected \"(\", found \"b\""),
        ("a in (b", "found the end"),
        ("a in (b c)", "expected \",\", found \"c)\""),
        ("a=b c", "expected \",\", found \"c\""),
        ("a=b,", "\"\" is not a label key"),
        ("=a", "not a label key"),
        ("!", "not a label key"),
        ("a>b", "not an integer"),
        ("-a", "not a label key"),
        ("A.io/b", "not the prefix"),
        ("/b", "not the prefix"),
        ("a/b/c", "not a label key"),
        ("a=b_", "not a label value"),
        ("a=ä", "not a label value"),
    ] {
        let error = text.parse::<Selector>().unwrap_err().to_string();
        assert!(error.contains(why) && error.contains(&format!("{text:?}")), "{text}: {error}");
    }
    let long = |length: usize| "x".repeat(length).parse::<Selector>().is_ok();
    assert!(long(63) && !long(64));
}

#[test]
fn the_empty_selector_matches_everything() {
    let pod = Pod::default();
    let everything = Selector::everything();
    assert!(everything.is_everything() && !everything.is_nothing() && everything.selects(&pod));
    assert_eq!(everything, "".parse().unwrap());
    let nothing = Selector::nothing();
    assert!(nothing.is_nothing() && !nothing.is_everything() && !nothing.selects(&pod));
    assert!(!nothing.matches(&labels(&[("a", "b")])));
    assert!(nothing.to_string().parse::<Selector>().is_err(), "it must not turn into everything");
    assert!("!a".parse::<Selector>().unwrap().selects(&pod), "objects without labels do not match");
}

#[test]
fn selectors_convert_from_object_specs() {
    let requirement = |key: &str, operator: &str, values: &[&str]| LabelSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: Some(values.iter().map(ToString::to_string).collect()),
    };
    let spec = LabelSelector {
        match_labels: Some(labels(&[("app", "web")])),
        match_expressions: Some(vec![
            requirement("tier", "In", &["front", "back"]),
            requirement("canary", "DoesNotExist", &[]),
        ]),
    };
    let selector = Selector::from(kube::core::Selector::try_from(spec).unwrap());
    assert_eq!(selector.to_string(), "app=web,tier in (back,front),!canary");
    assert!(selector.matches(&labels(&[("app", "web"), ("tier", "front")])));
    assert!(!selector.matches(&labels(&[("app", "web"), ("tier", "front"), ("canary", "")])));
    assert!(Selector::from(kube::core::Selector::default()).is_everything());
}

proptest! {
    #[test]
    fn any_text_parses_as_a_selector_or_fails(text in "[a-z=!(),<>0-9 ]{0,24}") {
        if let Ok(selector) = text.parse::<Selector>() {
            prop_assert_eq!(selector.to_string().parse::<Selector>(), Ok(selector.clone()));
        }
    }
}
