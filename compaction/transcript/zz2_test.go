package transcript_test
import "github.com/gloveboxhq/glovebox/compaction/transcript"
func naiveSame(rows []transcript.Row, c int) []transcript.Row { o := naiveRepair(rows,c); if sameRows(o,rows) {return rows}; return o }
