package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"

	"github.com/gloveboxhq/glovebox/memory"
)

// Bounds of what Texts holds: the places of many texts, the words of a few. Each
// step has a snapshot of its own, so that a long look keeps nobody from writing
// the log back.
const (
	textPlaces = 1 << 16
	textWords  = 1 << 20 // bytes
)

// textKind tells the tables apart; texts of one time come in this order.
type textKind int

const (
	textOfMessage textKind = iota
	textOfSummary
	textOfFile
)

// textPlace is where a text is, in the order of Texts.
type textPlace struct {
	at     int64
	kind   textKind
	number int64
}

// Texts implements memory.Store. A summary's time is that of the last message it
// stands for, a file's that of its message; the Seq of a file is 0.
func (s *Store) Texts(ctx context.Context, user memory.UserID, q memory.TextQuery, visit func(memory.StoredText) bool) error {
	what := "read texts"
	var last *textPlace
	for {
		var places []textPlace
		if err := s.reading(ctx, what, func(tx *sql.Tx) (err error) {
			places, err = textsBefore(ctx, tx, user, q, last)
			return err
		}); err != nil {
			return err
		}
		if len(places) == 0 {
			return nil
		}
		last = &places[len(places)-1]
		ended := len(places) < textPlaces
		for len(places) > 0 {
			var texts []memory.StoredText
			if err := s.reading(ctx, what, func(tx *sql.Tx) error {
				// What costs most of a short text is to read the statement.
				messages, err := tx.PrepareContext(ctx, selectMessages+" JOIN sessions s ON s.id = m.session_id WHERE m.number = ?1 AND s.user_id = ?2")
				if err != nil {
					return err
				}
				defer messages.Close()
				for size := 0; len(places) > 0 && size < textWords; places = places[1:] {
					t, err := textAt(ctx, tx, messages, user, places[0])
					// It may have gone meanwhile.
					if errors.Is(err, sql.ErrNoRows) {
						continue
					}
					if err != nil {
						return err
					}
					texts = append(texts, t)
					size += len(t.Text) + 128
				}
				return nil
			}); err != nil {
				return err
			}
			for _, t := range texts {
				if !visit(t) {
					return nil
				}
			}
		}
		if ended {
			return nil
		}
	}
}

// textsBefore returns the next places after last, the latest first.
func textsBefore(ctx context.Context, tx *sql.Tx, user memory.UserID, q memory.TextQuery, last *textPlace) ([]textPlace, error) {
	arguments := []any{blob(user), blob(q.Session), blob(q.Agent), sql.NullInt64{}, sql.NullInt64{}, sql.NullInt64{}, 0, 0, textPlaces}
	if !q.From.IsZero() {
		arguments[3] = micros(q.From)
	}
	if !q.To.IsZero() {
		arguments[4] = micros(q.To)
	}
	if last != nil {
		arguments[5], arguments[6], arguments[7] = last.at, int(last.kind), last.number
	}
	var of []string
	for _, table := range []struct {
		texts          memory.TextKind
		name, at, kind string
	}{{memory.TextMessage, "messages", "created_at", "0"}, {memory.TextSummary, "summaries", "latest_at", "1"}, {memory.TextFile, "files", "created_at", "2"}} {
		if len(q.Kinds) > 0 && !slices.Contains(q.Kinds, table.texts) {
			continue
		}
		of = append(of, "SELECT t."+table.at+" AS at, "+table.kind+" AS kind, t.number AS number FROM sessions s CROSS JOIN "+table.name+` t ON t.session_id = s.id
			WHERE s.user_id = ?1 AND (?2 IS NULL OR s.id = ?2) AND (?3 IS NULL OR s.agent_id = ?3)
			AND (?4 IS NULL OR t.`+table.at+" >= ?4) AND (?5 IS NULL OR t."+table.at+` < ?5)
			AND (?6 IS NULL OR t.`+table.at+" <= ?6)")
	}
	if len(of) == 0 {
		return nil, nil
	}
	rows, err := tx.QueryContext(ctx, "SELECT at, kind, number FROM ("+strings.Join(of, " UNION ALL ")+`)
		WHERE ?6 IS NULL OR at < ?6 OR at = ?6 AND (kind > ?7 OR kind = ?7 AND number < ?8) ORDER BY at DESC, kind, number DESC LIMIT ?9 + 0`, arguments...)
	return all(rows, err, func(r row) (p textPlace, err error) { return p, r.Scan(&p.at, &p.kind, &p.number) })
}

// textAt reads one text, unless it is no longer the user's.
func textAt(ctx context.Context, tx *sql.Tx, messages *sql.Stmt, user memory.UserID, p textPlace) (t memory.StoredText, err error) {
	t.At = fromMicros(p.at)
	const own = " AND s.user_id = ?2"
	switch p.kind {
	case textOfMessage:
		m, err := scanMessage(messages.QueryRowContext(ctx, p.number, blob(user)))
		t.Message, t.Session, t.Seq, t.Text = m.ID, m.Session, m.Seq, memory.Plain(m.Blocks)
		return t, err
	case textOfSummary:
		v, err := scanSummary(tx.QueryRowContext(ctx, `SELECT coalesce((WITH RECURSIVE first (id) AS (SELECT v.id UNION ALL
			SELECT o.source_summary_id FROM first JOIN summary_sources o ON o.summary_id = first.id WHERE o.ordinal = (SELECT min(ordinal) FROM summary_sources WHERE summary_id = first.id) AND o.source_summary_id IS NOT NULL)
			SELECT min(m.seq) FROM first JOIN summary_sources o ON o.summary_id = first.id JOIN messages m ON m.id = o.message_id), 0), `+
			summaryColumns+" FROM summaries v JOIN sessions s ON s.id = v.session_id WHERE v.number = ?1"+own, p.number, blob(user)), &t.Seq)
		t.Summary, t.Session = v.ID, v.Session
		t.Text = memory.Plain([]memory.Block{memory.Text(v.Text), memory.External(v.External)})
		return t, err
	default:
		f, b, err := scanWholeFile(tx.QueryRowContext(ctx, "SELECT "+fileColumns+", f.block FROM files f JOIN sessions s ON s.id = f.session_id WHERE f.number = ?1"+own, p.number, blob(user)))
		t.File, t.Session, t.Text = f.ID, f.Session, memory.Plain([]memory.Block{b})
		return t, err
	}
}
