-- The messages that were looked at to learn from them, as runs that neither
-- overlap nor touch: what was not is what stands between them.
CREATE TABLE session_learned (
	session_id BLOB NOT NULL REFERENCES sessions (id),
	first_seq  INTEGER NOT NULL,
	last_seq   INTEGER NOT NULL,
	PRIMARY KEY (session_id, first_seq),
	CHECK (0 < first_seq AND first_seq <= last_seq)
) STRICT, WITHOUT ROWID;

-- due_since is set while there is something to learn from a session: a user's
-- message that was not looked at, or an extraction that is pending. It is a time
-- that is not after last_active_at and does not move with it: so an append finds
-- it set already, but for the first after a dream, and writes no page of an index.
ALTER TABLE sessions ADD COLUMN due_since INTEGER;
UPDATE sessions SET due_since = last_active_at WHERE user_messages > 0;
CREATE INDEX sessions_due ON sessions (agent_id, due_since) WHERE due_since IS NOT NULL;

-- memory_revision is another one after every change of the user's topics.
ALTER TABLE users ADD COLUMN memory_revision INTEGER NOT NULL DEFAULT 0;

-- Each list is the JSON of a []memory.Learned now; it was any text.
ALTER TABLE session_extractions ADD COLUMN merged_at INTEGER;
UPDATE session_extractions SET
	facts       = CASE WHEN trim(facts)       IN ('', '[]') THEN '[]' ELSE json_array(json_object('text', substr(replace(replace(facts,       char(10), ' '), char(13), ' '), 1, 500))) END,
	preferences = CASE WHEN trim(preferences) IN ('', '[]') THEN '[]' ELSE json_array(json_object('text', substr(replace(replace(preferences, char(10), ' '), char(13), ' '), 1, 500))) END,
	decisions   = CASE WHEN trim(decisions)   IN ('', '[]') THEN '[]' ELSE json_array(json_object('text', substr(replace(replace(decisions,   char(10), ' '), char(13), ' '), 1, 500))) END,
	tasks       = CASE WHEN trim(tasks)       IN ('', '[]') THEN '[]' ELSE json_array(json_object('text', substr(replace(replace(tasks,       char(10), ' '), char(13), ' '), 1, 500))) END,
	open_items  = CASE WHEN trim(open_items)  IN ('', '[]') THEN '[]' ELSE json_array(json_object('text', substr(replace(replace(open_items,  char(10), ' '), char(13), ' '), 1, 500))) END;
CREATE INDEX session_extractions_pending ON session_extractions (session_id) WHERE merged_at IS NULL;
UPDATE sessions SET due_since = last_active_at WHERE EXISTS (SELECT 1 FROM session_extractions x WHERE x.session_id = sessions.id AND x.user_id = sessions.user_id);

-- Topics of a user with every agent and with one are of one table, because one
-- kind takes the place of the other.
CREATE TABLE topics (
	id            BLOB PRIMARY KEY CHECK (length(id) = 16),
	user_id       BLOB NOT NULL REFERENCES users (id),
	-- NULL for a topic of the user with every agent
	agent_id      BLOB REFERENCES agents (id),
	name          TEXT NOT NULL,
	content       TEXT NOT NULL,
	embedding     BLOB,
	valid_from    INTEGER NOT NULL,
	expires_at    INTEGER,
	superseded_by BLOB REFERENCES topics (id),
	updated_at    INTEGER NOT NULL
) STRICT;

INSERT INTO topics (id, user_id, agent_id, name, content, embedding, valid_from, expires_at, superseded_by, updated_at)
SELECT id, user_id, NULL, topic, content, embedding, valid_from, expires_at, superseded_by, updated_at FROM user_topics
UNION ALL SELECT id, user_id, agent_id, topic, content, embedding, valid_from, expires_at, superseded_by, updated_at FROM user_agent_topics;
DROP TABLE user_topics;
DROP TABLE user_agent_topics;
CREATE INDEX topics_user ON topics (user_id, agent_id, name, valid_from);
CREATE INDEX topics_superseded ON topics (superseded_by) WHERE superseded_by IS NOT NULL;

-- Runs of compaction that were begun in the background and are not over.
CREATE TABLE pending_runs (
	session_id BLOB NOT NULL REFERENCES sessions (id),
	trigger    TEXT NOT NULL,
	exchanges  INTEGER NOT NULL,
	begun_at   INTEGER NOT NULL,
	PRIMARY KEY (session_id, trigger)
) STRICT, WITHOUT ROWID;
