//! Saves and loads the state as YAML; also loads the output of `kubectl get … -o yaml` (or `-o
//! json`).

use std::sync::Arc;

use serde_json::{Value, json};
use thiserror::Error;

use crate::decode::decode_kind;
use crate::depth;
use crate::json::text_in;
use crate::kinds::{Kind, Verbs};
use crate::object::StoredObject;
use crate::rest::Writer;
use crate::server::ApiServer;
use crate::strategy;
use crate::time::timestamp;

/// Why loading failed. Objects before the failure are loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The text is not valid YAML.
    #[error("{0}")]
    Syntax(String),
    /// An object cannot be loaded.
    #[error("object {position} ({name}): {why}")]
    Object {
        /// The position of the object, from 1.
        position: usize,
        /// The kind and name of the object, if known.
        name: String,
        /// The reason.
        why: String,
    },
}

impl ApiServer {
    /// Every object as YAML, one document each, for [`load`](Self::load).
    pub fn save(&self) -> String {
        let mut saved = String::new();
        for (kind, object) in self.everything() {
            saved.push_str("---\n");
            // YAML can represent every JSON value.
            saved.push_str(&serde_saphyr::to_string(&object.value(&kind)).unwrap_or_default());
        }
        saved
    }

    /// Every object, as of one version.
    fn everything(&self) -> Vec<(Arc<Kind>, Arc<StoredObject>)> {
        let state = self.shared.state.lock();
        let mut all = Vec::new();
        for table in state.store.resources() {
            let (kind, objects) = (state.registry.stored(&table), state.store.table(&table));
            let Some((kind, objects)) = kind.zip(objects) else { continue };
            all.extend(objects.range("", None).map(|object| (Arc::clone(kind), Arc::clone(object))));
        }
        all
    }

    /// Loads objects unchanged, including status and UID, and replaces those of the same name.
    /// Missing namespaces are created. Returns the number of objects.
    ///
    /// Accepts YAML and JSON: documents, and lists as printed by `kubectl get`. Objects are not
    /// validated, except that their kind must be served and fields must have the right type.
    /// Defaults are filled in.
    pub fn load(&self, text: &str) -> Result<usize, LoadError> {
        let mut objects = parse(text)?;
        // Load objects that others depend on first, whatever their order in the file.
        objects.sort_by_key(|(_, object)| rank(object));
        let mut state = self.shared.state.lock();
        let mut writer = self.shared.writer(&mut state, "load");
        let count = objects.len();
        for (position, object) in objects {
            let name = described(&object);
            writer.restore(object).map_err(|why| LoadError::Object { position, name, why })?;
        }
        Ok(count)
    }
}

fn parse_yaml(text: &str) -> Result<Vec<Value>, LoadError> {
    // Large enough for a large cluster. The input is trusted.
    let budget = serde_saphyr::budget! {
        max_events: 100_000_000,
        max_nodes: 50_000_000,
        max_documents: 1_000_000,
        max_total_scalar_bytes: 1 << 30,
    };
    let options = serde_saphyr::options! { budget: budget };
    serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| LoadError::Syntax(error.to_string()))
}

/// The objects in a text, with their positions.
fn parse(text: &str) -> Result<Vec<(usize, Value)>, LoadError> {
    // JSON parses much faster than YAML. Text that starts like JSON may still be YAML.
    let json = text.trim_start().starts_with('{').then(|| {
        serde_json::Deserializer::from_str(text).into_iter().collect::<Result<Vec<Value>, _>>().ok()
    });
    let documents: Vec<Value> = match json.flatten() {
        Some(documents) => documents,
        None => parse_yaml(text)?,
    };
    let mut objects = Vec::new();
    for document in documents {
        flatten(document, &mut objects);
    }
    Ok(objects.into_iter().enumerate().map(|(at, object)| (at + 1, object)).collect())
}

/// Replaces a list by its items. Items without a type take theirs from the list.
fn flatten(document: Value, objects: &mut Vec<Value>) {
    let is_list = document["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    match document {
        Value::Null => {}
        mut list if is_list && list["items"].is_array() => {
            let (api_version, kind) = (list["apiVersion"].take(), list["kind"].take());
            let Value::Array(items) = list["items"].take() else { return };
            for mut item in items {
                if item.get("kind").is_none() && item.is_object() {
                    let kind = kind.as_str().unwrap_or_default();
                    item["kind"] = kind.trim_end_matches("List").into();
                    item["apiVersion"] = api_version.clone();
                }
                flatten(item, objects);
            }
        }
        object => objects.push(object),
    }
}

fn rank(object: &Value) -> u8 {
    match object["kind"].as_str() {
        Some("CustomResourceDefinition") => 0,
        Some("Namespace") => 1,
        Some("Node") => 2,
        _ => 3,
    }
}

fn described(object: &Value) -> String {
    let (kind, name) = (text_in(object, &["kind"]), text_in(object, &["metadata", "name"]));
    match text_in(object, &["metadata", "namespace"]) {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

impl Writer<'_> {
    /// Stores a loaded object.
    fn restore(&mut self, mut object: Value) -> Result<(), String> {
        let (api_version, kind) = (text_in(&object, &["apiVersion"]), text_in(&object, &["kind"]));
        let kind = self.state.registry.of(api_version, kind).filter(|kind| kind.verbs == Verbs::All);
        let Some(kind) = kind.cloned() else {
            return Err(format!("kind {:?} in {api_version:?} is not served", text_in(&object, &["kind"])));
        };
        if text_in(&object, &["metadata", "name"]).is_empty() {
            return Err("metadata.name is missing".to_owned());
        }
        depth::check(&object).map_err(|status| status.message)?;
        decode_kind(&kind, &mut object).map_err(|error| error.to_string())?;
        self.complete(&kind, &mut object);
        strategy::of(&kind).default(&mut object);
        let namespace = text_in(&object, &["metadata", "namespace"]).to_owned();
        if kind.namespaced {
            self.ensure_namespace(&namespace)?;
        }
        self.keep_as_is(&kind, object);
        Ok(())
    }

    /// Fills in missing system metadata.
    fn complete(&mut self, kind: &Kind, object: &mut Value) {
        match text_in(object, &["metadata", "uid"]) {
            "" => object["metadata"]["uid"] = self.state.random.uid().into(),
            uid => self.state.random.mix_in(uid),
        }
        if text_in(object, &["metadata", "creationTimestamp"]).is_empty() {
            object["metadata"]["creationTimestamp"] = timestamp(self.now).into();
        }
        if kind.namespaced {
            if text_in(object, &["metadata", "namespace"]).is_empty() {
                object["metadata"]["namespace"] = "default".into();
            }
        } else if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("namespace");
        }
    }

    fn ensure_namespace(&mut self, name: &str) -> Result<(), String> {
        let namespaces = self.state.registry.find("", "v1", "namespaces").cloned();
        let namespaces: Arc<Kind> = namespaces.map_err(|status| status.message)?;
        if self.state.get(&namespaces, "", name).is_ok() {
            return Ok(());
        }
        let namespace = json!({"metadata": {"name": name}});
        self.create(&namespaces, "", namespace).map(|_| ()).map_err(|status| status.message)
    }
}
