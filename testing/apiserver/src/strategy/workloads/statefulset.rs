//! Stateful sets.

use serde_json::{Value, json};

use super::super::checks::{
    Shown, at_most_all, immutable, int_or_percent, invalid_shown, not_decremented, not_more_than,
    not_negative, nulls, number_of, one_of, shown,
};
use super::super::path::Path;
use super::super::storage::claim;
use super::super::traits::Strategy;
use super::super::{names, status};
use super::{MORE_THAN_ALL, SPEC, STATUS, default_parts, template};
use crate::json::{list, list_mut, object_mut, present, remove, restore, set_default, text};
use crate::status::StatusCause;

/// Stateful sets.
pub(crate) struct StatefulSet;

const ORDERED: &str = "OrderedReady";
const PARALLEL: &str = "Parallel";
const ROLLING: &str = "RollingUpdate";
const ON_DELETE: &str = "OnDelete";
const RETENTION: &str = "persistentVolumeClaimRetentionPolicy";
/// The immutable fields of the spec.
const IMMUTABLE: [&str; 4] = ["podManagementPolicy", "selector", "serviceName", "volumeClaimTemplates"];

impl Strategy for StatefulSet {
    fn default(&self, set: &mut Value) {
        default_parts(set);
        nulls(&mut set["status"], "conditions", &["lastTransitionTime"]);
        default_counts(&mut set["status"]);
        let spec = &mut set["spec"];
        set_default(spec, "podManagementPolicy", ORDERED);
        object_mut(spec, "updateStrategy");
        let strategy = &mut spec["updateStrategy"];
        if text(strategy, "type").is_empty() {
            strategy["type"] = ROLLING.into();
            object_mut(strategy, "rollingUpdate");
        }
        if text(strategy, "type") == ROLLING && present(strategy, "rollingUpdate").is_some() {
            set_default(&mut strategy["rollingUpdate"], "partition", 0);
            set_default(&mut strategy["rollingUpdate"], "maxUnavailable", 1);
        }
        object_mut(spec, RETENTION);
        for field in ["whenDeleted", "whenScaled"] {
            set_default(&mut spec[RETENTION], field, "Retain");
        }
        set_default(spec, "replicas", 1);
        set_default(spec, "revisionHistoryLimit", 10);
        set_default(spec, "serviceName", "");
        for claim in list_mut(spec, "volumeClaimTemplates") {
            claim::default_template(claim);
        }
        template::default(spec, "template");
    }

    fn prepare_for_create(&self, set: &mut Value) {
        set["status"] = json!({});
        default_counts(&mut set["status"]);
        template::drop_disabled(&mut set["spec"], "template");
    }

    fn prepare_for_update(&self, set: &mut Value, old: &Value) {
        restore(set, old, "status");
    }

    fn prepare_for_status_update(&self, set: &mut Value, old: &Value) {
        status::only_status(set, old);
    }

    fn validate(&self, set: &Value) -> Vec<StatusCause> {
        check_spec(&set["spec"], true)
    }

    fn validate_update(&self, set: &Value, old: &Value) -> Vec<StatusCause> {
        let (spec, old) = (&set["spec"], &old["spec"]);
        let mut causes = check_spec(spec, false);
        for field in IMMUTABLE {
            immutable(spec, old, field, &SPEC, &mut causes);
        }
        causes
    }

    fn validate_status_update(&self, set: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let status = &set["status"];
        let replicas = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
        super::check_counts(status, &["replicas"], &mut causes);
        super::check_counts(status, &replicas, &mut causes);
        super::check_counts(status, &["observedGeneration", "collisionCount"], &mut causes);
        for field in replicas {
            not_more_than(status, field, "replicas", MORE_THAN_ALL, &STATUS, &mut causes);
        }
        let why = "cannot be greater than status.readyReplicas";
        not_more_than(status, "availableReplicas", "readyReplicas", why, &STATUS, &mut causes);
        not_decremented(status, &old["status"], "collisionCount", &STATUS, &mut causes);
        causes
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn check_name(&self, name: &str) -> names::Wrong {
        super::label_name(name)
    }
}

fn default_counts(status: &mut Value) {
    set_default(status, "replicas", 0);
    set_default(status, "availableReplicas", 0);
}

/// Validates a spec. Immutable parts are only validated if it is new.
fn check_spec(spec: &Value, is_new: bool) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let policy = text(spec, "podManagementPolicy");
    if !matches!(policy, ORDERED | PARALLEL) {
        let why = format!("must be '{ORDERED}' or '{PARALLEL}'");
        causes.push(SPEC.child("podManagementPolicy").invalid(policy, &why));
    }
    check_strategy(&spec["updateStrategy"], &SPEC.child("updateStrategy"), &mut causes);
    let path = SPEC.child(RETENTION);
    for field in ["whenDeleted", "whenScaled"] {
        one_of(&spec[RETENTION], field, &["Retain", "Delete"], &path, &mut causes);
    }
    if is_new {
        let path = SPEC.child("volumeClaimTemplates");
        for (i, claim) in list(spec, "volumeClaimTemplates").iter().enumerate() {
            claim::check_spec(&claim["spec"], &path.index(i).child("spec"), &mut causes);
        }
    }
    not_negative(spec, &["replicas", "minReadySeconds"], &SPEC, &mut causes);
    if let Some(ordinals) = present(spec, "ordinals") {
        not_negative(ordinals, &["start"], &SPEC.child("ordinals"), &mut causes);
    }
    let service = text(spec, "serviceName");
    if is_new && !service.is_empty() {
        SPEC.child("serviceName").invalid_all(service, names::dns1123_label(service), &mut causes);
    }
    check_pods(spec, &mut causes);
    causes
}

fn check_pods(spec: &Value, causes: &mut Vec<StatusCause>) {
    let is_sound = template::check_selector(spec, "statefulset", &SPEC, causes);
    let selector = spec.get("selector").unwrap_or(&Value::Null);
    let path = SPEC.child("template");
    if is_sound {
        let template = template_with_claims(spec);
        if selector.is_null() || !template::is_empty(selector) {
            template::check_selected(&template, selector, &path, causes);
        }
        template::check(&template, &path, causes);
    } else {
        causes.push(SPEC.child("selector").invalid(selector.clone(), ""));
    }
    template::check_lasting(&spec["template"], "StatefulSet", &path, causes);
}

/// The template as its pods get it: with the claimed volumes, and without the host name and
/// subdomain, which each pod gets from its own name.
fn template_with_claims(spec: &Value) -> Value {
    let mut template = spec["template"].clone();
    let Some(pod) = template.get_mut("spec").filter(|pod| pod.is_object()) else { return template };
    remove(pod, "subdomain");
    remove(pod, "hostname");
    let claims = list(spec, "volumeClaimTemplates");
    if claims.is_empty() {
        return template;
    }
    let name_of = |claim: &Value| text(&claim["metadata"], "name").to_owned();
    let named: Vec<String> = claims.iter().map(name_of).collect();
    let claimed =
        named.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
    let others =
        list(pod, "volumes").iter().filter(|volume| !named.iter().any(|name| name == text(volume, "name")));
    let volumes: Vec<Value> = claimed.chain(others.cloned()).collect();
    pod["volumes"] = volumes.into();
    template
}

fn check_strategy(strategy: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let rolling = present(strategy, "rollingUpdate");
    let rolling_path = path.child("rollingUpdate");
    match (text(strategy, "type"), rolling) {
        (ROLLING, Some(rolling)) => check_rolling(rolling, &rolling_path, causes),
        (ON_DELETE, Some(rolling)) => {
            let fields = [
                ("Partition", "partition", Shown::Number),
                ("MaxUnavailable", "maxUnavailable", Shown::Null),
            ];
            let why = format!("only allowed for updateStrategy '{ROLLING}'");
            causes.push(invalid_shown(&rolling_path, &shown(rolling, &fields), &why));
        }
        (ROLLING | ON_DELETE, None) => {}
        _ => {
            let fields = [("Type", "type", Shown::Text), ("RollingUpdate", "rollingUpdate", Shown::Null)];
            let why = format!("must be '{ROLLING}' or '{ON_DELETE}'");
            causes.push(invalid_shown(path, &shown(strategy, &fields), &why));
        }
    }
}

fn check_rolling(rolling: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    not_negative(rolling, &["partition"], path, causes);
    if let Some(unavailable) = present(rolling, "maxUnavailable") {
        let path = path.child("maxUnavailable");
        int_or_percent(unavailable, &path, causes);
        if number_of(unavailable) == 0 {
            causes.push(path.invalid(unavailable.clone(), "cannot be 0"));
        }
        at_most_all(unavailable, &path, causes);
    }
}
