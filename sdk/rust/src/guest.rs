//! The border to the host: the only unsafe code of this crate.
//!
//! A host function that nothing calls is not in the module: the linker leaves it out.
//! So a hand asks for the capabilities that it uses, and for no other.

use crate::abi::{Kind, Level};

/// Declares the capability functions of the host, which all have one form: a request in,
/// the size of the result out, or the negative code of a kind. In a native build they
/// go to the `World` of the test.
macro_rules! capability_functions {
    ($($module:literal $function:literal => $name:ident, $call:ident;)*) => {
        $(
            #[cfg(target_family = "wasm")]
            pub(crate) fn $name(request: &[u8]) -> Result<Vec<u8>, Kind> {
                #[link(wasm_import_module = $module)]
                extern "C" {
                    #[link_name = $function]
                    fn import(request: *const u8, length: usize) -> i32;
                }
                // SAFETY: the host reads `length` bytes at `request` during the call and
                // keeps no pointer; both are of a slice that outlives it.
                wasm::result(unsafe { import(request.as_ptr(), request.len()) })
            }

            #[cfg(not(target_family = "wasm"))]
            pub(crate) fn $name(request: &[u8]) -> Result<Vec<u8>, Kind> {
                crate::testing::call(crate::testing::Call::$call, request)
            }
        )*
    };
}

capability_functions! {
    "glovebox_files" "list" => files_list, FilesList;
    "glovebox_files" "read" => files_read, FilesRead;
    "glovebox_http" "fetch" => http_fetch, HttpFetch;
    "glovebox_kv" "get" => kv_get, KvGet;
    "glovebox_kv" "set" => kv_set, KvSet;
    "glovebox_kv" "delete" => kv_delete, KvDelete;
    "glovebox_kv" "list" => kv_list, KvList;
    "glovebox_llm" "complete" => llm_complete, LlmComplete;
}

#[cfg(target_family = "wasm")]
mod wasm {
    use super::{Kind, Level};

    #[link(wasm_import_module = "glovebox")]
    extern "C" {
        fn query_size() -> i32;
        fn query_read(to: *mut u8, capacity: usize) -> i32;
        fn reply(text: *const u8, length: usize) -> i32;
        fn fail(text: *const u8, length: usize);
        #[link_name = "log"]
        fn host_log(level: i32, text: *const u8, length: usize);
        fn result_read(to: *mut u8, capacity: usize) -> i32;
    }

    /// Fills a vector of `size` bytes by `read`, which says how many it wrote.
    fn filled(size: i32, read: unsafe extern "C" fn(*mut u8, usize) -> i32) -> Vec<u8> {
        let mut bytes = vec![0; size.max(0) as usize];
        // SAFETY: the host writes at most `capacity` bytes to the vector during the call.
        let written = unsafe { read(bytes.as_mut_ptr(), bytes.len()) };
        bytes.truncate(written.max(0) as usize);
        bytes
    }

    pub(super) fn result(size: i32) -> Result<Vec<u8>, Kind> {
        if size < 0 {
            return Err(Kind::of_code(size));
        }
        Ok(filled(size, result_read))
    }

    pub(crate) fn query() -> Vec<u8> {
        // SAFETY: it takes no pointer.
        filled(unsafe { query_size() }, query_read)
    }

    pub(crate) fn reply_text(text: &str) {
        // What is over the limit is cut by the host and marked: that is no failure.
        // SAFETY: the host reads the string during the call.
        unsafe { reply(text.as_ptr(), text.len()) };
    }

    pub(crate) fn fail_text(text: &str) {
        // SAFETY: the host reads the string during the call.
        unsafe { fail(text.as_ptr(), text.len()) }
    }

    pub(crate) fn log(level: Level, text: &str) {
        // SAFETY: the host reads the string during the call.
        unsafe { host_log(level as i32, text.as_ptr(), text.len()) }
    }

    /// Says in the failure why the module traps, which is how a panic ends.
    pub(crate) fn report_panics() {
        std::panic::set_hook(Box::new(|info| {
            let message = match info.payload().downcast_ref::<&str>() {
                Some(text) => text,
                None => info.payload().downcast_ref::<String>().map_or("", |s| s),
            };
            match info.location() {
                Some(at) => fail_text(&format!(
                    "panicked at {}:{}: {message}",
                    at.file(),
                    at.line()
                )),
                None => fail_text(&format!("panicked: {message}")),
            }
        }));
    }
}

#[cfg(target_family = "wasm")]
pub(crate) use wasm::{fail_text as fail, log, query, reply_text as reply, report_panics};

#[cfg(not(target_family = "wasm"))]
mod native {
    use super::Level;

    pub(crate) fn log(level: Level, text: &str) {
        crate::testing::log(level, text);
    }

    // Nothing calls the entry natively; these are what it is compiled against.

    pub(crate) fn query() -> Vec<u8> {
        Vec::new()
    }

    pub(crate) fn reply(_: &str) {}

    pub(crate) fn fail(_: &str) {}

    pub(crate) fn report_panics() {}
}

#[cfg(not(target_family = "wasm"))]
pub(crate) use native::{fail, log, query, reply, report_panics};
