//! Builds and reads Kubernetes objects.

use std::{path::Path, process::Command, sync::OnceLock};

use serde::Deserialize;
use serde_yaml_ng::{Deserializer, Value};

use crate::kith::{Finished, finish, root};

/// Builds a folder with kustomize; `None`, with a message, without `kubectl`.
#[allow(clippy::print_stderr)]
pub(super) fn try_build(folder: &Path) -> Option<Finished> {
    static IS_THERE: OnceLock<bool> = OnceLock::new();
    if !IS_THERE.get_or_init(|| Command::new("kubectl").args(["version", "--client"]).output().is_ok()) {
        eprintln!("skipped: there is no kubectl on this machine");
        return None;
    }
    // Folders refer to files of other folders, which are ours.
    let options = ["kustomize", "--load-restrictor=LoadRestrictionsNone"];
    Some(finish(Command::new("kubectl").args(options).arg(folder)))
}

#[track_caller]
pub(super) fn build(folder: &Path) -> Option<Vec<Value>> {
    let built = try_build(folder)?;
    assert_eq!(built.code, Some(0), "{}: {}", folder.display(), built.stderr);
    Some(read(&built.stdout))
}

/// Folder of the manifests.
pub(super) fn manifests() -> std::path::PathBuf {
    root().join("deploy/kubernetes")
}

#[track_caller]
pub(super) fn read(text: &str) -> Vec<Value> {
    Deserializer::from_str(text).map(|object| Value::deserialize(object).expect("YAML")).collect()
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The items of a list; empty if there is none.
pub(super) fn items(value: &Value) -> &[Value] {
    value.as_sequence().map_or(&[], Vec::as_slice)
}

pub(super) fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

pub(super) fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

/// The object of this kind and name.
pub(super) fn find<'a>(objects: &'a [Value], kind: &str, called: &str) -> Option<&'a Value> {
    objects.iter().find(|object| object["kind"] == kind && name(object) == called)
}

/// Pod template, with labels, of a set, a job or a single pod.
pub(super) fn template(object: &Value) -> Option<&Value> {
    match text(&object["kind"]) {
        "StatefulSet" | "Job" => Some(&object["spec"]["template"]),
        "Pod" => Some(object),
        _ => None,
    }
}

/// All containers of a pod, including init containers.
pub(super) fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    items(&pod["spec"]["initContainers"]).iter().chain(items(&pod["spec"]["containers"]))
}

/// A container of a job or set, by name.
pub(super) fn container<'a>(workload: &'a Value, called: &str) -> Option<&'a Value> {
    containers(template(workload)?).find(|container| container["name"] == called)
}

/// Literal value of a variable.
pub(super) fn variable<'a>(container: &'a Value, called: &str) -> &'a str {
    let variables = items(&container["env"]);
    variables.iter().find(|variable| variable["name"] == called).map_or("", |variable| text(&variable["value"]))
}

pub(super) fn arguments(container: &Value) -> impl Iterator<Item = &str> {
    items(&container["command"]).iter().chain(items(&container["args"])).map(text)
}

/// Literal value of an option.
pub(super) fn option<'a>(container: &'a Value, called: &str) -> &'a str {
    arguments(container).find_map(|argument| argument.strip_prefix(called)?.strip_prefix('=')).unwrap_or_default()
}

/// True if a selector is not empty and matches the labels.
pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    let wanted = selector.as_mapping();
    wanted.is_some_and(|wanted| !wanted.is_empty() && wanted.iter().all(|(key, value)| labels[key] == *value))
}

/// Names between `$(` and `)`, unless the `$` is doubled.
pub(super) fn variables_in(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    expand(text, |name| {
        found.push(name.to_owned());
        Some(String::new())
    });
    found
}

/// Expands variables as Kubernetes does: `$(NAME)` becomes the value, if there is one, and `$$` a `$`.
pub(super) fn expand(text: &str, mut value: impl FnMut(&str) -> Option<String>) -> String {
    let mut made = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        made += before;
        rest = after;
        if let Some(after) = rest.strip_prefix('$') {
            made.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
            made += &value(name).unwrap_or_else(|| format!("$({name})"));
            rest = after;
        } else {
            made.push('$');
        }
    }
    made + rest
}

#[test]
fn variables_are_put_in_their_place() {
    let value = |name: &str| (name == "A").then(|| "$(B)".to_owned());
    for (text, expected) in
        [("x$(A)y", "x$(B)y"), ("$$(A)", "$(A)"), ("$(B)$", "$(B)$"), ("$$$(A)", "$$(B)"), ("$(A", "$(A"), ("$A", "$A")]
    {
        assert_eq!(expand(text, value), expected, "{text}");
    }
    assert_eq!(variables_in("$(A) $$(B) $(C)"), ["A", "C"]);
}
