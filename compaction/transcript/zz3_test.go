package transcript_test
import ("testing"; "pgregory.net/rapid")
func TestStats(t *testing.T) {
	n, app, ev, two, cov, over, an, syn, rows := 0,0,0,0,0,0,0,0,0
	rapid.Check(t, func(r *rapid.T) {
		in := drawTape(r).joinInput(false)
		n++
		j := bruteJoin(in)
		rows += len(in.Rows)
		if len(j.Appended)>0 {app++}
		if len(j.Evicted)>0 {ev++}
		if len(j.Evicted)>3 {two++}
		if matching(in)>0 {cov++; if len(j.Appended)>0 {an++}}
		if j.OverBudget {over++}
		for _, x := range j.Rows { if x.Placeholder { syn++ }}
	})
	t.Log(n, "rows",rows,"app",app,"ev",ev,"ev>3",two,"cov",cov,"cov+app",an,"over",over,"syn",syn)
}
