//go:build !wasip1

package http

import "github.com/gloveboxhq/glovebox/abi"

func hostFetch(_, _ uint32) int32 { return abi.KindDisabled.Code() }
