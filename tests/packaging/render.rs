//! Renders `manifests/base` like `kubectl kustomize`, with comments kept. It supports the part of
//! kustomize that the base uses; other fields are errors.

use std::path::Path;

use serde_json::Value;

/// The supported fields of a kustomization.
const FIELDS: &[&str] = &["apiVersion", "images", "kind", "resources"];

/// The supported fields of an entry of `images`.
const IMAGE_FIELDS: &[&str] = &["digest", "name", "newName", "newTag"];

/// The paths of containers in objects.
const CONTAINERS: &[&str] = &["containers", "ephemeralContainers", "initContainers"];

/// A kustomization: its resources and renamed images.
#[derive(Debug)]
pub(super) struct Kustomization {
    resources: Vec<String>,
    images: Vec<Image>,
}

/// One entry of `images`.
#[derive(Debug)]
struct Image {
    name: String,
    new_name: Option<String>,
    new_tag: Option<String>,
    digest: Option<String>,
}

impl Kustomization {
    /// Reads a kustomization. An unknown field is an error that names it.
    pub(super) fn parse(object: &Value) -> Result<Self, String> {
        only(object, FIELDS, "kustomization.yaml")?;
        let list = |field: &str| object[field].as_array().cloned().unwrap_or_default();
        let file = |resource: &Value| match resource.as_str() {
            Some(file) if !file.contains('/') && is_yaml(file) => Ok(file.to_owned()),
            _ => Err(format!("resources: {resource} is no YAML file of the base's own folder")),
        };
        Ok(Self {
            resources: list("resources").iter().map(file).collect::<Result<_, _>>()?,
            images: list("images").iter().map(Image::parse).collect::<Result<_, _>>()?,
        })
    }

    /// All resources in one text, in order, each read by `read`.
    pub(super) fn render(&self, read: impl Fn(&str) -> String) -> Result<String, String> {
        let mut rendered = String::new();
        for file in &self.resources {
            let text = read(file);
            if text.lines().any(|line| line.starts_with("---") || line.starts_with('%')) {
                return Err(format!("{file} has more than one document or a directive"));
            }
            rendered.push_str("---\n");
            for line in text.lines() {
                rendered.push_str(&self.line(line));
                rendered.push('\n');
            }
        }
        Ok(rendered)
    }

    /// A line with its image renamed, if it has one.
    fn line(&self, line: &str) -> String {
        let field = line.trim_start().trim_start_matches("- ");
        match field.strip_prefix("image: ") {
            Some(image) => {
                let before = &line[..line.len() - image.len()];
                format!("{before}{}", self.image(image))
            }
            None => line.to_owned(),
        }
    }

    /// The new name of an image.
    fn image(&self, image: &str) -> String {
        let (name, rest) = image.split_at(name_length(image));
        let Some(rule) = self.images.iter().find(|rule| rule.name == name) else {
            return image.to_owned();
        };
        let name = rule.new_name.as_deref().unwrap_or(name);
        match (&rule.digest, &rule.new_tag) {
            (Some(digest), _) => format!("{name}@{digest}"),
            (None, Some(tag)) => format!("{name}:{tag}"),
            (None, None) => format!("{name}{rest}"),
        }
    }

    /// Renames the images of an object. A second implementation to compare the text with.
    pub(super) fn rename(&self, object: &mut Value) {
        match object {
            Value::Array(items) => items.iter_mut().for_each(|item| self.rename(item)),
            Value::Object(fields) => {
                for (field, value) in fields {
                    let containers = value.as_array_mut().filter(|_| CONTAINERS.contains(&field.as_str()));
                    for container in containers.into_iter().flatten() {
                        if let Some(image) = container["image"].as_str() {
                            container["image"] = self.image(image).into();
                        }
                    }
                    self.rename(value);
                }
            }
            _ => {}
        }
    }
}

impl Image {
    fn parse(object: &Value) -> Result<Self, String> {
        only(object, IMAGE_FIELDS, "images")?;
        let field = |name: &str| object[name].as_str().map(str::to_owned);
        Ok(Self {
            name: field("name").ok_or("images: an entry has no name")?,
            new_name: field("newName"),
            new_tag: field("newTag"),
            digest: field("digest"),
        })
    }
}

/// Whether a file is a kustomization.
pub(super) fn is_yaml(file: &str) -> bool {
    Path::new(file).extension().is_some_and(|end| end == "yaml")
}

/// The length of an image's name without tag and digest. A colon before a slash belongs to a port.
fn name_length(image: &str) -> usize {
    let end = image.find('@').unwrap_or(image.len());
    let path = image[..end].rfind('/').map_or(0, |slash| slash + 1);
    image[path..end].find(':').map_or(end, |colon| path + colon)
}

/// Asserts that an object has only these fields.
fn only(object: &Value, known: &[&str], what: &str) -> Result<(), String> {
    let fields = object.as_object().ok_or_else(|| format!("{what} is no object"))?;
    match fields.keys().find(|field| !known.contains(&field.as_str())) {
        Some(field) => Err(format!("{what}: the renderer does not know {field}")),
        None => Ok(()),
    }
}
