//! Ranks that share a GPU. NCCL refuses them: an error, unless the user asked for it.

use std::collections::BTreeMap;

use kith_group::member::Member;

/// Ranks that share a GPU, GPU by GPU.
fn groups(members: &[Member]) -> Vec<Vec<&Member>> {
    let mut by_gpu: BTreeMap<(&str, &str), Vec<&Member>> = BTreeMap::new();
    for member in members {
        if let Some(gpu) = &member.gpu {
            by_gpu.entry((&member.machine, gpu)).or_default().push(member);
        }
    }
    let mut shared: Vec<Vec<&Member>> = by_gpu.into_values().filter(|ranks| ranks.len() > 1).collect();
    shared.sort_by_key(|ranks| ranks[0].rank);
    shared
}

/// Error message about ranks that share a GPU without `--share-device`.
pub(super) fn refused(members: &[Member]) -> Option<String> {
    let groups = groups(members);
    let wrong: Vec<String> =
        groups.iter().filter(|ranks| !ranks.iter().all(|rank| rank.shares_gpu)).map(|ranks| describe(ranks)).collect();
    (!wrong.is_empty()).then(|| {
        format!(
            "{}: give every rank a GPU of its own (--device cuda:N, CUDA_VISIBLE_DEVICES), start fewer ranks, or give \
             --share-device to all of them",
            wrong.join("; ")
        )
    })
}

/// Notes about ranks that share a GPU with `--share-device`.
pub(super) fn notes(members: &[Member]) -> Vec<String> {
    let note =
        |ranks: &Vec<&Member>| format!("{} (--share-device): each of them is slower than alone", describe(ranks));
    groups(members).iter().map(note).collect()
}

/// As in: ranks 0, 2 share cuda:0 (GPU-8f3c…) on host-a.
fn describe(ranks: &[&Member]) -> String {
    let numbers: Vec<String> = ranks.iter().map(|member| member.rank.to_string()).collect();
    let gpu = ranks[0].gpu.as_deref().unwrap_or_default();
    format!("ranks {} share {} ({gpu}) on {}", numbers.join(", "), ranks[0].device, ranks[0].host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(rank: usize, machine: &str, gpu: Option<&str>, shares_gpu: bool) -> Member {
        let (host, device) = (format!("host-of-{machine}"), "cuda:0".to_owned());
        Member {
            rank,
            host,
            device,
            machine: machine.to_owned(),
            gpu: gpu.map(str::to_owned),
            shares_gpu,
            ..Member::default()
        }
    }

    #[test]
    fn ranks_that_share_a_gpu_are_named() {
        let members = [
            member(0, "a", Some("GPU-1"), false),
            member(1, "a", Some("GPU-2"), false),
            member(2, "a", Some("GPU-1"), false),
            // A PCI address of another machine is another device.
            member(3, "b", Some("GPU-1"), false),
        ];
        let sentence = refused(&members).unwrap();
        assert!(
            sentence.starts_with("ranks 0, 2 share cuda:0 (GPU-1) on host-of-a: give every rank a GPU"),
            "{sentence}"
        );
        assert!(sentence.ends_with("or give --share-device to all of them"), "{sentence}");
        assert_eq!((refused(&members[..2]), refused(&members[1..])), (None, None));
    }

    #[test]
    fn all_ranks_of_a_gpu_must_have_been_asked_to_share_it() {
        let group = |shares: [bool; 2]| [0, 1].map(|rank| member(rank, "a", Some("GPU-1"), shares[rank]));
        assert_eq!(refused(&group([true, true])), None);
        assert!(refused(&group([true, false])).is_some());
        assert_eq!(
            notes(&group([true, true])),
            ["ranks 0, 1 share cuda:0 (GPU-1) on host-of-a (--share-device): each of them is slower than alone"]
        );
    }

    #[test]
    fn ranks_without_a_gpu_share_none() {
        let members = [0, 1].map(|rank| member(rank, "a", None, false));
        assert_eq!((refused(&members), notes(&members)), (None, vec![]));
    }
}
