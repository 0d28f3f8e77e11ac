// A hand that fetches the URL that its prompt names.
package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/gloveboxhq/glovebox/sdk/go/hand"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/http"
)

func init() { hand.Register(answer) }

func main() { hand.Main() }

// answer fetches "URL" or posts to "URL BODY".
func answer(ctx context.Context, q hand.Query) (string, error) {
	var r http.Request
	url, body, post := strings.Cut(q.Prompt, " ")
	if r.URL = url; post {
		r.Method, r.Body = "POST", []byte(body)
	}
	response, err := http.Fetch(ctx, r)
	if err != nil {
		return "", err
	}
	return fmt.Sprint(response.Status, " ", response.URL, " ", response.Header.Get("X-Answer"), " ", string(response.Body)), nil
}
