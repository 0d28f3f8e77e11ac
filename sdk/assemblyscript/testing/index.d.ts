/** What the hand is asked, in the names of the contract; what is left out has a value of its own. */
export interface Query {
  prompt?: string;
  /** RFC 3339 or a Date; 2026-03-22T09:00:00Z, and a day later for to and now. */
  from?: string | Date;
  to?: string | Date;
  now?: string | Date;
  /** "UTC". */
  timezone?: string;
  /** 2,000. */
  max_output_tokens?: number;
  subject?: string;
  config?: Record<string, string | number | boolean | string[]>;
  /** Fields that the hand does not know. */
  [field: string]: unknown;
}

/** A file's content, and when it was last modified. */
export type File = string | Uint8Array | { data: string | Uint8Array; mtime?: string | Date };

export interface Request {
  method: string;
  url: string;
  header: [string, string][];
  body: Uint8Array;
  timeout_ms: number;
}

export interface Response {
  /** 200. */
  status?: number;
  /** The request's. */
  url?: string;
  header?: Record<string, string> | [string, string][];
  body?: string | Uint8Array;
  truncated?: boolean;
}

export interface Prompt {
  system: string;
  prompt: string;
  max_output_tokens: number;
}

/** What the hand can reach. A part that is left out is not granted. */
export interface World {
  /** Roots by name, files by path: { docs: { "2026/march.txt": "…" } }. */
  files?: Record<string, Record<string, File>>;
  http?: (request: Request) => Response;
  /** What is kept, before and after the query. */
  kv?: Map<string, string | Uint8Array>;
  llm?: (prompt: Prompt) => string | { text: string; input_tokens: number; output_tokens: number };
}

export interface Answer {
  /** Empty if the hand failed or had nothing to say. The host would cut it to max_output_tokens. */
  reply: string;
  /** null, "hand_failed", or "trap" where the module came to an end: an Error of AssemblyScript does that. */
  kind: null | "hand_failed" | "trap";
  /** What the hand said of its failure, or the engine of the trap. */
  failure: string | null;
  log: { level: "debug" | "info" | "warn" | "error"; text: string }[];
  /** The capability calls. */
  calls: number;
  memoryBytes: number;
}

/** Thrown by http and llm of a world, it lets the call fail with a kind, such as "timeout". */
export class Refused extends Error {
  constructor(kind: string);
  readonly kind: string;
}

/** A module. It throws for one that no host would admit. */
export class Hand {
  constructor(bytes: Uint8Array);
  readonly capabilities: string[];
  /**
   * Asks after warming up, as a host does that keeps an image, or with warm false as one that keeps none.
   * It throws where warming fails, which a host only takes for slow.
   */
  ask(query?: Query, world?: World, options?: { warm?: boolean }): Answer;
}

/** Reads a module from a file. */
export function load(path: string | URL): Promise<Hand>;
