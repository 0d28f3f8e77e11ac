-- The search index: memory/internal/index says what segments are. A segment
-- belongs to one user and holds one kind: 0 messages, 1 summaries.
CREATE TABLE index_segments (
	-- never used again: what readers remember of a segment stays true
	id       INTEGER PRIMARY KEY AUTOINCREMENT,
	user_id  BLOB NOT NULL REFERENCES users (id),
	kind     INTEGER NOT NULL,
	version  INTEGER NOT NULL,
	-- live says that it is searched; else it is being made or taken away
	live     INTEGER NOT NULL,
	-- the numbers of its first and last document
	first    INTEGER NOT NULL,
	last     INTEGER NOT NULL,
	documents INTEGER NOT NULL,
	head     BLOB NOT NULL
) STRICT;

CREATE INDEX index_segments_user ON index_segments (user_id, kind, first);
CREATE INDEX index_segments_dead ON index_segments (id) WHERE NOT live;

-- A page's id is its segment's, times 2^20, plus its number.
CREATE TABLE index_pages (
	id   INTEGER PRIMARY KEY,
	data BLOB NOT NULL
) STRICT;

-- Every row of messages and summaries up to the cursor is in a segment, but for
-- those of users whose index is being rebuilt.
CREATE TABLE index_state (
	kind   INTEGER PRIMARY KEY,
	cursor INTEGER NOT NULL,
	-- drops counts how often rows of the index were taken away: what was read
	-- before is not to be written after
	drops  INTEGER NOT NULL
) STRICT;

INSERT INTO index_state VALUES (0, 0, 0), (1, 0, 0);

-- The user's rows after cursor and up to last are still to be put into segments.
CREATE TABLE index_rebuilds (
	user_id BLOB NOT NULL REFERENCES users (id),
	kind    INTEGER NOT NULL,
	cursor  INTEGER NOT NULL,
	last    INTEGER NOT NULL,
	PRIMARY KEY (user_id, kind)
) STRICT, WITHOUT ROWID;
