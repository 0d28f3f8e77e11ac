package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/sandbox"
)

// printImages prints what the queries of each guest begin from: none of the
// other tables makes sense without it.
func printImages(ctx context.Context, w io.Writer, o options) (err error) {
	engine, err := sandbox.New(sandbox.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	fmt.Fprintf(w, "\n### What queries begin from\n\n| guest | module, bytes | image | KiB in it | what keeps it from the next stage |\n|---|---|---|---|---|\n")
	return o.eachGuest(ctx, w, func(l language) ([]error, error) {
		module, err := l.hand(ctx, hosts[0].contract)
		if err != nil {
			return nil, err
		}
		hand, err := engine.Load(ctx, module, handOptions("bench", abi.Limits{}))
		if err != nil {
			return nil, err
		}
		i := hand.Image()
		why := i.Reason
		if why == "" {
			why = "–"
		}
		_, err = fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", l.name, thousands(float64(len(module))), i.Stage, kib(i.Bytes), why)
		return nil, err
	})
}
