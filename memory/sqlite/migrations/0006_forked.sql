-- transcript stands for what the holder of the conversation has seen of it: whoever
-- comes back with the same words is found by it.
ALTER TABLE messages ADD COLUMN transcript BLOB CHECK (length(transcript) = 32);
CREATE INDEX messages_transcript ON messages (transcript, session_id, seq) WHERE transcript IS NOT NULL;

-- placed is the last message that has a transcript; 0 if none has.
ALTER TABLE sessions ADD COLUMN placed INTEGER NOT NULL DEFAULT 0;

ALTER TABLE sessions ADD COLUMN name TEXT;
CREATE UNIQUE INDEX sessions_name ON sessions (user_id, name) WHERE name IS NOT NULL;

-- What was said before a session was made does not say when it was active: a fork
-- is younger than what it has of its parent.
UPDATE sessions SET active = 0 WHERE active AND last_active_at = created_at AND NOT EXISTS (
	SELECT 1 FROM messages m WHERE m.session_id = sessions.id AND m.created_at >= sessions.created_at AND m.source IN ('', 'user', 'assistant', 'tool'));
