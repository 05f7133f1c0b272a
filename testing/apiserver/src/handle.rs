//! Dispatches requests to the verbs of resources.

use std::sync::Arc;

use http::{HeaderValue, Method, Response, StatusCode, header};
use serde_json::Value;

use crate::encode::{Events, View};
use crate::faults::Fault;
use crate::json::text_in;
use crate::kinds::{Kind, Subresource, Verbs};
use crate::media::{Encoding, Form, Media};
use crate::object::StoredObject;
use crate::patch::managed::FieldManager;
use crate::patch::{self, Patch};
use crate::proto::STREAM_CONTENT_TYPE;
use crate::request::{ApiRequest, Resource, Target};
use crate::response::{Body, answer, page_not_found};
use crate::rest::{
    DeleteOptions, Deleted, List, ListOptions, Part, Updated, Writer, inconsistent_token,
    invalid_write_options, parse_version, too_large,
};
use crate::schema::Schema;
use crate::server::Shared;
use crate::status::{Result, Status};
use crate::strategy::pod::{binding, eviction};
use crate::strategy::reviews::{self, User};
use crate::strategy::scale::{ScalePaths, scale_of, set_scale};
use crate::table::{IncludeObject, Printer};
use crate::time::timestamp;
use crate::watch::{Watch, WatchOptions};
use crate::{body, nonresource};

/// The outcome of a request.
enum Reply {
    Object(StatusCode, Arc<StoredObject>),
    Value(StatusCode, Value),
    List(List),
    Watch(Box<Watch>),
}

/// Handles a request.
pub(crate) fn handle(shared: &Arc<Shared>, request: &ApiRequest, faults: &[Fault]) -> Result<Response<Body>> {
    match &request.target {
        Target::Other(path) => nonresource::answer_path(shared, request, path),
        Target::Resource(resource) => handle_resource(shared, request, resource, faults),
    }
}

fn handle_resource(
    shared: &Arc<Shared>,
    request: &ApiRequest,
    resource: &Resource,
    faults: &[Fault],
) -> Result<Response<Body>> {
    let kind = {
        let state = shared.state.lock();
        if !state.registry.serves(&resource.group, &resource.version) {
            return Ok(page_not_found());
        }
        Arc::clone(state.registry.find(&resource.group, &resource.version, &resource.plural)?)
    };
    if !resource.namespace.is_empty() && !kind.namespaced {
        return Err(Status::no_such_path());
    }
    let media = Media::negotiate(&request.headers, !kind.custom)?;
    if matches!(media.form, Form::Aggregated(_)) {
        return Err(Status::not_acceptable(&["application/json"]));
    }
    let view = View {
        printer: printer(shared, &kind),
        kind: Arc::clone(&kind),
        media,
        include: IncludeObject::parse(request.options.text("includeObject"))?,
        now: (shared.settings.clock)(),
    };
    let mut warnings = Vec::new();
    let handler = Handler { shared, request, kind: &kind, resource, warnings: &mut warnings };
    let reply = handler.reply(&view, faults)?;
    let content_type = media.encoding.name();
    let mut response = match reply {
        Reply::Object(code, object) => answer(code, content_type, view.object(&object)),
        Reply::Value(code, value) => answer(code, content_type, view.value(&value)),
        Reply::List(list) => answer(StatusCode::OK, content_type, view.list(&list)),
        Reply::Watch(watch) => {
            let mut response = Response::new(watch.into_body());
            let content_type = match media.encoding {
                Encoding::Protobuf => STREAM_CONTENT_TYPE,
                Encoding::Json | Encoding::Yaml => "application/json",
            };
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
            response
        }
    };
    for warning in warnings {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::try_from(format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    Ok(response)
}

/// The table printer of a kind; that of a custom kind follows its definition.
fn printer(shared: &Shared, kind: &Kind) -> Printer {
    if !kind.custom {
        return Printer::of(kind);
    }
    let version = shared.definition(kind);
    Printer::custom(version.as_ref().and_then(|version| version.get("additionalPrinterColumns")))
}

/// Handles one request for a resource.
struct Handler<'a> {
    shared: &'a Arc<Shared>,
    request: &'a ApiRequest,
    kind: &'a Arc<Kind>,
    resource: &'a Resource,
    warnings: &'a mut Vec<String>,
}

impl Handler<'_> {
    fn reply(mut self, view: &View, faults: &[Fault]) -> Result<Reply> {
        if self.kind.verbs == Verbs::Create {
            return self.review();
        }
        let subresource = match self.resource.subresource.as_str() {
            "" => None,
            name => {
                let known = self.kind.subresources.iter().find(|subresource| subresource.name() == name);
                Some(*known.ok_or_else(|| self.unknown_part(name))?)
            }
        };
        // Namespaced objects are only reachable through their namespace.
        let reachable = !self.kind.namespaced || !self.resource.namespace.is_empty();
        let one = !self.resource.name.is_empty();
        if one && !reachable {
            return Err(Status::no_such_path());
        }
        match (&self.request.method, subresource) {
            (&Method::GET, None) if !one => self.list_or_watch(view, faults),
            (&Method::POST, None) if !one && reachable => self.create(),
            (&Method::DELETE, None) if !one && reachable => self.delete_collection(),
            (_, _) if !one => Err(Status::method_not_allowed()),
            (&Method::POST, Some(Subresource::Binding)) => self.bind(),
            (&Method::POST, Some(Subresource::Eviction)) => self.evict(),
            (_, Some(Subresource::Binding | Subresource::Eviction)) => Err(Status::method_not_allowed()),
            (_, Some(Subresource::Token)) => Err(Status::not_implemented("serviceaccounts/token")),
            (&Method::GET, Some(Subresource::Scale)) => {
                let object = self.get()?.value(self.kind);
                Ok(Reply::Value(StatusCode::OK, scale_of(&object, &self.scale_paths()?)))
            }
            (&Method::GET, _) => Ok(Reply::Object(StatusCode::OK, self.get()?)),
            (&Method::PUT, Some(Subresource::Scale)) | (&Method::PATCH, Some(Subresource::Scale)) => {
                self.scale()
            }
            (&Method::PUT, subresource) => self.replace(subresource),
            (&Method::PATCH, subresource) => self.patch(subresource),
            (&Method::DELETE, None) => self.delete(),
            _ => Err(Status::method_not_allowed()),
        }
    }

    /// The error for an unknown subresource. Some of the real server's subresources are not
    /// implemented.
    fn unknown_part(&self, name: &str) -> Status {
        let connects = match (&*self.kind.group, &*self.kind.resource) {
            ("", "pods") => matches!(name, "attach" | "exec" | "log" | "portforward" | "proxy"),
            ("", "nodes" | "services") => name == "proxy",
            _ => false,
        };
        if !connects {
            return Status::no_such_path();
        }
        match self.get() {
            Ok(_) => Status::not_implemented(format!("{}/{name}", self.kind.resource)),
            Err(status) => status,
        }
    }

    fn watches(&self) -> bool {
        self.request.options.flag("watch").unwrap_or_default()
    }

    fn get(&self) -> Result<Arc<StoredObject>> {
        let state = self.shared.state.lock();
        let unreadable = |status: Status| Status::unknown(StatusCode::INTERNAL_SERVER_ERROR, status.message);
        let version = parse_version(self.request.options.text("resourceVersion")).map_err(unreadable)?;
        if version > state.store.version() {
            return Err(too_large(version, state.store.version()));
        }
        state.get(self.kind, &self.resource.namespace, &self.resource.name).cloned()
    }

    fn list_or_watch(&self, view: &View, faults: &[Fault]) -> Result<Reply> {
        let query = &self.request.options;
        if !self.watches() {
            let options = ListOptions::parse(self.kind, query)?;
            let list = self.shared.state.lock().list(self.kind, &self.resource.namespace, &options);
            return list.map(Reply::List).map_err(|mut status| {
                if status.code == StatusCode::GONE {
                    status.details.continues = inconsistent_token(query).unwrap_or_default();
                }
                status
            });
        }
        let options = WatchOptions::parse(self.kind, query)?;
        let events = Events::new(view.clone(), self.request.info.clone());
        let watch = Watch::begin(self.shared, events, &self.resource.namespace, options, faults.to_vec())?;
        Ok(Reply::Watch(Box::new(watch)))
    }

    /// Runs a write under the lock.
    fn write<T>(&self, act: impl FnOnce(&mut Writer<'_>) -> Result<T>) -> Result<T> {
        let verb = self.request.info.verb;
        let dry_run = self.request.options.dry_run().map_err(|cause| invalid_write_options(verb, cause))?;
        let mut state = self.shared.state.lock();
        let manager = self.request.manager();
        let mut writer = self.shared.writer(&mut state, &manager);
        writer.dry_run = dry_run;
        act(&mut writer)
    }

    /// The object in the body, decoded by its kind.
    fn object(&mut self) -> Result<Value> {
        body::object(self.kind, self.request, self.warnings)
    }

    fn create(&mut self) -> Result<Reply> {
        let object = self.object()?;
        let created = self.write(|writer| writer.create(self.kind, &self.resource.namespace, object))?;
        Ok(self.created(created))
    }

    /// An object from a dry run has no resourceVersion.
    fn created(&self, object: Arc<StoredObject>) -> Reply {
        if self.request.options.dry_run() != Ok(true) {
            return Reply::Object(StatusCode::CREATED, object);
        }
        let mut value = object.value(self.kind);
        if let Some(metadata) = value["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        Reply::Value(StatusCode::CREATED, value)
    }

    fn replace(&mut self, subresource: Option<Subresource>) -> Result<Reply> {
        let object = self.object()?;
        let Resource { namespace, name, .. } = self.resource;
        let updated =
            self.write(|writer| writer.replace(self.kind, namespace, name, part(subresource), object))?;
        Ok(match updated {
            Updated::Created(object) => self.created(object),
            Updated::Changed(object) => Reply::Object(StatusCode::OK, object),
        })
    }

    fn patch(&mut self, subresource: Option<Subresource>) -> Result<Reply> {
        let patch = body::patch(self.kind, self.request)?;
        let options = &self.request.options;
        patch::check_options(&patch, options.text("fieldManager"), options.flag("force"))?;
        if let Patch::Apply(config) = &patch {
            return self.apply(config, subresource);
        }
        let Resource { namespace, name, .. } = self.resource;
        let (kind, request) = (self.kind, self.request);
        let mut warnings = Vec::new();
        let changed = self.write(|writer| {
            writer.update(kind, namespace, name, part(subresource), |_, old| {
                body::patched(kind, request, &patch, old, &mut warnings)
            })
        })?;
        self.warnings.append(&mut warnings);
        Ok(Reply::Object(StatusCode::OK, changed))
    }

    fn apply(&mut self, config: &Value, subresource: Option<Subresource>) -> Result<Reply> {
        let Resource { namespace, name, .. } = self.resource;
        let (kind, request) = (self.kind, self.request);
        let config = body::apply_configuration(config, namespace, name)?;
        let force = request.options.flag("force").unwrap_or_default();
        let api_version = kind.api_version();
        let applied = |current: Option<&Value>, now| {
            let manager = FieldManager {
                name: request.options.text("fieldManager"),
                api_version: &api_version,
                subresource: part(subresource).name(),
                type_id: Schema::get().of(kind),
                status_apart: kind.has(Subresource::Status),
                now,
            };
            body::applied(kind, patch::apply::apply(&manager, &kind.kind, current, &config, force)?)
        };
        self.write(|writer| {
            let now = writer.now;
            if writer.state.get(kind, namespace, name).is_err() {
                if subresource.is_some() {
                    return Err(Status::not_found(kind, name));
                }
                let object = applied(None, now)?;
                writer.applies = true;
                return Ok(self.created(writer.create(kind, namespace, object)?));
            }
            writer.applies = true;
            let changed =
                writer.update(kind, namespace, name, part(subresource), |_, old| applied(Some(old), now))?;
            Ok(Reply::Object(StatusCode::OK, changed))
        })
    }

    fn delete(&mut self) -> Result<Reply> {
        let options = body::delete_options(self.request)?;
        let deleted = self.write(|writer| {
            writer.dry_run |= options.dry_run;
            writer.delete(self.kind, &self.resource.namespace, &self.resource.name, &options)
        })?;
        Ok(self.deleted(&options, deleted))
    }

    fn deleted(&self, options: &DeleteOptions, deleted: Deleted) -> Reply {
        // As upstream, for old clients: only callers with `orphanDependents: false` get 202.
        let code = if !deleted.gone && options.orphans == Some(false) {
            StatusCode::ACCEPTED
        } else {
            StatusCode::OK
        };
        if deleted.answers_object {
            Reply::Object(code, deleted.object)
        } else {
            Reply::Value(code, deleted.status(self.kind))
        }
    }

    fn delete_collection(&mut self) -> Result<Reply> {
        if self.kind.is_namespace() {
            return Err(Status::method_not_allowed());
        }
        let options = body::delete_options(self.request)?;
        let list_options = ListOptions::parse(self.kind, &self.request.options)?;
        let list = self.write(|writer| {
            writer.dry_run |= options.dry_run;
            let list = writer.state.list(self.kind, &self.resource.namespace, &list_options)?;
            writer.delete_each(self.kind, &list.objects, &options)?;
            // As upstream, the response has the objects as they were listed.
            Ok(list)
        })?;
        Ok(Reply::List(list))
    }

    fn bind(&mut self) -> Result<Reply> {
        let binding = body::untyped(self.request, "v1", "Binding")?;
        let Resource { namespace, name, .. } = self.resource;
        let given = text_in(&binding, &["metadata", "name"]);
        if !given.is_empty() && given != *name {
            return Err(Status::bad_request("name in URL does not match name in Binding object"));
        }
        self.write(|writer| writer.bind(self.kind, namespace, name, &binding))?;
        Ok(Reply::Value(StatusCode::CREATED, eviction::success()))
    }

    fn evict(&mut self) -> Result<Reply> {
        let eviction = body::untyped(self.request, "policy/v1", "Eviction")?;
        let Resource { namespace, name, .. } = self.resource;
        eviction::check(&eviction, name)?;
        let options = match eviction.get("deleteOptions") {
            Some(options) => DeleteOptions::parse(Some(options), &self.request.options)?,
            None => DeleteOptions::default(),
        };
        self.write(|writer| {
            writer.dry_run |= options.dry_run;
            writer.evict(self.kind, namespace, name, &options)
        })?;
        Ok(Reply::Value(StatusCode::CREATED, eviction::success()))
    }

    /// The paths of the replica counts.
    fn scale_paths(&self) -> Result<ScalePaths> {
        if !self.kind.custom {
            return Ok(ScalePaths::built_in());
        }
        let version = self.shared.definition(self.kind);
        version.as_ref().and_then(ScalePaths::of_version).ok_or_else(Status::no_such_path)
    }

    fn scale(&mut self) -> Result<Reply> {
        let Resource { namespace, name, .. } = self.resource;
        let paths = self.scale_paths()?;
        let (kind, request) = (self.kind, self.request);
        let changed = self.write(|writer| {
            writer.update(kind, namespace, name, Part::Sub(Subresource::Scale), |_, old| {
                let old_scale = scale_of(old, &paths);
                let new_scale = match request.method {
                    Method::PATCH => patch::apply_to(
                        &body::patch(kind, request)?,
                        &old_scale,
                        Schema::get().kind("autoscaling/v1", "Scale"),
                    )?,
                    _ => body::untyped(request, "autoscaling/v1", "Scale")?,
                };
                let version = text_in(&new_scale, &["metadata", "resourceVersion"]);
                if !version.is_empty() && version != text_in(old, &["metadata", "resourceVersion"]) {
                    return Err(Status::stale(kind, name));
                }
                let mut new = old.clone();
                set_scale(&mut new, &new_scale, &paths)?;
                Ok(new)
            })
        })?;
        Ok(Reply::Value(StatusCode::OK, scale_of(&changed.value(kind), &paths)))
    }

    fn review(&mut self) -> Result<Reply> {
        if self.request.method != Method::POST || !self.resource.name.is_empty() {
            return Err(Status::method_not_allowed());
        }
        let object = self.object()?;
        let caller = &self.request.caller;
        let groups = caller.groups.iter().map(ToString::to_string).collect();
        let user = User { name: caller.name.to_string(), groups };
        let is_token = |token: &str| caller.token.as_deref() == Some(token);
        let answer = reviews::answer(self.kind, object, &self.resource.namespace, &user, is_token)?;
        Ok(Reply::Value(StatusCode::CREATED, answer))
    }
}

fn part(subresource: Option<Subresource>) -> Part {
    match subresource {
        None => Part::Main,
        Some(Subresource::Status) => Part::Status,
        Some(subresource) => Part::Sub(subresource),
    }
}

/// Subresources of pods that are not updates.
impl Writer<'_> {
    fn bind(&mut self, kind: &Kind, namespace: &str, name: &str, to: &Value) -> Result<()> {
        let now = timestamp(self.now);
        self.update(kind, namespace, name, Part::Sub(Subresource::Binding), |objects, old| {
            let mut pod = old.clone();
            binding::bind(&mut pod, to, objects, &now)?;
            Ok(pod)
        })?;
        Ok(())
    }

    fn evict(&mut self, kind: &Kind, namespace: &str, name: &str, options: &DeleteOptions) -> Result<()> {
        let pod = self.state.get(kind, namespace, name)?.value(kind);
        // The lock keeps the pod unchanged, so `only_this_version` holds.
        if let Some(budget) = eviction::decide(&pod, &*self.state, self.now)?.budget {
            let kind = self.state.registry.find("policy", "v1", "poddisruptionbudgets")?.clone();
            let name = text_in(&budget, &["metadata", "name"]).to_owned();
            self.update(&kind, namespace, &name, Part::Status, |_, _| Ok(budget))?;
        }
        let mut marked = pod;
        eviction::mark(&mut marked, &timestamp(self.now));
        self.update(kind, namespace, name, Part::Sub(Subresource::Eviction), |_, _| Ok(marked))?;
        self.delete(kind, namespace, name, options)?;
        Ok(())
    }
}
