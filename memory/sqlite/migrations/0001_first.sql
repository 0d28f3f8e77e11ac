-- Ids are UUIDs as blobs of 16 bytes, times microseconds since 1970 in UTC.

CREATE TABLE kv (
	scope TEXT NOT NULL,
	key   TEXT NOT NULL,
	value BLOB NOT NULL,
	PRIMARY KEY (scope, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE users (
	id         BLOB PRIMARY KEY CHECK (length(id) = 16),
	name       TEXT NOT NULL UNIQUE,
	is_default INTEGER NOT NULL,
	created_at INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX users_default ON users (is_default) WHERE is_default;

CREATE TABLE agents (
	id         BLOB PRIMARY KEY CHECK (length(id) = 16),
	name       TEXT NOT NULL UNIQUE,
	manifest   TEXT NOT NULL,
	created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE sessions (
	id                BLOB PRIMARY KEY CHECK (length(id) = 16),
	agent_id          BLOB NOT NULL REFERENCES agents (id),
	user_id           BLOB NOT NULL REFERENCES users (id),
	parent_session_id BLOB REFERENCES sessions (id),
	title             TEXT NOT NULL,
	created_at        INTEGER NOT NULL,
	last_active_at    INTEGER NOT NULL,
	-- active says that last_active_at comes from a message
	active            INTEGER NOT NULL DEFAULT 0,
	user_messages     INTEGER NOT NULL DEFAULT 0,
	-- awaiting says that a user's message has no answer yet
	awaiting          INTEGER NOT NULL DEFAULT 0,
	exchanges         INTEGER NOT NULL DEFAULT 0,
	messages          INTEGER NOT NULL DEFAULT 0,
	-- revision counts the runs of the frontier that were replaced
	revision          INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Without last_active_at, which every message moves: an append would write
-- two pages more.
CREATE INDEX sessions_agent_user ON sessions (agent_id, user_id);
CREATE INDEX sessions_user ON sessions (user_id);
CREATE INDEX sessions_parent ON sessions (parent_session_id);

CREATE TABLE messages (
	id         BLOB PRIMARY KEY CHECK (length(id) = 16),
	session_id BLOB NOT NULL REFERENCES sessions (id),
	seq        INTEGER NOT NULL,
	role       TEXT NOT NULL,
	source     TEXT NOT NULL,
	-- content is the JSON list of blocks, as it came
	content    TEXT NOT NULL,
	-- text is memory.Plain of content, to be searched; never for a prompt
	text       TEXT NOT NULL,
	tokens     INTEGER NOT NULL,
	trust      TEXT NOT NULL,
	event_key  TEXT,
	created_at INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX messages_seq ON messages (session_id, seq);
CREATE UNIQUE INDEX messages_event ON messages (session_id, event_key) WHERE event_key IS NOT NULL;

CREATE TABLE summaries (
	-- number is the order in which they were made
	number      INTEGER PRIMARY KEY,
	id          BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
	session_id  BLOB NOT NULL REFERENCES sessions (id),
	depth       INTEGER NOT NULL,
	text        TEXT NOT NULL,
	-- external is the JSON of a boundary.Content, or NULL
	external    TEXT,
	tokens      INTEGER NOT NULL,
	earliest_at INTEGER NOT NULL,
	latest_at   INTEGER NOT NULL,
	descendants INTEGER NOT NULL,
	level       TEXT NOT NULL,
	model       TEXT NOT NULL,
	created_at  INTEGER NOT NULL
) STRICT;

CREATE INDEX summaries_session ON summaries (session_id);

CREATE TABLE summary_sources (
	summary_id        BLOB NOT NULL REFERENCES summaries (id),
	ordinal           INTEGER NOT NULL,
	message_id        BLOB REFERENCES messages (id),
	source_summary_id BLOB REFERENCES summaries (id),
	PRIMARY KEY (summary_id, ordinal),
	CHECK ((message_id IS NULL) <> (source_summary_id IS NULL))
) STRICT, WITHOUT ROWID;

-- An item's ordinal is the seq of its first message: appending needs no
-- renumbering, and a summary takes the place of the run it stands for.
CREATE TABLE frontier (
	session_id BLOB NOT NULL REFERENCES sessions (id),
	ordinal    INTEGER NOT NULL,
	message_id BLOB REFERENCES messages (id),
	summary_id BLOB REFERENCES summaries (id),
	PRIMARY KEY (session_id, ordinal),
	CHECK ((message_id IS NULL) <> (summary_id IS NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE compaction_runs (
	id              INTEGER PRIMARY KEY,
	session_id      BLOB NOT NULL REFERENCES sessions (id),
	agent_id        BLOB NOT NULL,
	trigger         TEXT NOT NULL,
	outcome         TEXT NOT NULL,
	reason          TEXT NOT NULL,
	items_before    INTEGER NOT NULL,
	items_after     INTEGER NOT NULL,
	tokens_before   INTEGER NOT NULL,
	tokens_after    INTEGER NOT NULL,
	summaries       INTEGER NOT NULL,
	refresh_blocks  INTEGER NOT NULL,
	refresh_tokens  INTEGER NOT NULL,
	refresh_skipped INTEGER NOT NULL,
	started_at      INTEGER NOT NULL,
	took            INTEGER NOT NULL
) STRICT;

CREATE INDEX compaction_runs_session ON compaction_runs (session_id);
