// Command gateway puts the model gateway into a program and talks to it with
// OpenAI's client, which sends the whole conversation each time: the host finds it
// again, keeps it, and says in a header which session it is.
//
//	go run ./examples/gateway
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/gateway"
	"github.com/gloveboxhq/glovebox/memory"
)

func main() {
	data, err := os.MkdirTemp("", "glovebox-gateway-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(data)
	if err := run(context.Background(), os.Stdout, data); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, data string) error {
	config := host.Config{Data: data}
	h, err := host.New(ctx, config)
	if err != nil {
		return err
	}
	defer h.Close()

	// Whoever reaches the listener is the default user here. glovebox serve has
	// tokens, and a door that looks where a request comes from.
	handler := gateway.New(gateway.Config{Host: h, HostConfig: config, User: func(context.Context) memory.UserID { return memory.UserID{} }})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler}
	go server.Serve(listener)
	defer server.Close()

	client := openai.NewClient(option.WithBaseURL("http://"+listener.Addr().String()+"/v1"), option.WithAPIKey("none is asked for"))
	var conversation []openai.ChatCompletionMessageParamUnion
	for _, said := range []string{"The pump room is closed on Monday.", "When is the pump room closed?"} {
		conversation = append(conversation, openai.UserMessage(said))
		var answered *http.Response
		completion, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{Model: host.DefaultAgent, Messages: conversation},
			option.WithResponseInto(&answered))
		if err != nil {
			return err
		}
		conversation = append(conversation, completion.Choices[0].Message.ToParam())
		fmt.Fprintf(out, "session %s\n%s\n", answered.Header.Get(gateway.SessionHeader), completion.Choices[0].Message.Content)
	}
	return nil
}
