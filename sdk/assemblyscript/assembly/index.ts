import * as files from "./files";
import * as http from "./http";
import * as json from "./json";
import * as kv from "./kv";
import * as llm from "./llm";
import * as log from "./log";
import * as tokens from "./tokens";

export { files, http, json, kv, llm, log, tokens };
export { register, warm, fail, glovebox_query_v1, glovebox_warm_v1 } from "./hand";
export { Query, Config } from "./query";
export { Result, Failure } from "./result";
export { Time } from "./time";
export { Kind, Level } from "./abi";
export { decodeText, encodeText } from "./text";
