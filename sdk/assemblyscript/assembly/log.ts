import { Level } from "./abi";
import * as host from "./host";

/** Writes one or more lines to the query's log, which the operator can read. */
export function write(level: Level, text: string): void {
  host.log(level, text);
}

export function debug(text: string): void {
  write(Level.Debug, text);
}

export function info(text: string): void {
  write(Level.Info, text);
}

export function warn(text: string): void {
  write(Level.Warn, text);
}

export function error(text: string): void {
  write(Level.Error, text);
}
