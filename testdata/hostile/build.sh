#!/bin/sh
# Builds the modules beside their sources. It needs wat2wasm, of Debian's package
# wabt; what flags a source needs, its head says.
set -eu
cd "$(dirname "$0")"
for source in *.wat; do
	flags=$(sed -n 's/^;; Built with: wat2wasm //p' "$source")
	# shellcheck disable=SC2086
	wat2wasm $flags "$source" -o "${source%.wat}.wasm"
done
