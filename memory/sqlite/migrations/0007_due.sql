-- A run that is due is found by its user, whose turn it is, and by since when it
-- was due first: a later one that takes its place keeps that. budget and system are
-- what prompts had to fit into, 0 where that does not matter.
CREATE TABLE due_runs (
	session_id BLOB NOT NULL REFERENCES sessions (id),
	trigger    TEXT NOT NULL,
	user_id    BLOB NOT NULL REFERENCES users (id),
	exchanges  INTEGER NOT NULL,
	budget     INTEGER NOT NULL,
	system     INTEGER NOT NULL,
	since      INTEGER NOT NULL,
	begun_at   INTEGER NOT NULL,
	PRIMARY KEY (session_id, trigger)
) STRICT, WITHOUT ROWID;
INSERT INTO due_runs SELECT p.session_id, p.trigger, s.user_id, p.exchanges, 0, 0, p.begun_at, p.begun_at FROM pending_runs p JOIN sessions s ON s.id = p.session_id JOIN users u ON u.id = s.user_id;
DROP TABLE pending_runs;
ALTER TABLE due_runs RENAME TO pending_runs;
CREATE INDEX pending_runs_user ON pending_runs (user_id, since);

-- The sessions that there is something to learn from, by user. Of agents that do not
-- learn there may be far more than of those that do.
CREATE INDEX sessions_due_user ON sessions (agent_id, user_id, due_since) WHERE due_since IS NOT NULL;
