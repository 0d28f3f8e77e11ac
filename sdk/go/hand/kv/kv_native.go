//go:build !wasip1

package kv

import "github.com/gloveboxhq/glovebox/abi"

func hostGet(_, _ uint32) int32 { return abi.KindDisabled.Code() }

func hostSet(_, _ uint32) int32 { return abi.KindDisabled.Code() }

func hostDelete(_, _ uint32) int32 { return abi.KindDisabled.Code() }

func hostList(_, _ uint32) int32 { return abi.KindDisabled.Code() }
