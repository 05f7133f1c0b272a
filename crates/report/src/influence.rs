//! Which plugins decide.

use std::cmp::Reverse;
use std::fmt::Write as _;

use serde_json::{Value, json};
use supercargo_scheduler::record::{FilterInfluence, Influence, ScoreInfluence};

use super::{Page, Width, document, page};
use crate::words::count;

/// For people.
pub fn influence(influence: &Influence, width: Width) -> String {
    page(width, |page| write(page, influence))
}

fn write(page: &mut Page, influence: &Influence) -> std::fmt::Result {
    page.wrapped("", &headline(influence))?;
    if influence.attempts > 0 {
        write_filters(page, influence)?;
        write_scores(page, influence)?;
    }
    for (attempts, kind) in [(influence.of_groups, "of pod groups"), (influence.extended, "with an extender")]
    {
        if attempts > 0 {
            writeln!(page)?;
            page.wrapped("", &format!("Left out: {} {kind}", count(attempts, "attempt")))?;
        }
    }
    Ok(())
}

fn write_filters(page: &mut Page, Influence { attempts: all, filters, .. }: &Influence) -> std::fmt::Result {
    let (active, idle) = parts(filters, |it| it.refuses > 0, |it| (it.changes, it.alone, it.refuses));
    if !active.is_empty() {
        let title = page.name("FILTER", 38);
        writeln!(page, "\n{title}{:>12}{:>12}{:>18}", "REFUSES", "ALONE", "CHANGES WITHOUT")?;
    }
    for (name, it) in active {
        let [refuses, alone, changes] = [it.refuses, it.alone, it.changes].map(|part| percent(part, *all));
        writeln!(page, "{}{refuses:>12}{alone:>12}{changes:>18}", page.name(name, 38))?;
    }
    write_idle(page, "Refuse no node", &idle)
}

fn write_scores(page: &mut Page, Influence { attempts: all, scorers, .. }: &Influence) -> std::fmt::Result {
    let key = |it: &ScoreInfluence| (it.changes, it.heavier + it.lighter, it.differs);
    let (active, idle) = parts(scorers, |it| it.differs > 0, key);
    if !active.is_empty() {
        let [weight, differs, changes] = ["WEIGHT", "DIFFERS", "CHANGES WITHOUT"];
        let title = page.name("SCORE", 32);
        writeln!(page, "\n{title}{weight:>8}{differs:>9}{changes:>18}{:>6}{:>7}", "+1", "-1")?;
    }
    for (name, it) in active {
        let parts = [it.differs, it.changes, it.heavier, it.lighter].map(|part| percent(part, *all));
        let ([differs, changes, heavier, lighter], weight) = (parts, it.weight);
        let name = page.name(name, 32);
        writeln!(page, "{name}{weight:>8}{differs:>9}{changes:>18}{heavier:>6}{lighter:>7}")?;
    }
    write_idle(page, "Score all nodes alike", &idle)
}

fn write_idle(page: &mut Page, what: &str, plugins: &[&str]) -> std::fmt::Result {
    if plugins.is_empty() {
        return Ok(());
    }
    writeln!(page)?;
    page.wrapped("", &format!("{what}: {}", plugins.join(", ")))
}

fn headline(influence: &Influence) -> String {
    if influence.attempts == 0 {
        return "The record has no attempt".to_owned();
    }
    let filters = influence.filters.iter().filter(|(_, it)| it.changes == 0).map(|(name, _)| *name);
    let scorers = influence.scorers.iter().filter(|(_, it)| it.changes == 0).map(|(name, _)| *name);
    let (filters, scorers) = (filters.count(), scorers.count());
    format!(
        "{}, {} found a node: {} of {} and {} of {} decide nothing",
        count(influence.attempts, "attempt"),
        influence.placed,
        filters,
        count(influence.filters.len(), "filter"),
        scorers,
        count(influence.scorers.len(), "score")
    )
}

type Plugins<'a, T> = Vec<(&'static str, &'a T)>;

/// The plugins that do something, those with the most influence first, and the names of the others.
fn parts<'a, T, K: Ord>(
    plugins: &'a [(&'static str, T)],
    is_active: impl Fn(&T) -> bool,
    key: impl Fn(&T) -> K,
) -> (Plugins<'a, T>, Vec<&'static str>) {
    let plugins = plugins.iter().map(|(name, it)| (*name, it));
    let (mut active, idle): (Plugins<'_, T>, Vec<_>) = plugins.partition(|(_, it)| is_active(it));
    active.sort_by_key(|(_, it)| Reverse(key(it)));
    (active, idle.into_iter().map(|(name, _)| name).collect())
}

/// Such as `12%`; `<1%` for less than that.
fn percent(part: usize, all: usize) -> String {
    match part * 100 / all {
        0 if part > 0 => "<1%".to_owned(),
        percent => format!("{percent}%"),
    }
}

/// For programs.
pub fn influence_json(influence: &Influence) -> String {
    let filter = |(name, it): &(&str, FilterInfluence)| {
        let FilterInfluence { refuses, alone, changes } = it;
        json!({ "plugin": name, "refuses": refuses, "refusesAlone": alone, "changesWithout": changes })
    };
    let scorer = |(name, it): &(&str, ScoreInfluence)| {
        let ScoreInfluence { weight, differs, changes, heavier, lighter } = it;
        json!({
            "plugin": name,
            "weight": weight,
            "differs": differs,
            "changesWithout": changes,
            "changesWithMoreWeight": heavier,
            "changesWithLessWeight": lighter,
        })
    };
    document(
        "Influence",
        json!({
            "attempts": influence.attempts,
            "placed": influence.placed,
            "leftOut": { "groups": influence.of_groups, "extenders": influence.extended },
            "filters": influence.filters.iter().map(filter).collect::<Vec<Value>>(),
            "scores": influence.scorers.iter().map(scorer).collect::<Vec<Value>>(),
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_with_most_influence_come_first() {
        let filter = |changes| FilterInfluence { refuses: 150, alone: changes, changes };
        let score =
            |changes, heavier| ScoreInfluence { weight: 2, differs: 200, changes, heavier, lighter: 0 };
        let filters = vec![
            ("NodePorts", FilterInfluence::default()),
            ("TaintToleration", filter(1)),
            ("NodeResourcesFit", filter(20)),
        ];
        let influenced = Influence {
            attempts: 200,
            placed: 190,
            of_groups: 1,
            filters,
            scorers: vec![("ImageLocality", ScoreInfluence::default()), ("NodeAffinity", score(100, 30))],
            ..Influence::default()
        };
        assert_eq!(
            influence(&influenced, Width::Usual),
            "\
200 attempts, 190 found a node: 1 of 3 filters and 1 of 2 scores decide nothing

FILTER                                     REFUSES       ALONE   CHANGES WITHOUT
NodeResourcesFit                               75%         10%               10%
TaintToleration                                75%         <1%               <1%

Refuse no node: NodePorts

SCORE                             WEIGHT  DIFFERS   CHANGES WITHOUT    +1     -1
NodeAffinity                           2     100%               50%   15%     0%

Score all nodes alike: ImageLocality

Left out: 1 attempt of pod groups
"
        );
        let json: Value = serde_json::from_str(&influence_json(&influenced)).unwrap();
        assert_eq!(json["filters"][2]["changesWithout"], 20);
        assert_eq!(json["scores"][1]["changesWithMoreWeight"], 30);
        assert_eq!(influence(&Influence::default(), Width::Usual), "The record has no attempt\n");
    }
}
