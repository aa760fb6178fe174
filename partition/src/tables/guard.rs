//! Turns panics of a third-party decoder into errors: it panics on some damaged files.

use std::{
    any::Any,
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook},
    sync::Once,
};

thread_local! {
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

static HOOK: Once = Once::new();

/// Does what a decoder does; if it panics, says in which words. Whatever it was working on must be dropped then.
pub(super) fn guard<R>(decode: impl FnOnce() -> R) -> Result<R, String> {
    // A panic that becomes an error is not printed; all others go to the previous hook.
    HOOK.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_GUARDED.get() {
                print(panic);
            }
        }));
    });
    IS_GUARDED.set(true);
    let result = catch_unwind(AssertUnwindSafe(decode));
    IS_GUARDED.set(false);
    result.map_err(words)
}

fn words(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast::<String>().map(|text| *text);
    text.or_else(|panic| panic.downcast::<&str>().map(|text| text.to_string())).unwrap_or_else(|_| "no reason".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_become_errors() {
        assert_eq!(guard(|| 3), Ok(3));
        assert_eq!(guard(|| [1, 2].get(9).copied().expect("too far")), Err("too far".to_owned()));
        let long = "x".repeat(9);
        assert_eq!(guard(|| -> u8 { panic!("{long}") }), Err(long));
    }
}
