//! Values from closed lists of Kubernetes, such as kinds. Its schemas accept wrong ones.

use serde_yaml_ng::Value;

use super::objects::{name, text};

const KINDS: &[(&str, &str)] = &[
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "Job"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("policy/v1", "PodDisruptionBudget"),
    ("v1", "ConfigMap"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "Pod"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
];

/// Allowed values by the end of a field's path, without indices.
const WORDS: &[(&str, &[&str])] = &[
    ("accessModes", &["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"]),
    ("capabilities.drop", &["ALL"]),
    ("clusterIP", &["None"]),
    ("completionMode", &["Indexed", "NonIndexed"]),
    ("emptyDir.medium", &["", "Memory"]),
    ("fsGroupChangePolicy", &["Always", "OnRootMismatch"]),
    ("imagePullPolicy", &["Always", "IfNotPresent", "Never"]),
    ("matchExpressions.operator", &["In", "NotIn", "Exists", "DoesNotExist"]),
    ("onExitCodes.operator", &["In", "NotIn"]),
    ("onPodConditions.status", &["True", "False", "Unknown"]),
    ("onPodConditions.type", &["DisruptionTarget"]),
    ("podFailurePolicy.rules.action", &["Count", "FailIndex", "FailJob", "Ignore"]),
    ("podManagementPolicy", &["OrderedReady", "Parallel"]),
    ("policyTypes", &["Egress", "Ingress"]),
    ("protocol", &["TCP", "UDP"]),
    ("resourceFieldRef.resource", &["limits.cpu", "limits.memory", "requests.cpu", "requests.memory"]),
    ("fieldRef.fieldPath", &["metadata.labels['apps.kubernetes.io/pod-index']"]),
    ("restartPolicy", &["Never"]), // Sets always restart, and do not set this field.
    ("seccompProfile.type", &["RuntimeDefault"]),
    ("tolerations.effect", &["NoExecute", "NoSchedule", "PreferNoSchedule"]),
    ("tolerations.operator", &["Equal", "Exists"]),
    ("topologyKey", &["kubernetes.io/hostname"]),
    ("updateStrategy.type", &["OnDelete", "RollingUpdate"]),
    ("whenUnsatisfiable", &["DoNotSchedule", "ScheduleAnyway"]),
];

/// Ends of fields with enumerated values. All of them must be in [`WORDS`], so that a new one is not forgotten.
const ENUMS: &[&str] = &["action", "effect", "medium", "operator", "status", "type"];

pub(super) fn problems(objects: &[Value]) -> Vec<String> {
    let mut problems = Vec::new();
    for object in objects {
        let kind = (text(&object["apiVersion"]), text(&object["kind"]));
        if !KINDS.contains(&kind) {
            problems.push(format!("{}: no such kind is used: {kind:?}", name(object)));
        }
        look(object, &format!("{}/{}", kind.1, name(object)), "", &mut problems);
    }
    problems
}

fn look(value: &Value, of: &str, path: &str, problems: &mut Vec<String>) {
    match value {
        Value::Mapping(fields) => {
            // Labels, annotations and data are free text.
            let is_free = ["labels", "annotations", "matchLabels", "data", "selector"];
            for (key, value) in fields.iter().filter(|(key, _)| !is_free.contains(&text(key))) {
                look(value, of, &format!("{path}.{}", text(key)), problems);
            }
        }
        Value::Sequence(values) => values.iter().for_each(|value| look(value, of, path, problems)),
        Value::String(word) => {
            let known = WORDS.iter().find(|(end, _)| path.ends_with(&format!(".{end}")));
            match known {
                Some((_, words)) if !words.contains(&word.as_str()) => {
                    problems.push(format!("{of}: {path} is {word}, not one of {words:?}"));
                }
                None if ENUMS.iter().any(|end| path.ends_with(&format!(".{end}"))) => {
                    problems.push(format!("{of}: {path} takes one of few words, and the test does not know which"));
                }
                _ => {}
            }
        }
        _ => {}
    }
}
