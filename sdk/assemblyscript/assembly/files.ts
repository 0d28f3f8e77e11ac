// The directories that the operator granted to a hand. A module that uses something of this
// asks for the capability "files"; the manifest must ask for it too, with the roots.

import { Kind } from "./abi";
import * as host from "./host";
import { quote, Reader } from "./json";
import { Failure, Result } from "./result";
import { decodeText, encode } from "./text";
import { Time } from "./time";

// @ts-ignore: decorator
@external("glovebox_files", "list")
declare function host_list(ptr: usize, len: i32): i32;
// @ts-ignore: decorator
@external("glovebox_files", "read")
declare function host_read(ptr: usize, len: i32): i32;

/** What one call of the host reads. Its limit is 1 MiB unless the operator changed it. */
const PIECE_BYTES: i32 = 512 << 10;

/** What read returns at most, unless it is told. */
export const DEFAULT_READ_LIMIT: i32 = 8 << 20;

const UNKNOWN_TIME = new Time(0);

/** What is known of a file or directory. */
export class Entry {
  name: string = "";
  /** "file", "dir" or "other"; only files can be read. */
  type: string = "other";
  /** In bytes; 0 for what is not a file. */
  size: i64 = 0;
  modified: Time = UNKNOWN_TIME;

  get isFile(): bool {
    return this.type == "file";
  }
  get isDirectory(): bool {
    return this.type == "dir";
  }
}

/** A path and, if it is a directory, what is in it, in the order of the names' bytes. */
export class Listing {
  self: Entry = new Entry();
  entries: Entry[] = [];
  /** Says that entries follow the last one. */
  more: bool = false;
}

/** The directory that was granted under a name. Using one that was not granted gives `not_granted`. */
export function root(name: string): Root {
  return new Root(name);
}

/** A granted directory. Paths in it are separated by /; "" is the directory itself. It is read-only. */
export class Root {
  constructor(readonly name: string) {}

  /** Describes one path. */
  stat(path: string): Result<Entry> {
    const listing = new Listing();
    const failure = this.addPage(listing, "stat", path, "", 1);
    return failure ? Result.failed<Entry>(failure) : Result.of(listing.self);
  }

  /** Describes a path and all that is in it. */
  list(path: string): Result<Listing> {
    const listing = new Listing();
    do {
      const seen = listing.entries.length;
      const after = seen > 0 ? listing.entries[seen - 1].name : "";
      const failure = this.addPage(listing, "list", path, after, 0);
      if (failure) return Result.failed<Listing>(failure);
      if (listing.entries.length == seen) break;
    } while (listing.more);
    listing.more = false;
    return Result.of(listing);
  }

  /** Describes a path and at most limit (1 to 1,000) entries in it that come after the name after. */
  page(path: string, after: string, limit: i32): Result<Listing> {
    const listing = new Listing();
    const failure = this.addPage(listing, "list", path, after, limit);
    return failure ? Result.failed<Listing>(failure) : Result.of(listing);
  }

  /** Reads a whole file; one of more than limit bytes gives `too_large`. */
  read(path: string, limit: i32 = DEFAULT_READ_LIMIT): Result<Uint8Array> {
    const first = this.call("read", path, 0, PIECE_BYTES);
    if (first < 0) return Result.failed<Uint8Array>(Failure.ofCode(this.operation("read", path), first));
    if (first > limit) return Result.failed<Uint8Array>(new Failure(this.operation("read", path), Kind.TOO_LARGE));
    const piece = host.result(first);
    if (first < PIECE_BYTES) return Result.of(piece);

    const entry = this.stat(path);
    if (!entry.ok) return Result.failed<Uint8Array>(entry.failure!);
    if (entry.value.size > limit) return Result.failed<Uint8Array>(new Failure(this.operation("read", path), Kind.TOO_LARGE));
    const whole = new Uint8Array(max(first, <i32>entry.value.size));
    whole.set(piece);
    let at = first;
    while (at < whole.length) {
      const more = this.readInto(path, at, whole.subarray(at));
      if (!more.ok) return Result.failed<Uint8Array>(more.failure!);
      if (more.value == 0) break;
      at += more.value;
    }
    return Result.of(whole.subarray(0, at));
  }

  /** Reads a whole file as text; one that is not UTF-8 gives `not text`. */
  readText(path: string, limit: i32 = DEFAULT_READ_LIMIT): Result<string> {
    const bytes = this.read(path, limit);
    if (!bytes.ok) return Result.failed<string>(bytes.failure!);
    const text = decodeText(bytes.value);
    return text === null ? Result.failed<string>(new Failure(this.operation("read", path), "not text")) : Result.of<string>(text);
  }

  /**
   * Reads from offset on into buffer, and returns how much of it was filled: less than all, or
   * nothing, at the end of the file. One call reads at most 512 KiB. It is how a file of any
   * size is read in little memory.
   */
  readInto(path: string, offset: i64, buffer: Uint8Array): Result<i32> {
    const size = this.call("read", path, offset, min(buffer.length, PIECE_BYTES));
    return size < 0 ? Result.failed<i32>(Failure.ofCode(this.operation("read", path), size)) : Result.of(host.resultInto(buffer));
  }

  private call(operation: string, path: string, offset: i64, length: i32): i32 {
    const request = encode('{"root":' + quote(this.name) + ',"path":' + quote(path) + ',"offset":' + offset.toString() + ',"length":' + length.toString() + "}");
    return host_read(changetype<usize>(request), request.byteLength);
  }

  private addPage(listing: Listing, operation: string, path: string, after: string, limit: i32): Failure | null {
    const request = encode('{"root":' + quote(this.name) + ',"path":' + quote(path) + ',"after":' + quote(after) + ',"limit":' + limit.toString() + "}");
    const size = host_list(changetype<usize>(request), request.byteLength);
    if (size < 0) return Failure.ofCode(this.operation(operation, path), size);
    const reader = new Reader(host.passingResult(size));
    listing.more = false;
    reader.object();
    while (reader.nextKey()) {
      if (reader.keyIs("self")) readEntry(reader, listing.self);
      else if (reader.keyIs("more")) listing.more = reader.boolean();
      else if (reader.keyIs("entries")) {
        reader.array();
        while (reader.nextItem()) {
          const entry = new Entry();
          readEntry(reader, entry);
          listing.entries.push(entry);
        }
      } else reader.skip();
    }
    return reader.finish(this.operation(operation, path));
  }

  private operation(name: string, path: string): string {
    return "files " + name + " " + this.name + "/" + path;
  }
}

function readEntry(reader: Reader, entry: Entry): void {
  reader.object();
  while (reader.nextKey()) {
    if (reader.keyIs("name")) entry.name = reader.string();
    else if (reader.keyIs("size")) entry.size = reader.integer();
    else if (reader.keyIs("type")) {
      const type = reader.string();
      // The constants, so that a large folder does not keep each entry's own copy.
      entry.type = type == "file" ? "file" : type == "dir" ? "dir" : "other";
    } else if (reader.keyIs("mtime")) {
      const time = Time.parse(reader.string());
      if (time) entry.modified = time;
    } else reader.skip();
  }
}
