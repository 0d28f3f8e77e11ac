// asconfig.json adds this file to the entries of a hand, so that the module exports
// what the host calls without the author having to.
export { glovebox_query_v1, glovebox_warm_v1 } from "@gloveboxhq/hand";
