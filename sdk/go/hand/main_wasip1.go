//go:build wasip1

package hand

import (
	"context"

	"github.com/gloveboxhq/glovebox/sdk/go/hand/internal/guest"
)

//go:wasmexport glovebox_query_v1
func queryV1() int32 {
	text, err := answer(context.Background(), guest.Query())
	if err != nil {
		guest.Fail(err.Error())
		return 1
	}
	guest.Reply(text)
	return 0
}

//go:wasmexport glovebox_warm_v1
func warmV1() { warm() }
