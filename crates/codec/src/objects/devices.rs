//! Device classes and taint rules, and the parts that they share with claims and slices.

use std::fmt::Display;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use supercargo_framework::affinity::NodeTerms;
use supercargo_framework::objects::{
    Body, DeviceClass, DeviceNodeSelector, DeviceSelector, DeviceTaint, DeviceTaintRule, DeviceToleration,
    DeviceTolerationOperator, Quantities, TaintRuleSelector,
};
use supercargo_framework::quantity;
use supercargo_framework::raw_object::RawObject;
use supercargo_framework::taint::TaintEffect;

use super::document::Document;
use crate::error::{DecodeErrorKind, FieldError};
use crate::interners::Interners;
use crate::json::{List, Obj, Pairs, Str};
use crate::metadata::{Metadata, time};
use crate::selector::NodeSelector;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireClass<'a> {
    #[serde(borrow)]
    metadata: Obj<Metadata<'a>>,
    #[serde(borrow)]
    spec: Obj<ClassSpec<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClassSpec<'a> {
    #[serde(borrow)]
    selectors: List<Obj<Selector<'a>>>,
    #[serde(borrow)]
    config: List<Obj<Configuration<'a>>>,
    #[serde(borrow)]
    extended_resource_name: Option<Str<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Selector<'a> {
    #[serde(borrow)]
    cel: Option<Obj<Cel<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Cel<'a> {
    #[serde(borrow)]
    expression: Str<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Configuration<'a> {
    #[serde(borrow)]
    pub(super) requests: List<Str<'a>>,
    #[serde(borrow)]
    opaque: Option<Obj<Opaque<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Opaque<'a> {
    #[serde(borrow)]
    driver: Str<'a>,
    parameters: Value,
}

impl Configuration<'_> {
    /// The API's configuration without `requests`.
    pub(super) fn raw(&self) -> Arc<Value> {
        let opaque = self.opaque.as_ref();
        Arc::new(opaque.map_or_else(
            || json!({}),
            |opaque| json!({ "opaque": { "driver": *opaque.driver, "parameters": opaque.parameters } }),
        ))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireDeviceTaint<'a> {
    #[serde(borrow)]
    key: Str<'a>,
    #[serde(borrow)]
    value: Str<'a>,
    #[serde(borrow)]
    effect: Str<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WireDeviceToleration<'a> {
    #[serde(borrow)]
    key: Str<'a>,
    #[serde(borrow)]
    operator: Str<'a>,
    #[serde(borrow)]
    value: Str<'a>,
    #[serde(borrow)]
    effect: Str<'a>,
    toleration_seconds: Option<i64>,
}

impl WireDeviceToleration<'_> {
    /// The API's toleration, without empty fields.
    fn raw(&self) -> Value {
        let texts = [
            ("key", &self.key),
            ("operator", &self.operator),
            ("value", &self.value),
            ("effect", &self.effect),
        ];
        let set =
            texts.into_iter().filter_map(|(field, text)| Some((field.to_owned(), text.non_empty()?.into())));
        let seconds = self.toleration_seconds.map(|seconds| ("tolerationSeconds".to_owned(), seconds.into()));
        Value::Object(set.chain(seconds).collect::<Map<_, _>>())
    }
}

impl<'a> Document<'a> for WireClass<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }

    fn body(&self, shared: &mut Interners, _: Option<RawObject>) -> Result<Body, FieldError> {
        let created = time(&self.metadata.creation_timestamp, "metadata.creationTimestamp")?;
        Ok(Body::DeviceClass(DeviceClass {
            selectors: shared.device_selectors(&self.spec.selectors),
            config: self.spec.config.iter().map(|config| config.raw()).collect(),
            extended_resource_name: self.spec.extended_resource_name.as_ref().map(|name| shared.text(name)),
            created: created.map_or(0, jiff::Timestamp::as_second),
        }))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireTaintRule<'a> {
    #[serde(borrow)]
    metadata: Obj<Metadata<'a>>,
    #[serde(borrow)]
    spec: Obj<RuleSpec<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RuleSpec<'a> {
    #[serde(borrow)]
    device_selector: Option<Obj<RuleSelector<'a>>>,
    #[serde(borrow)]
    taint: Obj<WireDeviceTaint<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RuleSelector<'a> {
    #[serde(borrow)]
    driver: Option<Str<'a>>,
    #[serde(borrow)]
    pool: Option<Str<'a>>,
    #[serde(borrow)]
    device: Option<Str<'a>>,
}

impl<'a> Document<'a> for WireTaintRule<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }

    fn body(&self, shared: &mut Interners, _: Option<RawObject>) -> Result<Body, FieldError> {
        let mut text = |text: &Option<Str<'_>>| text.as_ref().map(|text| shared.text(text));
        let selector = self.spec.device_selector.as_ref().map(|selector| TaintRuleSelector {
            driver: text(&selector.driver),
            pool: text(&selector.pool),
            device: text(&selector.device),
        });
        Ok(Body::DeviceTaintRule(DeviceTaintRule { selector, taint: shared.device_taint(&self.spec.taint) }))
    }
}

impl Interners {
    pub(super) fn device_selectors(&mut self, selectors: &[Obj<Selector<'_>>]) -> Box<[DeviceSelector]> {
        let expression = |selector: &Obj<Selector<'_>>| Some(self.text(&selector.cel.as_ref()?.expression));
        selectors.iter().map(expression).collect()
    }

    pub(super) fn device_taint(&mut self, taint: &WireDeviceTaint<'_>) -> DeviceTaint {
        DeviceTaint {
            key: self.text(&taint.key),
            value: self.text(&taint.value),
            effect: TaintEffect::from_api(&taint.effect),
        }
    }

    pub(super) fn device_toleration(&mut self, toleration: &WireDeviceToleration<'_>) -> DeviceToleration {
        DeviceToleration {
            key: self.text(&toleration.key),
            operator: match &*toleration.operator {
                "" | "Equal" => DeviceTolerationOperator::Equal,
                "Exists" => DeviceTolerationOperator::Exists,
                _ => DeviceTolerationOperator::Unknown,
            },
            value: self.text(&toleration.value),
            effect: toleration.effect.non_empty().map(TaintEffect::from_api),
            raw: Arc::new(toleration.raw()),
        }
    }

    pub(super) fn device_node_selector(&mut self, selector: &NodeSelector<'_>) -> DeviceNodeSelector {
        DeviceNodeSelector {
            terms: NodeTerms::new(self.node_selector(selector)),
            raw: Arc::new(selector.raw()),
        }
    }

    /// A quantity, as its text. It must be valid.
    pub(super) fn quantity(&mut self, text: &str, field: impl Display) -> Result<Arc<str>, FieldError> {
        match quantity::value(text) {
            Ok(_) => Ok(self.text(text)),
            Err(error) => Err(FieldError::new(field, DecodeErrorKind::Quantity(error))),
        }
    }

    /// Quantities by name.
    pub(super) fn quantities(&mut self, pairs: &Pairs<'_>, field: &str) -> Result<Quantities, FieldError> {
        by_name(pairs.iter().map(|(name, amount)| {
            Ok((self.text(name), self.quantity(amount, format_args!("{field}[{name}]"))?))
        }))
    }
}

/// Values by name.
type ByName<T> = Box<[(Arc<str>, T)]>;

/// Entries ordered by name. Of several with one name the last one counts, as in Go.
pub(super) fn by_name<T>(
    entries: impl Iterator<Item = Result<(Arc<str>, T), FieldError>>,
) -> Result<ByName<T>, FieldError> {
    let mut entries: Vec<_> = entries.collect::<Result<_, _>>()?;
    entries.reverse();
    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
    entries.dedup_by(|(a, _), (b, _)| a == b);
    Ok(entries.into())
}

/// Converts the items of a list. An error names the item.
pub(super) fn items<W, T>(
    items: &[W],
    field: &str,
    mut convert: impl FnMut(&W) -> Result<T, FieldError>,
) -> Result<Box<[T]>, FieldError> {
    let numbered = items.iter().enumerate();
    numbered
        .map(|(i, item)| convert(item).map_err(|error| error.within(format_args!("{field}[{i}]."))))
        .collect()
}
