import { kindOf } from "./abi";

/** Why a call gave nothing. */
export class Failure {
  constructor(
    /** What was tried, as in `files read docs/notes.txt`. */
    readonly operation: string,
    /** The kind of error in the words of the contract, as in `not_found`; `not text` and `not json` are the SDK's own. */
    readonly kind: string,
  ) {}

  /** The failure that a negative result of the host tells of. */
  static ofCode(operation: string, code: i32): Failure {
    return new Failure(operation, kindOf(code));
  }

  toString(): string {
    return this.operation + ": " + this.kind;
  }
}

/**
 * What a call gave, or why it gave nothing. AssemblyScript has no exceptions that can be
 * caught, so failures are values:
 *
 *     const notes = files.root("notes").readText("today.md");
 *     if (notes.failure) return fail(notes.failure!.toString());
 *     return notes.value;
 */
export class Result<T> {
  private constructor(
    private found: T,
    /** Null if there is a value. */
    readonly failure: Failure | null,
  ) {}

  static of<T>(value: T): Result<T> {
    return new Result<T>(value, null);
  }

  static failed<T>(failure: Failure): Result<T> {
    // Nothing stands in the place of the value; no getter returns it.
    if (isReference<T>()) return new Result<T>(changetype<T>(0), failure);
    else return new Result<T>(<T>0, failure);
  }

  get ok(): bool {
    return this.failure === null;
  }

  /** The value. Without one the query fails, with the failure as its text. */
  get value(): T {
    const failure = this.failure;
    if (failure) throw new Error(failure.toString());
    return this.found;
  }
}
