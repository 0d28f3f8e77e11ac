//! The trivial hand: it reads the query and replies a constant.

#[link(wasm_import_module = "glovebox")]
extern "C" {
    fn query_size() -> i32;
    fn query_read(to: *mut u8, capacity: usize) -> i32;
    fn reply(text: *const u8, length: usize) -> i32;
}

#[link(wasm_import_module = "glovebox_kv")]
extern "C" {
    fn get(request: *const u8, length: usize) -> i32;
}

#[no_mangle]
pub extern "C" fn glovebox_query_v1() -> i32 {
    let mut bytes = vec![0; unsafe { query_size() } as usize];
    unsafe { query_read(bytes.as_mut_ptr(), bytes.len()) };
    let query = String::from_utf8(bytes).expect("a query is UTF-8");
    if query.starts_with("{\"prompt\":\"!") {
        let request = "{\"key\":\"wait\"}";
        unsafe { get(request.as_ptr(), request.len()) };
    }
    let text = format!("{} happened.", if query.is_empty() { "What" } else { "Nothing" });
    unsafe { reply(text.as_ptr(), text.len()) }
}
