-- What the frontier of a session has, so that its end can be shown without
-- looking at the rest.
ALTER TABLE sessions ADD COLUMN shown_items INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN shown_tokens INTEGER NOT NULL DEFAULT 0;
UPDATE sessions SET (shown_items, shown_tokens) = (
	SELECT count(*), coalesce(sum(coalesce(m.tokens, v.tokens)), 0) FROM frontier f
	LEFT JOIN messages m ON m.id = f.message_id LEFT JOIN summaries v ON v.id = f.summary_id WHERE f.session_id = sessions.id);
