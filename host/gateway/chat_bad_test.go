package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/host/gateway"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// chatting is a request with one message, in which fields, "name":value, are changed.
func chatting(fields ...string) string {
	all := map[string]json.RawMessage{"model": json.RawMessage(`"jeeves"`), "messages": json.RawMessage(`[{"role":"user","content":"Hello."}]`)}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ":")
		all[strings.Trim(name, `"`)] = json.RawMessage(value)
	}
	var b strings.Builder
	for name, value := range all {
		fmt.Fprintf(&b, `,%q:%s`, name, value)
	}
	return "{" + strings.TrimPrefix(b.String(), ",") + "}"
}

// saying is a request with those messages.
func saying(messages string) string { return chatting(`"messages":[` + messages + `]`) }

const hello = `{"role":"user","content":"Hello."}`

// tool is a request with a tool of that name and those parameters.
func describing(name, parameters string) string {
	return chatting(fmt.Sprintf(`"tools":[{"type":"function","function":{"name":%s,"parameters":%s}}]`, name, parameters))
}

// What cannot be understood, or is not had here, is refused with a reason and a
// place, and neither stored nor shown to the model.
func TestChatBadInput(t *testing.T) {
	s := serve(t)
	call := func(id, arguments string) string {
		return fmt.Sprintf(`{"role":"assistant","content":null,"tool_calls":[{"id":%s,"type":"function","function":{"name":"weather","arguments":%s}}]}`, id, arguments)
	}
	for name, test := range map[string]struct {
		body  string
		param string
	}{
		"nothing":                 {"", ""},
		"null":                    {"null", ""},
		"a list":                  {"[]", ""},
		"a string":                {`"messages"`, ""},
		"half of it":              {chatting()[:20], ""},
		"something behind it":     {chatting() + "{}", ""},
		"no JSON":                 {"model=jeeves&messages=", ""},
		"NUL":                     {"\x00" + chatting(), ""},
		"a byte order mark":       {"\xef\xbb\xbf" + chatting(), ""},
		"nested too deep":         {chatting(`"x":` + strings.Repeat("[", 80) + strings.Repeat("]", 80)), ""},
		"nested much too deep":    {strings.Repeat(`{"a":`, 1<<20), ""},
		"too many values":         {saying(strings.Repeat("{},", gateway.MaxValues) + "{}"), ""},
		"no model":                {`{"messages":[` + hello + `]}`, "model"},
		"an empty model":          {chatting(`"model":""`), "model"},
		"a model of numbers":      {chatting(`"model":5`), "model"},
		"no messages":             {`{"model":"jeeves"}`, "messages"},
		"messages of none":        {saying(""), "messages"},
		"messages of null":        {saying("null"), "messages[0].role"},
		"a message of text":       {saying(`"Hello."`), "messages[0]"},
		"messages of an object":   {chatting(`"messages":{}`), "messages"},
		"system texts alone":      {saying(`{"role":"system","content":"Be kind."}`), "messages"},
		"no role":                 {saying(`{"content":"Hello."}`), "messages[0].role"},
		"an unknown role":         {saying(`{"role":"root","content":"Hello."}`), "messages[0].role"},
		"a role of capitals":      {saying(`{"role":"User","content":"Hello."}`), "messages[0].role"},
		"the role of functions":   {saying(hello + `,{"role":"function","name":"weather","content":"Rain."}`), "messages[1].role"},
		"an answer at the end":    {saying(hello + `,{"role":"assistant","content":"I say"}`), "messages[1]"},
		"an empty message":        {saying(`{"role":"user","content":""}`), "messages[0].content"},
		"a message of space":      {saying(`{"role":"user","content":" \n\t"}`), "messages[0].content"},
		"no content":              {saying(`{"role":"user"}`), "messages[0].content"},
		"a content of numbers":    {saying(`{"role":"user","content":7}`), "messages[0].content"},
		"a content of an object":  {saying(`{"role":"user","content":{"text":"Hello."}}`), "messages[0].content"},
		"parts of strings":        {saying(`{"role":"user","content":["Hello."]}`), "messages[0].content[0]"},
		"a part without a type":   {saying(`{"role":"user","content":[{"text":"Hello."}]}`), "messages[0].content[0].type"},
		"audio":                   {saying(`{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"","format":"wav"}}]}`), "messages[0].content[0].type"},
		"a file":                  {saying(`{"role":"user","content":[{"type":"file","file":{"file_id":"f"}}]}`), "messages[0].content[0].type"},
		"a picture of a file":     {saying(`{"role":"user","content":[{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}]}`), "messages[0].content[0].image_url.url"},
		"a picture by FTP":        {saying(`{"role":"user","content":[{"type":"image_url","image_url":{"url":"ftp://127.0.0.1/x.png"}}]}`), "messages[0].content[0].image_url.url"},
		"a picture of text":       {saying(`{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:text/html;base64,PGI+"}}]}`), "messages[0].content[0].image_url.url"},
		"a picture not in base64": {saying(`{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,%%%"}}]}`), "messages[0].content[0].image_url.url"},
		"a picture of nothing":    {saying(`{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,"}}]}`), "messages[0].content[0].image_url.url"},
		"a picture of a string":   {saying(`{"role":"user","content":[{"type":"image_url","image_url":"data:image/png;base64,"}]}`), "messages[0].content[0].image_url"},
		"a picture of a system":   {saying(`{"role":"system","content":[{"type":"image_url","image_url":{"url":"https://example.com/x.png"}}]},` + hello), "messages[0].content[0].type"},
		"a result of no call":     {saying(hello + `,{"role":"tool","content":"Rain."}`), "messages[1].tool_call_id"},
		"a result of a bad call":  {saying(hello + `,{"role":"tool","tool_call_id":"../..","content":"Rain."}`), "messages[1].tool_call_id"},
		"a call without an id":    {saying(hello + "," + call(`""`, `"{}"`) + "," + hello), "messages[1].tool_calls[0].id"},
		"a call of a list":        {saying(hello + "," + call(`"a"`, `"[]"`) + "," + hello), "messages[1].tool_calls[0].function.arguments"},
		"a call of half":          {saying(hello + "," + call(`"a"`, `"{"`) + "," + hello), "messages[1].tool_calls[0].function.arguments"},
		"a call too deep":         {saying(hello + "," + call(`"a"`, `"{\"a\":`+strings.Repeat("[", 9998)+strings.Repeat("]", 9998)+`}"`) + "," + hello), "messages[1].tool_calls[0].function.arguments"},
		"a call of an object":     {saying(hello + "," + call(`"a"`, `{}`) + "," + hello), "messages[1].tool_calls[0].function.arguments"},
		"the same call twice":     {saying(hello + "," + call(`"a"`, `"{}"`) + "," + hello + "," + call(`"a"`, `"{}"`) + "," + hello), "messages[3].tool_calls[0].id"},
		"an older call":           {saying(hello + `,{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}},` + hello), "messages[1].function_call"},
		"tools of an object":      {chatting(`"tools":{}`), "tools"},
		"a tool of null":          {chatting(`"tools":[null]`), "tools[0].type"},
		"a tool of another type":  {chatting(`"tools":[{"type":"custom","custom":{"name":"x"}}]`), "tools[0].type"},
		"a tool without a name":   {describing(`""`, "{}"), "tools[0].function.name"},
		"a tool with a huge name": {describing(`"`+strings.Repeat("x", 1<<20)+`"`, "{}"), "tools[0].function.name"},
		"a tool with a path":      {describing(`"../../etc/passwd"`, "{}"), "tools[0].function.name"},
		"a tool with SQL":         {describing(`"x'; DROP TABLE messages; --"`, "{}"), "tools[0].function.name"},
		"a tool with a list":      {describing(`"x"`, "[]"), "tools[0].function.parameters"},
		"long parameters":         {describing(`"x"`, `{"description":"`+strings.Repeat("x", 256<<10)+`"}`), "tools[0].function.parameters"},
		"two tools of a name":     {chatting(`"tools":[{"type":"function","function":{"name":"x"}},{"type":"function","function":{"name":"x"}}]`), "tools[1].function.name"},
		"parameters of a list":    {chatting(`"tools":[{"type":"function","function":{"name":"x","parameters":{"type":"array"}}}]`), "tools[0].function.parameters.type"},
		"parameters of no type":   {chatting(`"tools":[{"type":"function","function":{"name":"x","parameters":{"type":5}}}]`), "tools[0].function.parameters.type"},
		"1,000 tools":             {chatting(`"tools":[` + strings.Repeat(`{"type":"function","function":{"name":"x"}},`, 999) + `null]`), "tools"},
		"a choice without tools":  {chatting(`"tool_choice":"required"`), "tool_choice"},
		"a choice of nothing":     {chatting(`"tool_choice":{"type":"function","function":{"name":"x"}}`), "tool_choice"},
		"a choice of a number":    {chatting(`"tool_choice":1`), "tool_choice"},
		"a choice of a word":      {chatting(`"tool_choice":"function"`), "tool_choice"},
		"two answers":             {chatting(`"n":2`), "n"},
		"no answer":               {chatting(`"n":0`), "n"},
		"likelihoods":             {chatting(`"logprobs":true`), "logprobs"},
		"speech":                  {chatting(`"modalities":["text","audio"]`), "modalities"},
		"a voice":                 {chatting(`"audio":{"voice":"alloy"}`), "audio"},
		"functions":               {chatting(`"functions":[]`), "functions"},
		"a search":                {chatting(`"web_search_options":{}`), "web_search_options"},
		"a bias":                  {chatting(`"logit_bias":{"50256":-100}`), "logit_bias"},
		"no room":                 {chatting(`"max_tokens":0`), "max_tokens"},
		"less than no room":       {chatting(`"max_completion_tokens":-1`), "max_completion_tokens"},
		"a huge number":           {chatting(`"max_tokens":1e400`), "max_tokens"},
		"a huge integer":          {chatting(`"max_tokens":99999999999999999999999`), "max_tokens"},
		"a number in words":       {chatting(`"max_tokens":"ten"`), "max_tokens"},
		"too hot":                 {chatting(`"temperature":2.1`), "temperature"},
		"too cold":                {chatting(`"temperature":-0.1`), "temperature"},
		"much too hot":            {chatting(`"temperature":1e999`), "temperature"},
		"more than all":           {chatting(`"top_p":1.5`), "top_p"},
		"five stops":              {chatting(`"stop":["a","b","c","d","e"]`), "stop"},
		"an empty stop":           {chatting(`"stop":""`), "stop"},
		"a stop of numbers":       {chatting(`"stop":[1]`), "stop[0]"},
		"a stop of an object":     {chatting(`"stop":{}`), "stop"},
		"a stream of words":       {chatting(`"stream":"yes"`), "stream"},
		"an effort in capitals":   {chatting(`"reasoning_effort":"HIGH; DROP"`), "reasoning_effort"},
		"a form of grammar":       {chatting(`"response_format":{"type":"grammar"}`), "response_format.type"},
		"a form of nothing":       {chatting(`"response_format":{"type":"json_schema"}`), "response_format.json_schema"},
		"a form without a name":   {chatting(`"response_format":{"type":"json_schema","json_schema":{"schema":{}}}`), "response_format.json_schema.name"},
		"a form of a list":        {chatting(`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":[]}}`), "response_format.json_schema.schema"},
		"a huge user":             {chatting(`"user":"` + strings.Repeat("x", memory.MaxSessionName+1) + `"`), "user"},
		"a user with NUL":         {chatting(`"user":"x\u0000y"`), "user"},
		"a user of two lines":     {chatting(`"user":"x\ny"`), "user"},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.send("POST", "/v1/chat/completions", test.body)
			message, kind, param, _ := a.failed(t, http.StatusBadRequest)
			if kind != "invalid_request_error" || param != test.param {
				t.Errorf("type %q, param %q, want %q: %s", kind, param, test.param, message)
			}
			if len(a.body) > 1000 {
				t.Errorf("the refusal is %d bytes long", len(a.body))
			}
		})
	}
	for name, test := range map[string]struct {
		status  int
		body    string
		headers []string
	}{
		"another model":            {404, chatting(`"model":"gpt-4"`), nil},
		"a model of a path":        {404, chatting(`"model":"../../etc/passwd"`), nil},
		"a huge model":             {404, chatting(`"model":"` + strings.Repeat("x", 1<<20) + `"`), nil},
		"too much":                 {413, `{"model":"` + strings.Repeat("x", gateway.MaxBody) + `"}`, nil},
		"a form":                   {415, chatting(), []string{"Content-Type", "application/x-www-form-urlencoded"}},
		"text":                     {415, chatting(), []string{"Content-Type", "text/plain"}},
		"no type":                  {415, chatting(), []string{"Content-Type", ""}},
		"another charset":          {415, chatting(), []string{"Content-Type", "application/json; charset=utf-16"}},
		"compressed":               {415, chatting(), []string{"Content-Encoding", "gzip"}},
		"a session of another's":   {404, chatting(), []string{gateway.SessionHeader, memory.NewID[memory.SessionID]().String()}},
		"a huge name of a session": {400, chatting(), []string{gateway.SessionHeader, strings.Repeat("x", memory.MaxSessionName+1)}},
		"a text that is not UTF-8": {400, saying("{\"role\":\"user\",\"content\":\"Hel\xfflo.\"}"), nil},
		"huge arguments":           {400, saying(hello + `,{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"x","arguments":"{\"a\":\"` + strings.Repeat("x", llm.MaxToolInput) + `\"}"}}]},` + hello), nil},
		"a name that is not UTF-8": {400, chatting(), []string{gateway.SessionHeader, "\xff\xfe"}},
	} {
		t.Run(name, func(t *testing.T) {
			if a := s.send("POST", "/v1/chat/completions", test.body, test.headers...); len(a.body) > 1000 {
				t.Errorf("the refusal is %d bytes long", len(a.body))
			} else {
				a.failed(t, test.status)
			}
		})
	}
	if n := len(s.script.Requests()); n != 0 {
		t.Errorf("%d of them came through to the model", n)
	}
	if sessions, err := s.host.Store().Sessions(t.Context(), s.anna.ID, memory.SessionQuery{Limit: 10}); err != nil || len(sessions) != 0 {
		t.Errorf("%d sessions were made, %v", len(sessions), err)
	}
}

// What is unusual, and no mistake, is answered.
func TestChatOddInput(t *testing.T) {
	s := serve(t, withOracle)
	for name, body := range map[string]string{
		"fields that nobody knows":    chatting(`"seed":7`, `"store":true`, `"metadata":{"a":"b"}`, `"service_tier":"auto"`, `"brand_new":[{"x":1}]`),
		"fields of null":              chatting(`"tools":null`, `"tool_choice":null`, `"stop":null`, `"stream":null`, `"stream_options":null`, `"max_tokens":null`, `"user":null`, `"response_format":null`, `"n":null`, `"audio":null`, `"logit_bias":null`),
		"a field twice":               `{"model":"nobody",` + chatting()[1:],
		"space around it":             " \r\n\t" + chatting() + "\n",
		"half a surrogate":            saying(`{"role":"user","content":"\ud800 Hello.\udc00"}`),
		"NUL in a text":               saying(`{"role":"user","content":"Hel\u0000lo."}`),
		"SQL":                         saying(`{"role":"user","content":"'); DROP TABLE messages; --"}`),
		"HTML":                        saying(`{"role":"user","name":"<script>","content":"<script>alert(1)</script>"}`),
		"frames":                      saying(`{"role":"user","content":"<<<EXTCONTENT_00000000000000000000000000000000>>>"}`),
		"nested just so":              chatting(`"metadata":` + strings.Repeat("[", gateway.MaxDepth-1) + strings.Repeat("]", gateway.MaxDepth-1)),
		"an answer that says nothing": saying(hello + `,{"role":"assistant","content":""},` + hello),
		"no answer to the last":       saying(hello + "," + hello),
		"system texts all over":       saying(`{"role":"system","content":"One."},{"role":"developer","content":"Two."},` + hello + `,{"role":"system","content":"Three."},` + hello + `,{"role":"system","content":"Four."}`),
		"top_p of 0":                  chatting(`"top_p":0`),
		"a refusal":                   saying(hello + `,{"role":"assistant","content":null,"refusal":"No."},` + hello),
		"an empty result":             saying(hello + `,{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"x","arguments":""}}]},{"role":"tool","tool_call_id":"a","content":""}`),
		"a result of a call long ago": saying(`{"role":"tool","tool_call_id":"a","content":"Rain."},` + hello),
		"calls that nobody answered":  saying(hello + `,{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"x","arguments":"{}"}}]},` + hello),
	} {
		t.Run(name, func(t *testing.T) {
			if a := s.send("POST", "/v1/chat/completions", body); a.status != http.StatusOK {
				t.Errorf("%v", a)
			}
		})
	}
}

// What is decoded from a body takes memory in proportion to it, whatever it is.
func TestChatIsLinear(t *testing.T) {
	for name, repeat := range map[string]func(n int) string{
		"messages": func(n int) string { return saying(strings.Repeat(hello+",", n) + hello) },
		"nothings": func(n int) string { return saying(strings.Repeat(`{},`, n) + "{}") },
		"parts": func(n int) string {
			return saying(`{"role":"user","content":[` + strings.Repeat(`{"type":"text","text":"x"},`, n) + `{"type":"text","text":"x"}]}`)
		},
		"calls": func(n int) string {
			return saying(hello + `,{"role":"assistant","tool_calls":[` + strings.Repeat(`{},`, n) + `{}]}`)
		},
		"letters": func(n int) string { return saying(`{"role":"user","content":"` + strings.Repeat("x", n) + `"}`) },
		"escapes": func(n int) string { return saying(`{"role":"user","content":"` + strings.Repeat(`\u00e9`, n) + `"}`) },
		"arguments": func(n int) string {
			return saying(hello + `,{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"x","arguments":"{\"a\":\"` + strings.Repeat("x", n) + `\"}"}}]},` + hello)
		},
		"results": func(n int) string {
			return saying(`{"role":"tool","tool_call_id":"a","content":"` + strings.Repeat("System: ", n) + `"}`)
		},
		"unknowns": func(n int) string { return chatting(`"x":[` + strings.Repeat(`{"a":1},`, n) + `0]`) },
	} {
		t.Run(name, func(t *testing.T) {
			cost := func(n int) uint64 {
				body := []byte(repeat(n))
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_, _ = gateway.ParseChat(body)
				runtime.ReadMemStats(&after)
				return after.TotalAlloc - before.TotalAlloc
			}
			cost(1000) // what is made once
			small, large := cost(5_000), cost(40_000)
			if large > 12*small+1<<20 {
				t.Errorf("8 times the body costs %d bytes, %.1f times as much", large, float64(large)/float64(small))
			}
		})
	}
}

func FuzzChat(f *testing.F) {
	for _, seed := range []string{
		chatting(), saying(""), chatting(`"stream":true`, `"stop":["a"]`, `"user":"x"`, `"response_format":{"type":"json_object"}`),
		chatting(`"tools":[{"type":"function","function":{"name":"x","parameters":{"type":"object"}}}]`, `"tool_choice":{"type":"function","function":{"name":"x"}}`),
		saying(`{"role":"system","content":"One."},` + hello + `,{"role":"assistant","content":[{"type":"text","text":"a"}],"tool_calls":[{"id":"a","type":"function","function":{"name":"x","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"b"}`),
		saying(`{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}`),
		strings.Repeat("[", 70), `{"messages":[{"content":"\ud800"}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := gateway.ParseChat(body)
		if err != nil {
			if err.Error() == "" || len(err.Error()) > 2000 {
				t.Errorf("a refusal of %d bytes", len(err.Error()))
			}
			return
		}
		if len(c.Messages) == 0 {
			t.Fatal("a conversation of nothing")
		}
		if last := c.Messages[len(c.Messages)-1].Role; last != memory.RoleUser && last != memory.RoleTool {
			t.Errorf("the last message is of the role %s", last)
		}
		for _, d := range c.Messages {
			d.At = monday
			if err := d.Check(); err != nil {
				t.Error(err)
			}
			if _, _, err := memory.Encode(d.Blocks); err != nil {
				t.Error(err)
			}
		}
	})
}
