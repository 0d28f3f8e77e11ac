// The peers that Glovebox is measured against are no dependency of Glovebox:
// this module is the only one that has them.
module github.com/gloveboxhq/glovebox/host/sandbox/bench

go 1.26.0

replace github.com/gloveboxhq/glovebox => ../../..

require (
	github.com/extism/go-sdk v1.7.1
	github.com/gloveboxhq/glovebox v0.0.0-00010101000000-000000000000
	github.com/tetratelabs/wazero v1.12.0
	github.com/wapc/wapc-go v0.7.0
)

require (
	github.com/Workiva/go-datastructures v1.1.5 // indirect
	github.com/dylibso/observe-sdk/go v0.0.0-20240819160327-2d926c5d788a // indirect
	github.com/gobwas/glob v0.2.3 // indirect
	github.com/gofrs/flock v0.13.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/ianlancetaylor/demangle v0.0.0-20240805132620-81f5be970eca // indirect
	github.com/kljensen/snowball v0.10.0 // indirect
	github.com/tetratelabs/wabin v0.0.0-20230304001439-f6f874872834 // indirect
	go.opentelemetry.io/proto/otlp v1.11.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
