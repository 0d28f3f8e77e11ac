//go:build !wasip1

package files

import "github.com/gloveboxhq/glovebox/abi"

func hostList(_, _ uint32) int32 { return abi.KindDisabled.Code() }

func hostRead(_, _ uint32) int32 { return abi.KindDisabled.Code() }
