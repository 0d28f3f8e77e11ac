// Package demo carries the recorded week that glovebox demo plays: a
// conversation, calendars and mailboxes, all invented.
package demo

import "embed"

// Files holds transcript.jsonl, calendars and mail.
//
//go:embed transcript.jsonl all:calendars all:mail
var Files embed.FS
