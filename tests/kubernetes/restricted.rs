//! The requirements of Kubernetes' restricted Pod Security, and a few more.

use serde_yaml_ng::Value;

use super::objects::{containers, items, name, template, text};

const VOLUMES: &[&str] = &["configMap", "emptyDir", "persistentVolumeClaim", "secret"];

pub(super) fn problems(objects: &[Value]) -> Vec<String> {
    let mut problems = Vec::new();
    for object in objects {
        let Some(pod) = template(object) else { continue };
        let mut check = |is_met: bool, what: &str| {
            if !is_met {
                problems.push(format!("{} {}: {what}", text(&object["kind"]), name(object)));
            }
        };
        let (spec, context) = (&pod["spec"], &pod["spec"]["securityContext"]);
        check(context["runAsNonRoot"] == true, "runs as root");
        check(context["runAsUser"].as_u64().is_some_and(|user| user > 0), "has no user of its own");
        check(context["seccompProfile"]["type"] == "RuntimeDefault", "has no seccomp profile");
        check(spec["automountServiceAccountToken"] == false, "has a token of the cluster");
        for forbidden in ["hostNetwork", "hostPID", "hostIPC", "hostUsers"] {
            check(spec.get(forbidden).is_none(), forbidden);
        }
        for volume in items(&spec["volumes"]) {
            let is_known = volume.as_mapping().is_some_and(|fields| {
                fields.len() == 2 && fields.keys().all(|key| key == "name" || VOLUMES.contains(&text(key)))
            });
            check(is_known, &format!("volume {volume:?}"));
        }
        for container in containers(pod) {
            let context = &container["securityContext"];
            check(context["allowPrivilegeEscalation"] == false, "may gain privileges");
            check(context["readOnlyRootFilesystem"] == true, "may write to its image");
            check(items(&context["capabilities"]["drop"]).iter().any(|dropped| dropped == "ALL"), "has capabilities");
            check(context["capabilities"].get("add").is_none(), "has capabilities");
            check(context.get("privileged").is_none() && context.get("runAsUser").is_none(), "is another user");
            for resource in ["cpu", "memory"] {
                let resources = &container["resources"];
                let amounts = ["requests", "limits"].map(|amount| quantity(&resources[amount][resource]));
                check(amounts[0] > 0.0 && amounts[0] <= amounts[1], &format!("asks for {amounts:?} of {resource}"));
            }
        }
    }
    for account in objects.iter().filter(|object| object["kind"] == "ServiceAccount") {
        if account["automountServiceAccountToken"] != false {
            problems.push(format!("account {} gives tokens away", name(account)));
        }
    }
    problems
}

/// Parses a Kubernetes quantity; 0 if it is invalid.
pub(super) fn quantity(value: &Value) -> f64 {
    let text = text(value);
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => 1.0,
        "m" => 0.001,
        "Mi" => 1048576.0,
        "Gi" => 1073741824.0,
        _ => 0.0,
    };
    digits.parse::<f64>().unwrap_or(0.0) * unit
}
