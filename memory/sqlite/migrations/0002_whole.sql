-- The search index follows the messages by number, and takes their words from
-- content.
CREATE TABLE messages_numbered (
	-- number is the order in which they came. The highest ones are given again
	-- after their rows were removed.
	number     INTEGER PRIMARY KEY,
	id         BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
	session_id BLOB NOT NULL REFERENCES sessions (id),
	seq        INTEGER NOT NULL,
	role       TEXT NOT NULL,
	source     TEXT NOT NULL,
	-- content is the JSON list of blocks, as it came
	content    TEXT NOT NULL,
	tokens     INTEGER NOT NULL,
	trust      TEXT NOT NULL,
	event_key  TEXT,
	created_at INTEGER NOT NULL
) STRICT;

INSERT INTO messages_numbered (number, id, session_id, seq, role, source, content, tokens, trust, event_key, created_at)
SELECT rowid, id, session_id, seq, role, source, content, tokens, trust, event_key, created_at FROM messages ORDER BY rowid;
DROP TABLE messages;
ALTER TABLE messages_numbered RENAME TO messages;
CREATE UNIQUE INDEX messages_seq ON messages (session_id, seq);
CREATE UNIQUE INDEX messages_event ON messages (session_id, event_key) WHERE event_key IS NOT NULL;

-- trust is the least of what a summary was made from.
ALTER TABLE summaries ADD COLUMN trust TEXT NOT NULL DEFAULT 'direct';
UPDATE summaries SET trust = CASE
	WHEN external IS NOT NULL OR EXISTS (SELECT 1 FROM summary_sources o JOIN messages m ON m.id = o.message_id WHERE o.summary_id = summaries.id AND m.trust = 'external') THEN 'external'
	WHEN EXISTS (SELECT 1 FROM summary_sources o JOIN messages m ON m.id = o.message_id WHERE o.summary_id = summaries.id AND m.trust = 'derived') THEN 'derived'
	ELSE 'direct' END;

CREATE INDEX summary_sources_summary ON summary_sources (source_summary_id) WHERE source_summary_id IS NOT NULL;

-- A file is a block that was too large to be shown.
CREATE TABLE files (
	number     INTEGER PRIMARY KEY,
	id         BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
	session_id BLOB NOT NULL REFERENCES sessions (id),
	name       TEXT NOT NULL,
	mime       TEXT NOT NULL,
	bytes      INTEGER NOT NULL,
	tokens     INTEGER NOT NULL,
	digest     TEXT NOT NULL,
	outline    TEXT NOT NULL,
	trust      TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	-- block is the JSON of the block, as it came
	block      TEXT NOT NULL
) STRICT;

CREATE INDEX files_session ON files (session_id);

-- What is learned of users. Each row has the user's id, so that it can be told
-- whose it is when the session has gone.
CREATE TABLE session_extractions (
	id          BLOB PRIMARY KEY CHECK (length(id) = 16),
	user_id     BLOB NOT NULL REFERENCES users (id),
	agent_id    BLOB NOT NULL REFERENCES agents (id),
	-- session_id does not refer: the row outlives the session
	session_id  BLOB NOT NULL,
	facts       TEXT NOT NULL,
	preferences TEXT NOT NULL,
	decisions   TEXT NOT NULL,
	tasks       TEXT NOT NULL,
	open_items  TEXT NOT NULL,
	created_at  INTEGER NOT NULL
) STRICT;

CREATE INDEX session_extractions_user ON session_extractions (user_id, created_at);

CREATE TABLE user_topics (
	id            BLOB PRIMARY KEY CHECK (length(id) = 16),
	user_id       BLOB NOT NULL REFERENCES users (id),
	topic         TEXT NOT NULL,
	content       TEXT NOT NULL,
	embedding     BLOB,
	expires_at    INTEGER,
	superseded_by BLOB REFERENCES user_topics (id),
	valid_from    INTEGER NOT NULL,
	updated_at    INTEGER NOT NULL
) STRICT;

CREATE INDEX user_topics_user ON user_topics (user_id, topic);

CREATE TABLE user_agent_topics (
	id            BLOB PRIMARY KEY CHECK (length(id) = 16),
	user_id       BLOB NOT NULL REFERENCES users (id),
	agent_id      BLOB NOT NULL REFERENCES agents (id),
	topic         TEXT NOT NULL,
	content       TEXT NOT NULL,
	embedding     BLOB,
	expires_at    INTEGER,
	superseded_by BLOB REFERENCES user_agent_topics (id),
	valid_from    INTEGER NOT NULL,
	updated_at    INTEGER NOT NULL
) STRICT;

CREATE INDEX user_agent_topics_user ON user_agent_topics (user_id, agent_id, topic);

-- topic_id is one of either table; message_id does not refer, because a topic
-- outlives the session that it was learned in.
CREATE TABLE topic_sources (
	topic_id   BLOB NOT NULL,
	message_id BLOB NOT NULL,
	PRIMARY KEY (topic_id, message_id)
) STRICT, WITHOUT ROWID;

-- A wipe that has begun is ended, whatever happens in between.
CREATE TABLE wipes (
	user_id  BLOB PRIMARY KEY CHECK (length(user_id) = 16),
	begun_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
