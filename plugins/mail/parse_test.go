package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/fstest"
	"testing/iotest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/sdk/go/hand"
	"pgregory.net/rapid"
)

// oneMail asks about a single mail in a Maildir that the user has not read.
func oneMail(t testing.TB, mail string, me ...string) string {
	t.Helper()
	q := march2()
	q.Config = map[string]any{"me": me}
	return ask(t, fstest.MapFS{"new/1772450000.host": {Data: []byte(mail)}, "cur": {Mode: 0o755 | 1<<31}}, q)
}

const (
	from = "From: Ann <ann@example.com>\n"
	date = "Date: Mon, 02 Mar 2026 10:00:00 +0000\n"
)

func TestHeaders(t *testing.T) {
	for name, test := range map[string]struct{ header, want string }{
		"plain":                        {"From: Ann <ann@example.com>\nSubject: Hello\n", "Ann <ann@example.com>: Hello"},
		"address alone":                {"From: ann@example.com\nSubject: Hello\n", "<ann@example.com>: Hello"},
		"name as comment":              {"From: ann@example.com (Ann B.)\nSubject: Hello\n", "Ann B. <ann@example.com>: Hello"},
		"quoted name with comma":       {"From: \"Bee, Ann\" <Ann@Example.com>, other@example.com\nSubject: Hello\n", "Bee, Ann <ann@example.com>: Hello"},
		"unquoted name with comma":     {"From: \"Ann \\\"Bee\\\"\" <ann@example.com>\nSubject: Hello\n", "Ann \"Bee\" <ann@example.com>: Hello"},
		"name without an address":      {"From: Ann\nSubject: Hello\n", "Ann: Hello"},
		"no sender":                    {"Subject: Hello\n", "unknown sender: Hello"},
		"no subject":                   {from, "Ann <ann@example.com>: (no subject)"},
		"folded":                       {from + "Subject: one\n two\n\tthree\n", ": one two three"},
		"quoted-printable word":        {from + "Subject: =?ISO-8859-1?Q?Gr=FC=DFe_aus_K=F6ln?=\n", ": Grüße aus Köln"},
		"ISO-8859-15":                  {from + "Subject: =?iso-8859-15?q?5_=A4?=\n", ": 5 €"},
		"ISO-8859-2":                   {from + "Subject: =?ISO-8859-2?Q?=A3=F3d=BC?=\n", ": Łódź"},
		"windows-1251":                 {from + "Subject: =?windows-1251?B?z/Do4uXy?=\n", ": Привет"},
		"Shift_JIS":                    {from + "Subject: =?Shift_JIS?B?k/qWe4zq?=\n", ": 日本語"},
		"GB18030":                      {from + "Subject: =?gb18030?B?1tDOxA==?=\n", ": 中文"},
		"GB2312 with GBK":              {from + "Subject: =?gb2312?B?6WXRYg==?=\n", ": 閑裝"},
		"EUC-KR":                       {from + "Subject: =?euc-kr?B?x9GxuQ==?=\n", ": 한국"},
		"words joined":                 {from + "Subject: =?utf-8?Q?a?=\n =?utf-8?Q?b?= c\n", ": ab c"},
		"character split over words":   {from + "Subject: =?utf-8?B?44GC44E=?= =?utf-8?B?hA==?=\n", ": あい"},
		"language tag":                 {from + "Subject: =?utf-8*de?Q?sch=C3=B6n?=\n", ": schön"},
		"missing padding":              {from + "Subject: =?utf-8?B?SGk?=\n", ": Hi"},
		"unknown charset":              {from + "Subject: =?x-martian?Q?caf=E9?=\n", ": café"},
		"unfinished word":              {from + "Subject: 1 =?utf-8?Q?2\n", ": 1 =?utf-8?Q?2"},
		"raw UTF-8":                    {from + "Subject: naïve\n", ": naïve"},
		"raw windows-1252":             {from + "Subject: na\xefve \x96 5 \x80\n", ": naïve – 5 €"},
		"line without a colon between": {from + "garbage\nSubject: Hello\n", ": Hello"},
		"CRLF":                         {"From: ann@example.com\r\nSubject: Hello\r\n", ": Hello"},
		"envelope line in front":       {"From ann@example.com Mon Mar  2 10:00:00 2026\n" + from + "Subject: Hello\n", ": Hello"},
		"control characters":           {from + "Subject: a\x00b\x1b[31mc\u202ed\u200be\n", ": a b [31mcde"},
		"high priority":                {from + "Subject: x\nX-Priority: 1 (Highest)\n", "[unread, important] Ann"},
		"long":                         {from + "Subject: " + strings.Repeat("word ", 60) + "\n", "word word…"},
	} {
		t.Run(name, func(t *testing.T) {
			if reply := oneMail(t, test.header+date+"\nbody\n"); !strings.Contains(reply, test.want+"\n") && !strings.Contains(reply, test.want+" ") {
				t.Errorf("reply lacks %q:\n%s", test.want, reply)
			}
		})
	}
}

func TestBodies(t *testing.T) {
	for name, test := range map[string]struct{ rest, want string }{
		"plain":     {"\nHello,\n\nall   well?\n", `"Hello, all well?"`},
		"empty":     {"\n", ""},
		"no body":   {"", ""},
		"signature": {"\nHello\n-- \nAnn\n", `"Hello"`},
		"top-posted": {"\nYes.\n\nOn Mon, 2 Mar 2026, Bob <bob@example.com> wrote:\n> No?\n",
			`"Yes."`},
		"attribution over two lines": {"\nYes.\n\nOn Mon, 2 Mar 2026 at 10:00 Bob Long-Name\n<bob@example.com> wrote:\n\n> No?\n> Or?\n",
			`"Yes."`},
		"German attribution": {"\nJa.\n\nAm 02.03.26 um 10:00 schrieb Bob:\n> Nein?\n", `"Ja."`},
		"answers between":    {"\n> One?\nYes.\n> Two?\nNo.\n", `"Yes. No."`},
		"Outlook":            {"\nSee below.\n\n-----Original Message-----\nFrom: Bob\nOld words\n", `"See below."`},
		"forward":            {"\n---------- Forwarded message ---------\nFrom: Bob\n\nNews\n", `"---------- Forwarded message --------- From: Bob News"`},
		"all quoted":         {"\n> only\n> this\n", `"> only > this"`},
		"quoted-printable":   {"Content-Transfer-Encoding: quoted-printable\nContent-Type: text/plain; charset=utf-8\n\nsch=C3=B6n=\n er\n", `"schön er"`},
		"base64":             {"Content-Transfer-Encoding: BASE64\nContent-Type: text/plain; charset=iso-8859-1\n\nR3L832U=\n", `"Grüße"`},
		"base64 that breaks": {"Content-Transfer-Encoding: base64\n\nSGVsbG8g!!!!\n", `"Hello"`},
		"unknown encoding":   {"Content-Transfer-Encoding: x-uuencode\n\nas it is\n", `"as it is"`},
		"unknown charset":    {"Content-Type: text/plain; charset=x-martian\n\ncaf\xe9\n", `"café"`},
		"invalid UTF-8":      {"Content-Type: text/plain; charset=utf-8\n\ncaf\xe9!\n", `"caf` + "\uFFFD" + `!"`},
		"Japanese":           {"Content-Type: text/plain; charset=ISO-2022-JP\n\n\x1b$BF|K\\8l\x1b(B\n", `"日本語"`},
		"HTML only": {"Content-Type: text/html\n\n<title>t</title><script>var x = '<p>no</p>'</script><p>One&nbsp;two<br>three</p><p hidden>no</p><DIV STYLE='display : none'>no<div>no</div></DIV>four\n",
			`"One two three four"`},
		"HTML reply": {"Content-Type: text/html\n\n<div>Yes</div><div class='x gmail_quote'><div>On Monday Bob wrote:</div><blockquote>No?</blockquote></div>\n",
			`"Yes"`},
		"HTML forward":        {"Content-Type: text/html\n\n<div class=gmail_quote>Forwarded: news</div>\n", `"Forwarded: news"`},
		"HTML unclosed":       {"Content-Type: text/html\n\n<p>Text <a href=\"x\n", `"Text"`},
		"alternative":         {"Content-Type: multipart/alternative; boundary=b\n\n--b\nContent-Type: text/html\n\n<b>html</b>\n--b\n\nplain\n--b--\n", `"plain"`},
		"empty plain part":    {"Content-Type: multipart/alternative; boundary=b\n\n--b\n\n \n--b\nContent-Type: text/html\n\n<b>html</b>\n--b--\n", `"html"`},
		"missing boundary":    {"Content-Type: multipart/mixed; boundary=b\n\n--b\n\nplain, no end\n", `"plain, no end"`},
		"twice the parameter": {"Content-Type: text/plain; charset=utf-8; charset=utf-8\n\nschön\n", `"schön"`},
		"encrypted":           {"Content-Type: multipart/encrypted; boundary=b\n\n--b\n\nVersion: 1\n--b--\n", "encrypted"},
		"signed": {"Content-Type: multipart/signed; boundary=b\n\n--b\n\nplain\n--b\nContent-Type: application/pgp-signature; name=signature.asc\n\nx\n--b--\n",
			"(no subject)\n  \"plain\""},
		"attachments": {"Content-Type: multipart/mixed; boundary=b\n\n--b\n\nplain\n--b\nContent-Type: application/pdf; name=a.pdf\n\nx\n" +
			"--b\nContent-Disposition: attachment; filename=\"=?utf-8?Q?=C3=BC.txt?=\"\n\nx\n--b\nContent-Type: message/rfc822\n\nFrom: x\n" +
			"--b\nContent-Type: image/png; name=logo.png\nContent-ID: <1>\n\nx\n--b\nContent-Disposition: attachment; filename=\"../../d\"\n\nx\n--b--\n",
			"attached: a.pdf, ü.txt, a mail and 1 more\n  \"plain\""},
		"nested too deep": {deep(40), ""},
		"too many parts":  {"Content-Type: multipart/mixed; boundary=b\n\n--b\n\nplain\n" + strings.Repeat("--b\nContent-Disposition: attachment\n\n\n", 1000), "attached: text/plain, text/plain, text/plain and"},
		"invitation": {"Content-Type: text/calendar; method=REQUEST\nAuto-Submitted: auto-generated\n\nBEGIN:VCALENDAR\n",
			"[unread, invitation]"},
		"cancellation": {"Content-Type: text/calendar; method=CANCEL\n\nBEGIN:VCALENDAR\n", "[unread, cancellation]"},
	} {
		t.Run(name, func(t *testing.T) {
			reply := oneMail(t, from+date+test.rest)
			if !strings.Contains(reply, "Ann <ann@example.com>") || !strings.Contains(reply, test.want) {
				t.Errorf("reply lacks %q:\n%s", test.want, reply)
			}
			if test.want == "" && strings.Contains(reply, `"`) {
				t.Errorf("reply quotes something:\n%s", reply)
			}
		})
	}
}

// deep nests n multiparts around a text.
func deep(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n", i, i)
	}
	return b.String() + "\ntext\n"
}

// TestArrival says in which window a mail is.
func TestArrival(t *testing.T) {
	const inside, before, after = "Mon, 02 Mar 2026 10:00:00 +0000", "Sun, 01 Mar 2026 23:30:00 +0000", "Tue, 03 Mar 2026 10:00:00 +0000"
	for name, test := range map[string]struct {
		header string
		want   string // the time shown, "" if the mail is not in the window
	}{
		"date inside":                      {"Date: " + inside, "Mon 2 Mar 10:00"},
		"date before":                      {"Date: " + before, ""},
		"date after":                       {"Date: " + after, ""},
		"first instant":                    {"Date: Mon, 02 Mar 2026 00:00:00 +0000", "Mon 2 Mar 00:00"},
		"last instant":                     {"Date: Tue, 03 Mar 2026 00:00:00 +0000", ""},
		"other zone":                       {"Date: Mon, 2 Mar 2026 00:30:00 +0200", ""},
		"sent before, came inside":         {"Received: from a by b; Mon, 02 Mar 2026 00:10:00 +0000\nReceived: from c by a; " + before + "\nDate: " + before, "Mon 2 Mar 00:10"},
		"sent inside, clock ahead":         {"Received: from a by b; " + before + "\nDate: " + inside, "Mon 2 Mar 10:00"},
		"moved between servers later":      {"Received: from a by b; " + inside + "\nDate: Thu, 01 Jan 2026 10:00:00 +0000", ""},
		"date in the future":               {"Received: from a by b; " + inside + "\nDate: Mon, 01 Mar 2027 10:00:00 +0000", "Mon 2 Mar 10:00"},
		"date in the future, none else":    {"Date: Mon, 01 Mar 2027 10:00:00 +0000", "Mon 2 Mar 11:13"},
		"date before computers":            {"Date: Thu, 01 Jan 1970 00:00:00 +0000", "Mon 2 Mar 11:13"},
		"no date, Received":                {"Received: from a by b (x; y); " + inside, "Mon 2 Mar 10:00"},
		"no date, name of the file":        {"Subject: x", "Mon 2 Mar 11:13"},
		"garbage":                          {"Date: yesterday", "Mon 2 Mar 11:13"},
		"obsolete zone":                    {"Date: Mon, 2 Mar 2026 05:00:00 EST", "Mon 2 Mar 10:00"},
		"no zone, no seconds":              {"Date: 2 Mar 2026 10:00 +0000 (UTC)", "Mon 2 Mar 10:00"},
		"ISO 8601":                         {"Date: 2026-03-02T10:00:00Z", "Mon 2 Mar 10:00"},
		"date of ctime":                    {"Date: Mon Mar  2 10:00:00 2026", "Mon 2 Mar 10:00"},
		"wrong day name, unpadded numbers": {"Date: Tue, 2 Mar 2026 9:05:00 +0000", "Mon 2 Mar 09:05"},
	} {
		t.Run(name, func(t *testing.T) {
			reply := oneMail(t, from+test.header+"\n\nbody\n")
			if test.want == "" && reply != "" || !strings.Contains(reply, "\n- "+test.want+" [unread]") && test.want != "" {
				t.Errorf("want %q, reply:\n%s", test.want, reply)
			}
		})
	}
}

// TestBulk says which mail is left out.
func TestBulk(t *testing.T) {
	for name, test := range map[string]struct {
		header string
		left   bool
	}{
		"personal":                {from, false},
		"List-Unsubscribe":        {from + "List-Unsubscribe: <mailto:x@example.com>\n", true},
		"List-Id":                 {from + "List-ID: <x.example.com>\n", true},
		"Precedence bulk":         {from + "Precedence: Bulk\n", true},
		"Precedence list":         {from + "Precedence: list\n", true},
		"Precedence first-class":  {from + "Precedence: first-class\n", false},
		"automatic":               {from + "Auto-Submitted: auto-generated (x)\n", true},
		"automatic answer":        {from + "Auto-Submitted: auto-replied\n", false},
		"by a person":             {from + "Auto-Submitted: no\n", false},
		"no-reply":                {"From: Shop <No-Reply@example.com>\n", true},
		"noreply with a suffix":   {"From: noreply-accounts@example.com\n", true},
		"do not reply":            {"From: do_not_reply@example.com\n", true},
		"suffix":                  {"From: shop-noreply@example.com\n", true},
		"bounce":                  {"From: MAILER-DAEMON@example.com\n", false},
		"name that says no reply": {"From: noreply <ann@example.com>\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			reply := oneMail(t, test.header+date+"\nbody\n")
			if left := strings.Contains(reply, "no new mail. Left out: 1 newsletter or notification."); left != test.left {
				t.Errorf("left out: %v:\n%s", left, reply)
			}
		})
	}
	// What the user flagged is theirs to see.
	reply := ask(t, fstest.MapFS{"cur/1.host:2,SF": {Data: []byte(from + date + "List-Id: <x>\n\nbody\n")}, "new": {Mode: 1<<31 | 0o755}}, march2())
	if !strings.Contains(reply, "[flagged] Ann") {
		t.Errorf("flagged newsletter:\n%s", reply)
	}
}

// TestDuplicates: a copy counts once, and a stranger who reuses an id takes
// nothing away.
func TestDuplicates(t *testing.T) {
	mail := func(from, more string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("From: " + from + "\nSubject: Plan\nMessage-ID: <1@example.com>\n" + date + more + "\nWords of " + from + "\n")}
	}
	reply := ask(t, fstest.MapFS{
		"new/1.host":         mail("ann@example.com", "List-Id: <x>\n"),
		"cur/2.host:2,":      mail("ann@example.com", ""),
		".Archive/cur/3.h":   mail("ann@example.com", ""),
		".Archive/new/.keep": {},
		"new/4.host":         mail("eve@example.net", ""),
	}, march2())
	if !strings.Contains(reply, "2 new mails, 2 unread.") || strings.Contains(reply, "Left out") || !strings.Contains(reply, "2 mails, also from ann@example.com") {
		t.Errorf("reply:\n%s", reply)
	}
}

// TestThreads: a conversation is one entry, and a stranger's mail that names
// its ids under another subject is not part of it.
func TestThreads(t *testing.T) {
	fsys := fstest.MapFS{"cur/.keep": {}}
	for i, from := range []string{"Ann <ann@example.com>", "Bob <bob@example.com>", "Ann <ann@example.com>", "Cem <cem@example.com>", "Ann <ann@example.com>"} {
		fsys[fmt.Sprintf("new/%d.host", i)] = &fstest.MapFile{Data: fmt.Appendf(nil,
			"From: %s\nSubject: %s Plan\nMessage-ID: <%d@example.com>\nReferences: <0@example.com> <%d@example.com>\nDate: Mon, 02 Mar 2026 1%d:00:00 +0000\n\nLine %d\n",
			from, []string{"", "Re:", "AW: Re:", "re:", "Fwd:"}[i], i, max(i-1, 0), i, i)}
	}
	fsys["new/9.host"] = &fstest.MapFile{Data: []byte("From: eve@example.net\nSubject: Pay\nReferences: <0@example.com> <4@example.com>\n" + date + "\nPay now\n")}
	reply := ask(t, fsys, march2())
	for _, want := range []string{"6 new mails, 6 unread", "Mon 2 Mar 14:00 [unread] Ann <ann@example.com>: Fwd: Plan\n  5 mails, also from Bob, Cem\n  \"Line 4\"", "Pay now"} {
		if !strings.Contains(reply, want) {
			t.Errorf("reply lacks %q:\n%s", want, reply)
		}
	}
	if strings.Count(reply, "\n- ") != 2 {
		t.Errorf("reply:\n%s", reply)
	}
}

// TestMboxRoundTrip: what the mboxrd rules write is read back, wherever the
// reader's pieces end.
func TestMboxRoundTrip(t *testing.T) {
	line := rapid.SampledFrom([]string{"", "text", "From here on", "From ann@example.com Mon Mar  2 10:00:00 2026", ">From quoted", ">>From twice", "Subject: like a header", "\x00\xff", strings.Repeat("long", 50)})
	rapid.Check(t, func(t *rapid.T) {
		ending := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "ending")
		bodies := rapid.SliceOfN(rapid.SliceOfN(line, 0, 12), 1, 5).Draw(t, "bodies")
		var box strings.Builder
		var want []string
		for i, lines := range bodies {
			header := fmt.Sprintf("Subject: %d%s%s", i, ending, ending)
			box.WriteString("From a@example.com Mon Mar  2 10:00:00 2026" + ending + header)
			body := ""
			for _, l := range lines {
				body += l + ending
				if strings.HasPrefix(strings.TrimLeft(l, ">"), "From ") {
					l = ">" + l
				}
				box.WriteString(l + ending)
			}
			box.WriteString(ending)
			want = append(want, header+body+ending)
		}
		for _, wrap := range []func(io.Reader) io.Reader{
			func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.DataErrReader,
		} {
			got := split(t, wrap(strings.NewReader(box.String())), 0)
			if len(got) != len(want) {
				t.Fatalf("%d messages, want %d", len(got), len(want))
			}
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("message %d: %q, want %q", i, got[i], want[i])
				}
			}
		}
	})
}

func split(t interface{ Fatal(...any) }, r io.Reader, base int64) []string {
	var messages []string
	last := int64(-1)
	err := splitMbox(r, base, func(time.Time) bool { return true }, func(m mboxMessage) bool {
		if m.offset <= last || m.headerSize > len(m.raw) || len(m.raw) > maxHeaderBytes+maxBodyBytes {
			t.Fatal("offset", m.offset, "after", last, "header", m.headerSize, "of", len(m.raw))
		}
		last = m.offset
		messages = append(messages, string(m.raw))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return messages
}

// TestMboxMiddle: reading that begins inside a message begins with the next,
// however long the rest is, and an unread message costs no memory.
func TestMboxMiddle(t *testing.T) {
	for _, size := range []int{0, 10, mboxPiece - 20, mboxPiece - 3, mboxPiece, 3*mboxPiece + 7} {
		for _, gap := range []string{"\n\n", "\r\n\r\n"} {
			box := "rest of a mail" + strings.Repeat("x", size) + gap + "From a Mon Mar  2 10:00:00 2026\nSubject: one\n\n" +
				strings.Repeat("y", size) + gap + "From a Mon Mar  2 10:00:00 2026\nSubject: two\n\n"
			got := split(t, strings.NewReader(box), 1000)
			if len(got) != 2 || !strings.HasPrefix(got[0], "Subject: one\n") || got[1] != "Subject: two\n\n" {
				t.Errorf("size %d: %d messages", size, len(got))
			}
		}
	}
}

// TestHostileTime: no mail takes long, whatever it repeats.
func TestHostileTime(t *testing.T) {
	fill := func(s string, size int) string { return strings.Repeat(s, size/len(s)) }
	const header, body = 250 << 10, 64 << 10
	for name, mail := range map[string]string{
		"encoded words":      from + date + "Subject: " + fill("=?a?q?", header) + "\n\n",
		"encoded words ok":   from + date + "Subject: " + fill("=?a?q?b?= ", header) + "\n\n",
		"addresses":          "From: " + fill("<a", header) + "\n" + date + "\n",
		"comments":           "From: " + fill("(", header) + "\n" + date + "\n",
		"commas":             from + "To: " + fill(",", header) + "\n" + date + "\n",
		"fields":             from + date + fill("A:\n", header) + "\n",
		"received":           from + date + fill("Received: ;\n", header) + "\n",
		"references":         from + date + "References: " + fill("<a> ", header) + "\n\n",
		"parameters":         from + date + "Content-Type: text/plain" + fill("; a*0=b", header) + "\n\n",
		"blank header":       fill("\n", header) + from + date + "\n",
		"quotations":         from + date + "\n" + fill("\n>\n", body),
		"attributions":       from + date + "\n" + fill("On x\ny:\n>\n", body),
		"envelope lines":     from + date + "\n" + fill("\nFrom \n", body),
		"tags":               from + date + "Content-Type: text/html\n\n" + fill("<", body),
		"attributes":         from + date + "Content-Type: text/html\n\n<p " + fill("style=a ", body),
		"open elements":      from + date + "Content-Type: text/html\n\n" + fill("<p hidden>", body),
		"entities":           from + date + "Content-Type: text/html\n\n" + fill("&amp", body),
		"comments in markup": from + date + "Content-Type: text/html\n\n" + fill("<!--", body),
		"parts":              from + date + "Content-Type: multipart/mixed; boundary=b\n\n" + fill("--b\n", body),
		"boundaries almost":  from + date + "Content-Type: multipart/mixed; boundary=" + strings.Repeat("b", 60) + "\n\n" + fill("\n--"+strings.Repeat("b", 59), body),
	} {
		start := time.Now()
		ask(t, fstest.MapFS{"a.eml": {Data: []byte(mail)}, "b.mbox": {Data: []byte("From a Mon Mar  2 10:00:00 2026\n" + mail)}}, march2())
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("%s: %v", name, took)
		}
	}
}

// checkReply holds for every reply, whatever the mail was.
func checkReply(t testing.TB, reply string, q hand.Query) {
	t.Helper()
	if !utf8.ValidString(reply) {
		t.Errorf("not UTF-8: %q", reply)
	}
	if n := tokens.Estimate(reply); n > q.MaxOutputTokens {
		t.Errorf("%d tokens, limit %d", n, q.MaxOutputTokens)
	}
	for i, line := range strings.Split(reply, "\n") {
		begins := func(s string) bool { return strings.HasPrefix(line, s) }
		if i == 0 && reply != "" && !begins("Mail from ") {
			t.Errorf("heading %q", line)
		}
		if i > 0 && line != "" && !begins("- Mon 2 Mar ") && !begins("  ") && !begins("… and ") && !begins("Could not read: ") && !begins("Only ") && !begins("Of ") && !begins("Reading ") {
			t.Errorf("a line that this hand did not begin: %q", line)
		}
		if strings.ContainsFunc(line, func(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }) {
			t.Errorf("control characters in %q", line)
		}
	}
}

func FuzzMail(f *testing.F) {
	f.Add([]byte(from + date + "Subject: =?utf-8?Q?a?= =?utf-8?B?Yg?=\n\nbody\n> quoted\n-- \nsignature\n"))
	f.Add([]byte("From a@example.com Mon Mar  2 10:00:00 2026\n" + from + date + "Status: RO\n\n>From x\n\nFrom b Mon Mar  2 10:00 2026\nFrom: b\n\nx\n"))
	f.Add([]byte(from + date + "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/html; charset=big5\n\n<p>x<blockquote>y</blockquote>\n--b\nContent-Type: application/pdf; name=x\n\nz\n--b--\n"))
	f.Add([]byte(from + date + "To: =?x?q?=2C?= <a@example.com>, group: b@example.com;, \"c\\\"\n\n" + deep(10)))
	f.Fuzz(func(t *testing.T, data []byte) {
		q := march2()
		q.MaxOutputTokens = 500
		q.Config = map[string]any{"me": []string{"a@example.com"}}
		fsys := fstest.MapFS{"a.eml": {Data: data}, "box/cur/1772450000.h:2,F": {Data: data}, "box/new": {Mode: 1<<31 | 0o755}, "mbox.mbox": {Data: data}}
		reply := ask(t, fsys, q)
		checkReply(t, reply, q)
		if again := ask(t, fsys, q); again != reply {
			t.Errorf("two replies:\n%s\n%s", reply, again)
		}
	})
}

func FuzzSplitMbox(f *testing.F) {
	f.Add([]byte("From a Mon Mar  2 10:00:00 2026\nA: b\n\nx\n\nFrom b\nC: d\n\n>From y\n"), int64(0))
	f.Add([]byte("rest\n\nFrom a Mon, 2 Mar 2026 10:00:00 +0000\r\n\r\n"), int64(7))
	f.Fuzz(func(t *testing.T, data []byte, base int64) {
		base = max(base, 0) >> 1
		whole := split(t, strings.NewReader(string(data)), base)
		pieces := split(t, iotest.OneByteReader(strings.NewReader(string(data))), base)
		if len(whole) != len(pieces) {
			t.Fatalf("%d messages in one piece, %d byte by byte", len(whole), len(pieces))
		}
		size := 0
		for i := range whole {
			if size += len(whole[i]); whole[i] != pieces[i] {
				t.Fatalf("message %d: %q and %q", i, whole[i], pieces[i])
			}
		}
		if size > len(data) {
			t.Fatalf("%d bytes of messages from %d", size, len(data))
		}
	})
}
